//! Quota trees: an empty directory becomes one, and what is made in it from then on counts to it
//! (`ondisk::quota`).
//!
//! Administrators name a tree by its path in the active image; no permission is asked, and no
//! symbolic link is followed.
//!
//! Invariants: the names of a file lie in directories of the tree that it counts to, but for a
//! tree's own directory, which lies in none: RENAME and LINK elsewhere are refused as between two
//! file systems. So no tree lies within another.
//!
//! Fails: by [`TreeAnswer`]; as reading directories does.

use crate::file::File;
use crate::mutation::{prefix, reference};
use crate::view::View;
use crate::{Executed, Files, Mutation, OperationStop, Outcome, Query, Record};
use crate::{directory_file, holder};
use cowfs::directory::{self, Member};
use cowfs::pointer::Pointer;
use cowfs::quotas::QuotaRoom;
use cowfs::transaction::Transaction;
use file_service::rules::entries::check_tree;
use file_service::{FileHandle, FsError};
use ondisk::inode::{KIND_DIRECTORY, tree_around};
use ondisk::operation::{KIND_MAKE_TREE, TreeRecord};
use ondisk::quota::{QuotaKey, QuotaKind};
use ondisk::root::metafile;
use platform::mutation::{self, Rule};
use std::ops::ControlFlow;
use units::{InodeNumber, Timestamp};

/// Entries of a directory that one [`NameOf`] looks at.
const SCANNED_ENTRIES_MAX: usize = 10_000;

/// What is at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeAnswer {
    /// The directory of this tree. It has become that, if it was asked to.
    Tree(u32),
    /// A directory that is not the directory of a tree, and may become it.
    Directory,
    /// There is nothing.
    NotFound,
    /// Something else than a directory is there, or on the way to it.
    NotDirectory,
    /// The root directory, which is none.
    Root,
    /// A directory with entries: files that are there would not count.
    NotEmpty,
    /// A directory beneath that of this tree.
    Within(u32),
}

/// Whether a file may get a name in a directory.
///
/// # Errors
/// `CrossDevice`.
pub(crate) fn check(file: &File, directory: &File) -> Outcome<()> {
    if mutation::broken(Rule::TreeLeft) {
        return Ok(());
    }
    let around = tree_around(file.inode.get(), file.state.tree);
    Ok(check_tree(around.into(), directory.state.tree.into())?)
}

/// Has a directory and its extended attributes count to the tree that it becomes.
///
/// # Errors
/// What to wait for; `Dangling`.
pub(crate) fn apply<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    directory: InodeNumber,
    now: Timestamp,
) -> Outcome<()> {
    let state = transaction.edit(directory)?;
    // Inodes are numbered below INODES_MAX, which 32 bits hold.
    state.tree = directory.get() as u32;
    state.touch(now);
    holder::follow(transaction, directory)
}

/// Asks what is at a path.
#[derive(Clone, Debug)]
pub struct FindTree {
    /// The names on the way from the root directory.
    pub path: Vec<Vec<u8>>,
}

impl Query for FindTree {
    type Reply = TreeAnswer;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<TreeAnswer> {
        look(files, &self.path).map(|(answer, _)| answer)
    }
}

/// Makes the directory at a path a tree, unless it is one.
#[derive(Clone, Debug)]
pub struct MakeTree {
    /// The names on the way from the root directory.
    pub path: Vec<Vec<u8>>,
    /// When.
    pub now: Timestamp,
}

impl Mutation for MakeTree {
    type Reply = TreeAnswer;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<TreeAnswer>> {
        let (answer, found) = look(files, &self.path)?;
        let (TreeAnswer::Directory, Some(member)) = (answer, found) else {
            return Ok(Executed::silent(answer));
        };
        files.transaction.now = self.now;
        apply(files.transaction, member.inode, self.now)?;
        let record = TreeRecord {
            prefix: prefix(files.environment.volume, self.now),
            directory: reference(member.inode, member.generation),
        };
        let record = Record::new(KIND_MAKE_TREE, &record, &[]);
        let answer = TreeAnswer::Tree(member.inode.get() as u32);
        Ok(Executed::storing(answer, record))
    }
}

/// What is at a path, and the directory if one is there.
fn look<P: Pointer>(
    files: &mut Files<'_, '_, P>,
    path: &[Vec<u8>],
) -> Outcome<(TreeAnswer, Option<Member>)> {
    let root = InodeNumber(metafile::ROOT_DIRECTORY);
    let mut at = None;
    for name in path {
        let above = at.as_ref().map_or(root, |file: &File| file.inode);
        let Some(entry) = files.lookup(above, name)? else {
            return Ok((TreeAnswer::NotFound, None));
        };
        if entry.kind != KIND_DIRECTORY {
            return Ok((TreeAnswer::NotDirectory, None));
        }
        at = Some(files.named(entry)?);
    }
    let Some(found) = at else { return Ok((TreeAnswer::Root, None)) };
    let (inode, tree) = (found.inode, found.state.tree);
    let answer = match tree_around(inode.get(), tree) {
        _ if u64::from(tree) == inode.get() => TreeAnswer::Tree(tree),
        0 => match directory_file::with(files.transaction, inode, |at| directory::is_empty(at))? {
            true => TreeAnswer::Directory,
            false => TreeAnswer::NotEmpty,
        },
        around => TreeAnswer::Within(around),
    };
    Ok((answer, Some(found.member())))
}

/// Asks what the limits of its tree leave a file; nothing if it counts to none that has limits.
#[derive(Clone, Copy, Debug)]
pub struct TreeRoom {
    /// The file.
    pub file: FileHandle,
}

impl Query for TreeRoom {
    type Reply = Option<QuotaRoom>;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Option<QuotaRoom>> {
        // A handle whose file is gone is stale for this as for anything else.
        View::open(files, self.file)?.file(self.file)?;
        if self.file.is_read_only() {
            return Ok(None);
        }
        let state = files.transaction.attributes(self.file.inode)?;
        let tree = state.map_or(0, |state| state.tree);
        if tree == 0 {
            return Ok(None);
        }
        let key = QuotaKey { kind: QuotaKind::Tree, id: tree };
        Ok(files.transaction.quota_room(key)?)
    }
}

/// Asks for the name of a directory in the one above it.
#[derive(Clone, Copy, Debug)]
pub struct NameOf {
    /// The directory.
    pub inode: InodeNumber,
    /// Entries up to this cookie were looked at.
    pub after_cookie: u64,
}

/// What [`NameOf`] comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameStep {
    /// It is the root directory.
    Root,
    /// Its name, and the directory above it.
    Named(Vec<u8>, InodeNumber),
    /// It is not among the entries up to this cookie.
    Further(u64),
    /// It is not there.
    Gone,
}

impl Query for NameOf {
    type Reply = NameStep;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<NameStep> {
        if self.inode.get() == metafile::ROOT_DIRECTORY {
            return Ok(NameStep::Root);
        }
        let state = files.transaction.attributes(self.inode)?;
        let is_there = |kind, links| kind == KIND_DIRECTORY && links > 0;
        if state.is_none_or(|state| !is_there(state.kind, state.links)) {
            return Ok(NameStep::Gone);
        }
        let above =
            directory_file::with(files.transaction, self.inode, |at| directory::parent(at))?;
        let (mut left, mut step) = (SCANNED_ENTRIES_MAX, None);
        let end = directory_file::with(files.transaction, above.inode, |blocks| {
            directory::scan(blocks, self.after_cookie, |cookie, name, entry| {
                if entry.member.inode == self.inode {
                    step = Some(NameStep::Named(name.to_vec(), above.inode));
                } else if left == 0 {
                    step = Some(NameStep::Further(cookie));
                }
                left = left.saturating_sub(1);
                if step.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        })?;
        let missing = Err(OperationStop::Dangling { inode: self.inode });
        step.map_or(if end { missing } else { Err(FsError::Io.into()) }, Ok)
    }
}

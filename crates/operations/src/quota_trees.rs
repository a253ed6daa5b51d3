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
use crate::{Executed, Files, Mutation, Outcome, Query, Record};
use crate::{directory_file, holder};
use cowfs::directory::{self, Member};
use cowfs::inode::InodeAttributes;
use cowfs::pointer::Pointer;
use cowfs::quotas::QuotaRoom;
use cowfs::transaction::Transaction;
use file_service::FileHandle;
use file_service::rules::entries::check_tree;
use ondisk::inode::{KIND_DIRECTORY, tree_around};
use ondisk::operation::{KIND_MAKE_TREE, TreeRecord};
use ondisk::quota::{QuotaKey, QuotaKind};
use ondisk::root::metafile;
use platform::mutation::{self, Rule};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use units::{InodeNumber, Timestamp};

/// Entries of a directory that one [`NamesIn`] looks at.
const SCANNED_ENTRIES_MAX: usize = 4000;

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
    /// The root directory, which cannot be a tree.
    Root,
    /// A directory with entries: files that are there would not count.
    NotEmpty,
    /// A directory beneath that of this tree.
    Within(u32),
    /// An empty directory with the number of a tree that is gone, of which files are still there:
    /// somebody holds them, or they are being freed.
    Former,
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
        0 if !directory_file::with(files.transaction, inode, |at| directory::is_empty(at))? => {
            TreeAnswer::NotEmpty
        }
        0 if files.transaction.is_quota_used(key_of(inode.get() as u32))? => TreeAnswer::Former,
        0 => TreeAnswer::Directory,
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
        // Where the quota file cannot be read the sizes are the volume's.
        unless_damaged(files.transaction.quota_room(key_of(tree)).map_err(Into::into), None)
    }
}

const fn key_of(tree: u32) -> QuotaKey {
    QuotaKey { kind: QuotaKind::Tree, id: tree }
}

/// What is above a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Above {
    /// It is the root directory.
    Nothing,
    /// This directory.
    Directory(InodeNumber),
    /// The directory is not there, or cannot be read.
    Unknown,
}

/// Asks what is above directories. The answers are in the order of the directories, and only those
/// of the first ones where others have to be read.
#[derive(Clone, Debug)]
pub struct AboveOf {
    /// The directories, at most a few hundred.
    pub directories: Vec<InodeNumber>,
}

impl Query for AboveOf {
    type Reply = Vec<Above>;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Vec<Above>> {
        let above = |inode: &InodeNumber| {
            if inode.get() == metafile::ROOT_DIRECTORY {
                return Ok(Above::Nothing);
            }
            if !is_directory(files, *inode)? {
                return Ok(Above::Unknown);
            }
            let above = directory_file::with(files.transaction, *inode, |at| directory::parent(at));
            unless_damaged(above.map(|above| Above::Directory(above.inode)), Above::Unknown)
        };
        let mut answers = Vec::with_capacity(self.directories.len());
        for answer in self.directories.iter().map(above) {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(stop) if answers.is_empty() => return Err(stop),
                Err(_) => break,
            }
        }
        Ok(answers)
    }
}

/// Asks for the names that a directory has of others, one stretch of its entries at a time.
#[derive(Clone, Debug)]
pub struct NamesIn {
    /// The directory.
    pub directory: InodeNumber,
    /// The others.
    pub wanted: Arc<BTreeSet<InodeNumber>>,
    /// Entries up to this cookie were looked at.
    pub after_cookie: u64,
}

/// What [`NamesIn`] has found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FoundNames {
    /// The names, by what they lead to.
    pub names: Vec<(InodeNumber, Vec<u8>)>,
    /// The cookie after which to go on; none at the end.
    pub next: Option<u64>,
}

impl Query for NamesIn {
    type Reply = FoundNames;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<FoundNames> {
        if !is_directory(files, self.directory)? {
            return Ok(FoundNames::default());
        }
        let (mut left, mut found) = (SCANNED_ENTRIES_MAX, FoundNames::default());
        let mut last = None;
        let scanned = directory_file::with(files.transaction, self.directory, |blocks| {
            directory::scan(blocks, self.after_cookie, |cookie, name, entry| {
                if self.wanted.contains(&entry.member.inode) {
                    found.names.push((entry.member.inode, name.to_vec()));
                }
                (left, last) = (left - 1, Some(cookie));
                if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
        });
        match unless_damaged(scanned, true) {
            Ok(true) => {}
            Ok(false) => found.next = last,
            // What was looked at is not looked at again.
            Err(_) if last.is_some() => found.next = last,
            Err(stop) => return Err(stop),
        }
        Ok(found)
    }
}

fn is_directory<P: Pointer>(files: &mut Files<'_, '_, P>, inode: InodeNumber) -> Outcome<bool> {
    let state = files.transaction.attributes(inode);
    let is_one = |state: InodeAttributes| state.kind == KIND_DIRECTORY && state.links > 0;
    unless_damaged(state.map(|state| state.is_some_and(is_one)).map_err(Into::into), false)
}

/// Passes on what is to be waited for. A directory that cannot be read costs the paths through it.
fn unless_damaged<T>(outcome: Outcome<T>, instead: T) -> Outcome<T> {
    match outcome {
        Err(stop) if stop.wait().is_none() => Ok(instead),
        outcome => outcome,
    }
}

//! RENAME: moves a name, replaces what has the new one, or swaps two (`renameat2`).
//!
//! Invariants: no directory comes to lie within itself: the way from the directory that is entered
//! up to the root is walked before anything changes.
//!
//! Fails: as `file_service::rules` refuse; `NotFound`, `NotEmpty`, `CrossDevice`, `NoSpace`.

use crate::attributes::change;
use crate::file::File;
use crate::mutation::{prefix, reference};
use crate::{
    Environment, Executed, Files, Mutation, OperationStop, Outcome, Record, Scoped,
    apply as changes, directory_file, quota_trees,
};
use cowfs::directory::{self, Entry, Member};
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::rules::entries::{self, RenameAction, RenameParties};
use file_service::{FsError, NodeChange, calls};
use ondisk::inode::KIND_DIRECTORY;
use ondisk::operation::{
    FileReference, KIND_RENAME, RENAME_EXCHANGE, RENAME_MOVE, RENAME_REPLACE, RenameRecord,
};
use platform::mutation::{self, Rule};
use units::{Generation, InodeNumber, Timestamp};

struct Parties {
    from_directory: File,
    to_directory: File,
    source: File,
    target: Option<File>,
}

impl Mutation for Scoped<calls::Rename> {
    type Reply = (NodeChange, NodeChange);

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<Self::Reply>> {
        let parties = self.find(files)?;
        let Parties { from_directory, to_directory, source, target } = &parties;
        let action = entries::check_rename(
            &self.scope.caller,
            RenameParties {
                from_directory: &from_directory.attributes,
                from_file: &source.attributes,
                to_directory: &to_directory.attributes,
                to_file: target.as_ref().map(|target| &target.attributes),
            },
            self.call.flags,
        )?;
        if action != RenameAction::Nothing {
            quota_trees::check(source, to_directory)?;
        }
        if let (RenameAction::Exchange, Some(target)) = (action, target) {
            quota_trees::check(target, from_directory)?;
        }
        let (code, target) = match (action, target) {
            (RenameAction::Nothing, _) => {
                let unchanged = |file: &File| change(&file.attributes, file.attributes.clone());
                let reply = (unchanged(from_directory), unchanged(to_directory));
                return Ok(Executed::silent(reply));
            }
            (RenameAction::Move, _) => (RENAME_MOVE, None),
            (RenameAction::Replace, target) => {
                self.check_empty(files.transaction, target.as_ref())?;
                (RENAME_REPLACE, target.as_ref())
            }
            (RenameAction::Exchange, target) => (RENAME_EXCHANGE, target.as_ref()),
        };
        let part = |file: &File| Party { member: file.member(), kind: file.state.kind };
        let step = RenameStep {
            action: code,
            from_directory: from_directory.member(),
            from_name: &self.call.from_name,
            to_directory: to_directory.member(),
            to_name: &self.call.to_name,
            source: part(source),
            target: target.map(part),
        };
        apply(files.transaction, &step, self.scope.now)?;
        let record = self.record(files.environment, &step);
        let from = files.attributes(from_directory.inode)?;
        let to = files.attributes(to_directory.inode)?;
        let reply =
            (change(&from_directory.attributes, from), change(&to_directory.attributes, to));
        if code == RENAME_REPLACE {
            return Ok(Executed::freeing(reply, record));
        }
        Ok(Executed::storing(reply, record))
    }
}

impl Scoped<calls::Rename> {
    fn find<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Parties> {
        let caller = &self.scope.caller;
        files.environment.check(self.call.from_directory)?;
        files.environment.check_same(self.call.to_directory)?;
        let to_directory = files.open_for(self.call.to_directory, caller)?;
        if !to_directory.is_directory() {
            return Err(FsError::NotDirectory.into());
        }
        let from_directory = files.open_for(self.call.from_directory, caller)?;
        entries::check_search(caller, &from_directory.attributes)?;
        let source = files.lookup(from_directory.inode, &self.call.from_name)?;
        entries::check_search(caller, &to_directory.attributes)?;
        let target = files.lookup(to_directory.inode, &self.call.to_name)?;
        entries::check_rename_arguments(&self.call.from_name, &self.call.to_name, self.call.flags)?;
        let source = source.ok_or(FsError::NotFound)?;
        let source = files.named_for(source, caller)?;
        let mut found = None;
        if let Some(target) = target {
            found = Some(files.named_for(target, caller)?);
        }
        let may_loop = from_directory.inode != to_directory.inode;
        if may_loop && !mutation::broken(Rule::RenameMakesLoop) {
            let below = to_directory.member();
            if is_ancestor(files.transaction, &source, below)? {
                return Err(entries::ancestor_error(true, self.call.flags).into());
            }
            if let Some(target) = &found {
                let below = from_directory.member();
                if is_ancestor(files.transaction, target, below)? {
                    return Err(entries::ancestor_error(false, self.call.flags).into());
                }
            }
        }
        Ok(Parties { from_directory, to_directory, source, target: found })
    }

    /// # Errors
    /// `NotEmpty` for a directory with entries.
    fn check_empty<P: Pointer>(
        &self,
        transaction: &mut Transaction<'_, P>,
        target: Option<&File>,
    ) -> Outcome<()> {
        let Some(target) = target.filter(|target| target.is_directory()) else { return Ok(()) };
        let empty =
            directory_file::with(transaction, target.inode, |blocks| directory::is_empty(blocks))?;
        if empty { Ok(()) } else { Err(FsError::NotEmpty.into()) }
    }

    fn record(&self, environment: &Environment, step: &RenameStep<'_>) -> Record {
        let of = |member: Member| reference(member.inode, member.generation);
        let nothing: FileReference = reference(InodeNumber(0), Generation(0));
        let record = RenameRecord {
            prefix: prefix(environment.volume, self.scope.now),
            from_directory: of(step.from_directory),
            to_directory: of(step.to_directory),
            source: of(step.source.member),
            target: step.target.map_or(nothing, |target| of(target.member)),
            action: step.action,
            reserved_a: 0,
            from_name_size: (self.call.from_name.len() as u16).into(),
            to_name_size: (self.call.to_name.len() as u16).into(),
            reserved_b: 0.into(),
        };
        Record::new(KIND_RENAME, &record, &[&self.call.from_name, &self.call.to_name])
    }
}

/// Whether `file` is `below` or one of its ancestors.
fn is_ancestor<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    file: &File,
    below: Member,
) -> Outcome<bool> {
    if !file.is_directory() {
        return Ok(false);
    }
    let sought = file.member();
    let mut at = below;
    // No way up is longer than there are files: a longer one is a damaged ring.
    for _ in 0..=transaction.logical().used_inodes {
        if at == sought {
            return Ok(true);
        }
        let state = transaction.file(at.inode, at.generation)?;
        // Above a removed directory there may be nothing.
        if state.is_none_or(|state| state.kind != KIND_DIRECTORY) {
            return Ok(false);
        }
        let parent =
            directory_file::with(transaction, at.inode, |blocks| directory::parent(blocks))?;
        if parent == at {
            return Ok(false);
        }
        at = parent;
    }
    Err(OperationStop::Dangling { inode: below.inode })
}

/// A file of a rename.
#[derive(Clone, Copy)]
pub(crate) struct Party {
    pub member: Member,
    pub kind: u8,
}

impl Party {
    pub(crate) const fn entry(self) -> Entry {
        Entry { member: self.member, kind: self.kind }
    }
}

/// A rename that is decided.
pub(crate) struct RenameStep<'n> {
    /// One of `RENAME_*`.
    pub action: u8,
    pub from_directory: Member,
    pub from_name: &'n [u8],
    pub to_directory: Member,
    pub to_name: &'n [u8],
    pub source: Party,
    /// Unless the new name was free.
    pub target: Option<Party>,
}

/// Makes a rename's changes.
///
/// # Errors
/// What to wait for, or damage.
pub(crate) fn apply<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    step: &RenameStep<'_>,
    now: Timestamp,
) -> Outcome<()> {
    let (from, to) = (step.from_directory.inode, step.to_directory.inode);
    let source = step.source.entry();
    match (step.action, step.target) {
        (RENAME_EXCHANGE, Some(target)) => {
            let entry = target.entry();
            directory_file::with(transaction, from, |blocks| {
                directory::replace(blocks, step.from_name, entry)
            })?;
            directory_file::with(transaction, to, |blocks| {
                directory::replace(blocks, step.to_name, source)
            })?;
            adopt(transaction, target, to, step.from_directory)?;
            transaction.edit(target.member.inode)?.touch(now);
        }
        (_, target) => {
            directory_file::with(transaction, from, |blocks| {
                directory::remove(blocks, step.from_name)
            })?;
            if let Some(target) = target {
                directory_file::with(transaction, to, |blocks| {
                    directory::replace(blocks, step.to_name, source)
                })?;
                changes::unlink(transaction, to, target.member.inode, now)?;
            } else {
                directory_file::with(transaction, to, |blocks| {
                    directory::insert(blocks, step.to_name, source)
                })?;
            }
        }
    }
    adopt(transaction, step.source, from, step.to_directory)?;
    transaction.edit(from)?.touch_content(now);
    if from != to {
        transaction.edit(to)?.touch_content(now);
    }
    transaction.edit(step.source.member.inode)?.touch(now);
    Ok(())
}

/// Gives a directory another parent.
fn adopt<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    child: Party,
    from: InodeNumber,
    to: Member,
) -> Outcome<()> {
    if from == to.inode || child.kind != KIND_DIRECTORY {
        return Ok(());
    }
    directory_file::with(transaction, child.member.inode, |blocks| {
        directory::set_parent(blocks, to)
    })?;
    let links = &mut transaction.edit(from)?.links;
    *links = links.saturating_sub(1);
    transaction.edit(to.inode)?.links += 1;
    Ok(())
}

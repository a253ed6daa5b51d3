//! Which files an operation may look at or change, so that operations in flight at the same time
//! are independent and their order among themselves does not matter to the model.
//!
//! Files are named by the model's handles: the model's tree is the state that all operations
//! answered so far lead to, and whatever is in flight does not touch what this operation touches.
//!
//! Invariants: two operations with disjoint footprints have the same answers in either order.

use file_service::{Caller, FileHandle, calls};
use model_fs::answer::Answer;
use model_fs::{Executor, Name, Operation, Slot, SnapshotAction};
use std::collections::BTreeSet;

/// See the module.
#[derive(Clone, Default, Debug)]
pub struct Footprint {
    /// Nothing else may be in flight.
    is_alone: bool,
    /// A request for snapshots.
    is_of_snapshots: bool,
    /// The shape of the tree, for what moves directories.
    moves: bool,
    files: BTreeSet<FileHandle>,
    slots_read: BTreeSet<Slot>,
    slots_written: BTreeSet<Slot>,
}

impl Footprint {
    /// Of an operation on the model's files.
    #[must_use]
    pub fn of(operation: &Operation, model: &Executor) -> Self {
        let mut footprint = Self::default();
        footprint.fill(operation, model);
        footprint
    }

    /// Others may begin beside it, but none of its kind.
    pub fn open_up(&mut self) {
        self.is_alone = false;
    }

    /// Whether both may be in flight at once.
    #[must_use]
    pub fn is_independent_of(&self, other: &Self) -> bool {
        let is_alone = self.is_alone || other.is_alone;
        let both_move = self.moves && other.moves;
        let both_of_snapshots = self.is_of_snapshots && other.is_of_snapshots;
        !is_alone
            && !both_of_snapshots
            && !both_move
            && self.files.is_disjoint(&other.files)
            && self.slots_written.is_disjoint(&other.slots_written)
            && self.slots_written.is_disjoint(&other.slots_read)
            && self.slots_read.is_disjoint(&other.slots_written)
    }

    fn file(&mut self, model: &Executor, slot: Slot) {
        self.slots_read.insert(slot);
        self.files.insert(model.handle(slot));
    }

    /// A directory and the file that has the name in it, if any.
    fn entry(&mut self, model: &Executor, directory: Slot, name: Name) {
        self.file(model, directory);
        let (service, handle) = (model.service(), model.handle(directory));
        let (caller, name) = (Caller::root(), name.bytes());
        let found = Answer::to(|done| {
            service.lookup(&caller, calls::Lookup { directory: handle, name: name.to_vec() }, done)
        })
        .take();
        if let Ok(Ok(entry)) = found {
            self.files.insert(entry.handle);
        }
    }

    fn fill(&mut self, operation: &Operation, model: &Executor) {
        match operation {
            Operation::Attributes { file }
            | Operation::SetAttributes { file, .. }
            | Operation::Access { file, .. }
            | Operation::ReadLink { file, .. }
            | Operation::Read { file, .. }
            | Operation::Write { file, .. }
            | Operation::Append { file, .. }
            | Operation::Commit { file, .. }
            | Operation::Statistics { file }
            | Operation::GetXattr { file, .. }
            | Operation::SetXattr { file, .. }
            | Operation::ListXattrs { file, .. }
            | Operation::RemoveXattr { file, .. }
            | Operation::Allocate { file, .. }
            | Operation::Seek { file, .. }
            | Operation::Hold { file }
            | Operation::Release { file } => self.file(model, *file),
            Operation::Lookup { directory, name, into, .. }
            | Operation::Create { directory, name, into, .. }
            | Operation::MakeNode { directory, name, into, .. } => {
                self.entry(model, *directory, *name);
                self.slots_written.insert(*into);
            }
            Operation::CreateUnnamed { directory, into, .. } => {
                self.file(model, *directory);
                self.slots_written.insert(*into);
            }
            Operation::Link { file, directory, name, .. } => {
                self.file(model, *file);
                self.entry(model, *directory, *name);
            }
            Operation::Remove { directory, name, .. }
            | Operation::RemoveDirectory { directory, name, .. } => {
                self.entry(model, *directory, *name);
            }
            Operation::Rename { from, to, .. } => {
                self.moves = true;
                self.entry(model, from.0, from.1);
                self.entry(model, to.0, to.1);
            }
            // With attributes it looks at every child, and at the parent.
            Operation::ReadDirectory { directory, with_attributes, .. } => {
                self.is_alone = *with_attributes;
                self.file(model, *directory);
            }
            // In a line with others of its kind: see `crate::tenant::snapshots`.
            Operation::Snapshot(SnapshotAction::Delete(_)) => self.is_of_snapshots = true,
            Operation::Snapshot(_) => (self.is_alone, self.is_of_snapshots) = (true, true),
        }
    }
}

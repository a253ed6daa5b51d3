//! LOOKUP: from a name in a directory to its file, in any image, and by `.snapshot` from one image
//! into the others.
//!
//! Fails: `Stale`, `NotDirectory`, `AccessDenied`, `Invalid`, `NameTooLong`, `NotFound`.

use crate::view::View;
use crate::{Files, Outcome, Query, Scoped};
use cowfs::directory;
use cowfs::pointer::Pointer;
use file_service::rules::{entries, names};
use file_service::{Attributes, Entry, FileHandle, FsError, calls};
use units::SnapshotId;

impl Query for Scoped<calls::Lookup> {
    type Reply = Entry;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Entry> {
        let mut view = View::open(files, self.call.directory)?;
        let directory = view.file_for(self.call.directory, &self.scope.caller)?;
        entries::check_search(&self.scope.caller, &directory)?;
        names::check_name(&self.call.name)?;
        if self.call.name == b"." {
            return Ok(Entry { handle: self.call.directory, attributes: directory });
        }
        match view.image {
            SnapshotId::DIRECTORY => self.in_snapshot_directory(&mut view),
            SnapshotId::ACTIVE if self.call.name == names::SNAPSHOT_DIRECTORY => {
                let handle = FileHandle { snapshot: SnapshotId::DIRECTORY, ..self.call.directory };
                let attributes = view.other(handle)?.file(handle)?;
                Ok(Entry { handle, attributes })
            }
            _ => self.in_directory(&mut view, &directory),
        }
    }
}

impl Scoped<calls::Lookup> {
    fn in_directory<P: Pointer>(
        &self,
        view: &mut View<'_, '_, P>,
        directory: &Attributes,
    ) -> Outcome<Entry> {
        if self.call.name == b".." {
            // The parent of a removed directory may be gone.
            if directory.links == 0 {
                return Err(FsError::NotFound.into());
            }
            let parent = view.directory(directory, |blocks| directory::parent(blocks))?;
            return view.entry(parent.inode, parent.generation);
        }
        let found =
            view.directory(directory, |blocks| directory::lookup(blocks, &self.call.name))?;
        let member = found.ok_or(FsError::NotFound)?.member;
        view.entry(member.inode, member.generation)
    }

    fn in_snapshot_directory<P: Pointer>(&self, view: &mut View<'_, '_, P>) -> Outcome<Entry> {
        if self.call.name == b".." {
            let handle = FileHandle { snapshot: SnapshotId::ACTIVE, ..self.call.directory };
            let mut active = view.other(handle)?;
            return active.entry(handle.inode, handle.generation);
        }
        let snapshots = &view.transaction.logical().snapshots;
        let named = snapshots.iter().find(|snapshot| snapshot.name.as_bytes() == self.call.name);
        let snapshot = named.cloned().ok_or(FsError::NotFound)?;
        let entry = view.in_snapshot(self.call.directory, &snapshot)?;
        entry.ok_or_else(|| FsError::NotFound.into())
    }
}

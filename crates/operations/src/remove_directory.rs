//! RMDIR: removes an empty directory.
//!
//! Fails: as `file_service::rules` refuse; `NotFound`, `NotEmpty`.

use crate::remove::take_away;
use crate::{Executed, Files, Mutation, Outcome, Scoped, directory_file};
use cowfs::directory;
use cowfs::pointer::Pointer;
use file_service::rules::entries;
use file_service::{FsError, NodeChange, calls};

impl Mutation for Scoped<calls::RemoveDirectory> {
    type Reply = NodeChange;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<NodeChange>> {
        let caller = &self.scope.caller;
        let parent = files.open_for(self.call.directory, caller)?;
        entries::check_search(caller, &parent.attributes)?;
        let found = files.lookup(parent.inode, &self.call.name)?;
        entries::check_removable_directory_name(&self.call.name)?;
        let victim = files.named(found.ok_or(FsError::NotFound)?)?;
        entries::check_remove_directory(caller, &parent.attributes, &victim.attributes)?;
        let empty = directory_file::with(files.transaction, victim.inode, |blocks| {
            directory::is_empty(blocks)
        })?;
        if !empty {
            return Err(FsError::NotEmpty.into());
        }
        take_away(files, &self.scope, (&parent, &self.call.name), &victim)
    }
}

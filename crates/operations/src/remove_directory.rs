//! RMDIR: removes an empty directory.
//!
//! Fails: as `file_service::rules` refuse; `NotFound`, `NotEmpty`.

use crate::remove::take_away;
use crate::{Environment, Executed, Mutation, OperationStop, Scoped, directory_file, file};
use cowfs::directory;
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::rules::entries;
use file_service::{FsError, NodeChange, calls};

impl Mutation for Scoped<calls::RemoveDirectory> {
    type Reply = NodeChange;

    fn execute<P: Pointer>(
        &self,
        transaction: &mut Transaction<'_, P>,
        environment: &Environment,
    ) -> Result<Executed<NodeChange>, OperationStop> {
        let parent = file::open(transaction, environment, self.call.directory)?;
        let caller = &self.scope.caller;
        entries::check_search(caller, &parent.attributes)?;
        let found = directory_file::lookup(transaction, parent.inode, &self.call.name)?;
        entries::check_removable_directory_name(&self.call.name)?;
        let victim = file::named(transaction, environment, found.ok_or(FsError::NotFound)?)?;
        entries::check_remove_directory(caller, &parent.attributes, &victim.attributes)?;
        let empty =
            directory_file::with(transaction, victim.inode, |blocks| directory::is_empty(blocks))?;
        if !empty {
            return Err(FsError::NotEmpty.into());
        }
        take_away(transaction, environment, &self.scope, (&parent, &self.call.name), &victim)
    }
}

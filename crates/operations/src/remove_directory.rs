//! RMDIR: removes an empty directory.
//!
//! Fails: as `file_service::rules` refuse; `NotFound`, `NotEmpty`.

use crate::remove::take_away;
use crate::{Environment, Executed, Mutation, OperationStop, Scope, directory_file, file};
use cowfs::directory;
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::rules::entries;
use file_service::{FileHandle, FsError, NodeChange};

/// Removes an empty directory.
#[derive(Clone, Debug)]
pub struct RemoveDirectory {
    /// Who asks, and when.
    pub scope: Scope,
    /// Where.
    pub directory: FileHandle,
    /// The name.
    pub name: Vec<u8>,
}

impl Mutation for RemoveDirectory {
    type Reply = NodeChange;

    fn execute<P: Pointer>(
        &self,
        transaction: &mut Transaction<'_, P>,
        environment: &Environment,
    ) -> Result<Executed<NodeChange>, OperationStop> {
        let parent = file::open(transaction, environment, self.directory)?;
        let caller = &self.scope.caller;
        entries::check_search(caller, &parent.attributes)?;
        let found = directory_file::lookup(transaction, parent.inode, &self.name)?;
        entries::check_removable_directory_name(&self.name)?;
        let victim = file::named(transaction, environment, found.ok_or(FsError::NotFound)?)?;
        entries::check_remove_directory(caller, &parent.attributes, &victim.attributes)?;
        let empty =
            directory_file::with(transaction, victim.inode, |blocks| directory::is_empty(blocks))?;
        if !empty {
            return Err(FsError::NotEmpty.into());
        }
        take_away(transaction, environment, &self.scope, (&parent, &self.name), &victim)
    }
}

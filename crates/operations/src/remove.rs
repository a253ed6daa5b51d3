//! REMOVE: takes a name from anything but a directory, and the file away with its last name.
//!
//! Fails: as `file_service::rules` refuse; `NotFound`.

use crate::attributes::change;
use crate::file::File;
use crate::mutation::{prefix, reference};
use crate::{
    Environment, Executed, Mutation, OperationStop, Record, Scope, Scoped, apply, directory_file,
    file,
};
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::rules::entries;
use file_service::{FsError, NodeChange, calls};
use ondisk::operation::{KIND_REMOVE, NameRecord};

impl Mutation for Scoped<calls::Remove> {
    type Reply = NodeChange;

    fn execute<P: Pointer>(
        &self,
        transaction: &mut Transaction<'_, P>,
        environment: &Environment,
    ) -> Result<Executed<NodeChange>, OperationStop> {
        let directory = file::open(transaction, environment, self.call.directory)?;
        entries::check_search(&self.scope.caller, &directory.attributes)?;
        let found = directory_file::lookup(transaction, directory.inode, &self.call.name)?;
        entries::check_removable_name(&self.call.name)?;
        let victim = file::named(transaction, environment, found.ok_or(FsError::NotFound)?)?;
        entries::check_remove(&self.scope.caller, &directory.attributes, &victim.attributes)?;
        take_away(transaction, environment, &self.scope, (&directory, &self.call.name), &victim)
    }
}

/// Removes a name that may be removed.
pub(crate) fn take_away<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    environment: &Environment,
    scope: &Scope,
    (directory, name): (&File, &[u8]),
    victim: &File,
) -> Result<Executed<NodeChange>, OperationStop> {
    apply::remove_name(transaction, directory.inode, name, victim.inode, scope.now)?;
    let record = NameRecord {
        prefix: prefix(environment.volume, scope.now),
        directory: reference(directory.inode, directory.state.generation),
        file: reference(victim.inode, victim.state.generation),
        name_size: (name.len() as u16).into(),
        reserved: [0; 6],
    };
    let record = Record::new(KIND_REMOVE, &record, &[name]);
    let after = file::attributes(transaction, environment, directory.inode)?;
    Ok(Executed::freeing(change(&directory.attributes, after), record))
}

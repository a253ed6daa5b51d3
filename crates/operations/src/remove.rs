//! REMOVE: takes a name from anything but a directory, and the file away with its last name.
//!
//! Fails: as `file_service::rules` refuse; `NotFound`.

use crate::attributes::change;
use crate::file::File;
use crate::mutation::{prefix, reference};
use crate::{Executed, Files, Mutation, Outcome, Record, Scope, Scoped, apply};
use cowfs::pointer::Pointer;
use file_service::rules::entries;
use file_service::{FsError, NodeChange, calls};
use ondisk::operation::{KIND_REMOVE, NameRecord};

impl Mutation for Scoped<calls::Remove> {
    type Reply = NodeChange;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<NodeChange>> {
        let directory = files.open_for(self.call.directory, &self.scope.caller)?;
        entries::check_search(&self.scope.caller, &directory.attributes)?;
        let found = files.lookup(directory.inode, &self.call.name)?;
        entries::check_removable_name(&self.call.name)?;
        let victim = files.named(found.ok_or(FsError::NotFound)?)?;
        entries::check_remove(&self.scope.caller, &directory.attributes, &victim.attributes)?;
        take_away(files, &self.scope, (&directory, &self.call.name), &victim)
    }
}

/// Removes a name that may be removed.
pub(crate) fn take_away<P: Pointer>(
    files: &mut Files<'_, '_, P>,
    scope: &Scope,
    (directory, name): (&File, &[u8]),
    victim: &File,
) -> Outcome<Executed<NodeChange>> {
    apply::remove_name(files.transaction, directory.inode, name, victim.inode, scope.now)?;
    let record = NameRecord {
        prefix: prefix(files.environment.volume, scope.now),
        directory: reference(directory.inode, directory.state.generation),
        file: reference(victim.inode, victim.state.generation),
        name_size: (name.len() as u16).into(),
        reserved: [0; 6],
    };
    let record = Record::new(KIND_REMOVE, &record, &[name]);
    let after = files.attributes(directory.inode)?;
    Ok(Executed::freeing(change(&directory.attributes, after), record))
}

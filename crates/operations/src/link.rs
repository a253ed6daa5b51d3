//! LINK: another name for a file.
//!
//! Fails: as `file_service::rules` refuse; `Exists`, `CrossDevice`, `NoSpace`.

use crate::attributes::change;
use crate::mutation::{prefix, reference};
use crate::{
    Environment, Executed, Mutation, OperationStop, Record, Scope, Scoped, apply, directory_file,
    file,
};
use cowfs::directory::Entry;
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::rules::{entries, names};
use file_service::{Attributes, FsError, NodeChange, calls};
use ondisk::operation::{KIND_LINK, NameRecord};

impl Mutation for Scoped<calls::Link> {
    type Reply = (Attributes, NodeChange);

    fn execute<P: Pointer>(
        &self,
        transaction: &mut Transaction<'_, P>,
        environment: &Environment,
    ) -> Result<Executed<Self::Reply>, OperationStop> {
        let Scope { caller, now } = &self.scope;
        environment.check(self.call.directory)?;
        environment.check_same(self.call.file)?;
        let linked = file::open(transaction, environment, self.call.file)?;
        let directory = file::open(transaction, environment, self.call.directory)?;
        entries::check_search(caller, &directory.attributes)?;
        if directory_file::lookup(transaction, directory.inode, &self.call.name)?.is_some() {
            return Err(FsError::Exists.into());
        }
        names::check_new_name(&self.call.name)?;
        entries::check_link(caller, &linked.attributes, &directory.attributes)?;
        let entry = Entry { member: linked.member(), kind: linked.state.kind };
        apply::add_name(transaction, directory.inode, &self.call.name, entry, *now)?;
        let state = transaction.edit(linked.inode)?;
        state.links += 1;
        state.touch(*now);
        let record = NameRecord {
            prefix: prefix(environment.volume, *now),
            directory: reference(directory.inode, directory.state.generation),
            file: reference(linked.inode, linked.state.generation),
            name_size: (self.call.name.len() as u16).into(),
            reserved: [0; 6],
        };
        let record = Record::new(KIND_LINK, &record, &[&self.call.name]);
        let after = file::attributes(transaction, environment, directory.inode)?;
        let linked = file::attributes(transaction, environment, linked.inode)?;
        Ok(Executed::storing((linked, change(&directory.attributes, after)), record))
    }
}

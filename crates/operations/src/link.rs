//! LINK: another name for a file.
//!
//! Fails: as `file_service::rules` refuse; `Exists`, `CrossDevice`, `NoSpace`.

use crate::attributes::change;
use crate::mutation::{prefix, reference};
use crate::{Executed, Files, Mutation, Outcome, Record, Scope, Scoped, apply};
use cowfs::directory::Entry;
use cowfs::pointer::Pointer;
use file_service::rules::{entries, names};
use file_service::{Attributes, FsError, NodeChange, calls};
use ondisk::operation::{KIND_LINK, NameRecord};

impl Mutation for Scoped<calls::Link> {
    type Reply = (Attributes, NodeChange);

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<Self::Reply>> {
        let Scope { caller, now } = &self.scope;
        files.environment.check(self.call.directory)?;
        files.environment.check_same(self.call.file)?;
        let linked = files.open(self.call.file)?;
        let directory = files.open(self.call.directory)?;
        entries::check_search(caller, &directory.attributes)?;
        if files.lookup(directory.inode, &self.call.name)?.is_some() {
            return Err(FsError::Exists.into());
        }
        names::check_new_name(&self.call.name)?;
        entries::check_link(caller, &linked.attributes, &directory.attributes)?;
        let entry = Entry { member: linked.member(), kind: linked.state.kind };
        apply::add_name(files.transaction, directory.inode, &self.call.name, entry, *now)?;
        let state = files.transaction.edit(linked.inode)?;
        state.links += 1;
        state.touch(*now);
        let record = NameRecord {
            prefix: prefix(files.environment.volume, *now),
            directory: reference(directory.inode, directory.state.generation),
            file: reference(linked.inode, linked.state.generation),
            name_size: (self.call.name.len() as u16).into(),
            reserved: [0; 6],
        };
        let record = Record::new(KIND_LINK, &record, &[&self.call.name]);
        let after = files.attributes(directory.inode)?;
        let linked = files.attributes(linked.inode)?;
        Ok(Executed::storing((linked, change(&directory.attributes, after)), record))
    }
}

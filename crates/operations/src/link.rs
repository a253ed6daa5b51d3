//! LINK: another name for a file, and the first for one that was made without.
//!
//! Fails: as `file_service::rules` refuse; `Exists`, `CrossDevice`, `NoSpace`.

use crate::attributes::change;
use crate::mutation::{prefix, reference};
use crate::{Executed, Files, Mutation, Outcome, Record, Scope, Scoped, apply, quota_trees};
use cowfs::directory::Entry;
use cowfs::logical::Logical;
use cowfs::pointer::Pointer;
use file_service::rules::{entries, names};
use file_service::{Attributes, FileHandle, FsError, NodeChange, calls};
use ondisk::operation::{KIND_LINK, NameRecord};

impl Mutation for Scoped<calls::Link> {
    type Reply = (Attributes, NodeChange);

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<Self::Reply>> {
        let Scope { caller, now } = &self.scope;
        files.environment.check(self.call.directory)?;
        files.environment.check_same(self.call.file)?;
        let linked = files.open(self.call.file)?;
        let directory = files.open_for(self.call.directory, caller)?;
        entries::check_search(caller, &directory.attributes)?;
        if files.lookup(directory.inode, &self.call.name)?.is_some() {
            return Err(FsError::Exists.into());
        }
        names::check_new_name(&self.call.name)?;
        let holds = &files.transaction.logical().holds;
        let is_unnamed = holds.is_unnamed(linked.inode, linked.state.generation);
        entries::check_link(caller, &linked.attributes, &directory.attributes, is_unnamed)?;
        quota_trees::check(&linked, &directory)?;
        let entry = Entry { member: linked.member(), kind: linked.state.kind };
        apply::link(files.transaction, directory.inode, &self.call.name, entry, *now)?;
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

    fn hold<P: Pointer>(
        &self,
        _: &mut Self::Reply,
        logical: &mut Logical<P>,
        _: impl FnOnce(&FileHandle) -> u64,
    ) {
        logical.holds.named(self.call.file.inode, self.call.file.generation);
    }
}

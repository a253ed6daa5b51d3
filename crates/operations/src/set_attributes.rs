//! SETATTR: mode, owner, times and size, all or nothing.
//!
//! Fails: as `file_service::rules` refuse; `NoSpace`.

use crate::attributes::{change, state_of, take_over};
use crate::mutation::{prefix, reference};
use crate::{Executed, Files, Mutation, Outcome, Record, Scope, Scoped, apply, holder};
use cowfs::pointer::Pointer;
use file_service::rules::attributes::changed;
use file_service::{NodeChange, calls};
use ondisk::operation::{FLAG_DROPS_CAPABILITY, KIND_SET_ATTRIBUTES, SetAttributesRecord};

impl Mutation for Scoped<calls::SetFileAttributes> {
    type Reply = NodeChange;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<NodeChange>> {
        let (Scope { caller, now }, set) = (&self.scope, &self.call.set);
        let found = files.open_for(self.call.file, &self.scope.caller)?;
        let inode = found.inode;
        let before = &found.attributes;
        let limit = files.environment.limits.file_bytes_max;
        let decided = changed(caller, before, set, limit, *now)?;
        if decided == *before {
            return Ok(Executed::silent(change(before, decided)));
        }
        if set.size.is_some() {
            apply::resize(files.transaction, inode, decided.size)?;
        }
        let drops = (set.size.is_some() || set.uid.is_some() || set.gid.is_some())
            && holder::drop_capability(files.transaction, inode)?;
        take_over(files.transaction.edit(inode)?, &decided);
        if decided.uid != before.uid || decided.gid != before.gid {
            holder::follow(files.transaction, inode)?;
        }
        let record = SetAttributesRecord {
            prefix: prefix(files.environment.volume, *now),
            file: reference(inode, found.state.generation),
            state: state_of(files.transaction.edit(inode)?),
            flags: if drops { FLAG_DROPS_CAPABILITY } else { 0 }.into(),
            reserved: 0.into(),
        };
        let record = Record::new(KIND_SET_ATTRIBUTES, &record, &[]);
        let after = files.attributes(inode)?;
        let reply = change(before, after);
        if decided.size < before.size {
            return Ok(Executed::freeing(reply, record));
        }
        Ok(Executed::storing(reply, record))
    }
}

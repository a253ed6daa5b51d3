//! Extended attributes: the calls that get, list, set and remove them. See [`crate::holder`] for
//! where they lie, and [`crate::acls`] for the two that are access control lists.
//!
//! Fails: as `file_service::rules::xattrs` refuse; `NoAttribute`, `Exists`, `AttributeTooLarge`,
//! `NoSpace`.

use crate::holder::{XATTRS_BYTES_MAX, load, remove, store};
use crate::mutation::{prefix, reference};
use crate::view::View;
use crate::{Executed, Files, Mutation, Outcome, Query, Record, Scoped, acls};
use cowfs::pointer::Pointer;
use file_service::rules::acls::AclKind;
use file_service::rules::xattrs::{check_get, check_names_room, check_set, is_listed};
use file_service::{FsError, XattrSetMode, calls};
use ondisk::operation::{KIND_REMOVE_XATTR, KIND_SET_XATTR, RemoveXattrRecord, SetXattrRecord};
use ondisk::xattr;

impl Query for Scoped<calls::GetXattr> {
    type Reply = Vec<u8>;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Vec<u8>> {
        let mut view = View::open(files, self.call.file)?;
        let attributes = view.file_for(self.call.file, &self.scope.caller)?;
        check_get(&self.scope.caller, &attributes, &self.call.name)?;
        if let Some(kind) = AclKind::of_name(&self.call.name) {
            return acls::value(&mut view, &attributes, kind);
        }
        let found = view.xattr(self.call.file.inode, &self.call.name)?;
        found.ok_or_else(|| FsError::NoAttribute.into())
    }
}

impl Query for Scoped<calls::ListXattrs> {
    type Reply = Vec<Vec<u8>>;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Vec<Vec<u8>>> {
        let mut view = View::open(files, self.call.file)?;
        view.file(self.call.file)?;
        let names = view.xattrs(self.call.file.inode)?.into_keys();
        Ok(names.filter(|name| is_listed(&self.scope.caller, name)).collect())
    }
}

impl Mutation for Scoped<calls::SetXattr> {
    type Reply = ();

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<()>> {
        if let Some(kind) = AclKind::of_name(&self.call.name) {
            let file = (self.call.file, self.call.drops_setgid);
            return acls::set(files, &self.scope, file, (kind, &self.call.value));
        }
        let found = files.open_for(self.call.file, &self.scope.caller)?;
        check_set(&self.scope.caller, &found.attributes, &self.call.name, self.call.value.len())?;
        let mut list = load(files.transaction, found.inode)?;
        let there = list.contains_key(&self.call.name);
        match self.call.mode {
            XattrSetMode::Create if there => return Err(FsError::Exists.into()),
            XattrSetMode::Replace if !there => return Err(FsError::NoAttribute.into()),
            XattrSetMode::Either | XattrSetMode::Create | XattrSetMode::Replace => {}
        }
        if !there {
            let names_bytes = list.keys().map(|name| name.len() + 1).sum();
            check_names_room(names_bytes, &self.call.name)?;
        }
        list.insert(self.call.name.clone(), self.call.value.clone());
        if xattr::encoded_size(&list) as u64 > XATTRS_BYTES_MAX {
            return Err(FsError::AttributeTooLarge.into());
        }
        let now = self.scope.now;
        files.transaction.now = now;
        let (inode, generation) = store(files.transaction, found.inode, &list, None)?;
        files.transaction.edit(found.inode)?.touch(now);
        let record = SetXattrRecord {
            prefix: prefix(files.environment.volume, now),
            file: reference(found.inode, found.state.generation),
            holder: reference(inode, generation),
            value_size: (self.call.value.len() as u32).into(),
            name_size: (self.call.name.len() as u16).into(),
            reserved: 0.into(),
        };
        let record = Record::new(KIND_SET_XATTR, &record, &[&self.call.name, &self.call.value]);
        Ok(Executed::storing((), record))
    }
}

impl Mutation for Scoped<calls::RemoveXattr> {
    type Reply = ();

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<()>> {
        if let Some(kind) = AclKind::of_name(&self.call.name) {
            return acls::set(files, &self.scope, (self.call.file, false), (kind, &[]));
        }
        let found = files.open_for(self.call.file, &self.scope.caller)?;
        check_set(&self.scope.caller, &found.attributes, &self.call.name, 0)?;
        if !remove(files.transaction, found.inode, &self.call.name)? {
            return Err(FsError::NoAttribute.into());
        }
        files.transaction.edit(found.inode)?.touch(self.scope.now);
        let record = RemoveXattrRecord {
            prefix: prefix(files.environment.volume, self.scope.now),
            file: reference(found.inode, found.state.generation),
            name_size: (self.call.name.len() as u16).into(),
            reserved: [0; 6],
        };
        let record = Record::new(KIND_REMOVE_XATTR, &record, &[&self.call.name]);
        Ok(Executed::freeing((), record))
    }
}

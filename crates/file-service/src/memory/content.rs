//! Operations on what one file holds: data, symbolic links' text, extended attributes.
//!
//! Invariants: as in `namespace`: everything is checked before anything changes.

use super::node::Content;
use super::volume::{Context, Volume, change};
use crate::permission::{self, MODE_READ, MODE_WRITE};
use crate::rules::acls::{self, AclChange, AclKind};
use crate::rules::attributes::{
    atime_is_due, check_has_data, check_range, mode_after_write, touch, touch_content,
};
use crate::rules::xattrs;
use crate::{
    Allocation, Attributes, FileHandle, FsError, NodeChange, ReadData, SeekTarget, XattrSetMode,
};

impl Volume {
    pub(super) fn read(
        &mut self,
        context: Context<'_>,
        file: FileHandle,
        offset: u64,
        count: u32,
    ) -> Result<ReadData, FsError> {
        let node = self.node_mut(file)?;
        check_has_data(&node.attributes)?;
        permission::check_data(context.caller, &node.attributes, MODE_READ)?;
        let count = count.min(context.limits.transfer_bytes_max);
        let size = node.attributes.size;
        let end = offset.saturating_add(u64::from(count)).min(size);
        let segments = node.data()?.read(offset.min(end), end);
        if count > 0 && atime_is_due(&node.attributes, context.now) {
            node.attributes.atime = context.now;
        }
        let attributes = Some(node.attributes.clone());
        let end_of_file = offset.saturating_add(u64::from(count)) >= size;
        Ok(ReadData { segments, end_of_file, attributes })
    }

    pub(super) fn write(
        &mut self,
        context: Context<'_>,
        file: FileHandle,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(u32, NodeChange), FsError> {
        let node = self.node(file)?;
        let before = node.attributes.clone();
        check_has_data(&before)?;
        permission::check_data(context.caller, &before, MODE_WRITE)?;
        let count = bytes.len().min(context.limits.transfer_bytes_max as usize);
        let bytes = bytes.get(..count).unwrap_or_default();
        let end = check_range(offset, count as u64, context.limits.file_bytes_max)?;
        if count == 0 {
            return Ok((0, change(&before, &before)));
        }
        self.check_room(node.data()?.missing_blocks(offset, end))?;
        let node = self.node_mut(file)?;
        node.data_mut()?.write(offset, bytes);
        node.attributes.size = before.size.max(end);
        self.content_changed(context, file);
        let after = change(&before, &self.known(file.inode).attributes);
        Ok((count as u32, after))
    }

    /// The side effects of a change of data.
    fn content_changed(&mut self, context: Context<'_>, file: FileHandle) {
        let node = self.known_mut(file.inode);
        node.attributes.mode = mode_after_write(context.caller, &node.attributes);
        node.xattrs.remove(xattrs::CAPABILITY);
        touch_content(&mut node.attributes, context.now);
        self.recount(file.inode);
    }

    pub(super) fn allocate(
        &mut self,
        context: Context<'_>,
        file: FileHandle,
        allocation: Allocation,
        (offset, length): (u64, u64),
    ) -> Result<NodeChange, FsError> {
        let node = self.node(file)?;
        let before = node.attributes.clone();
        check_has_data(&before)?;
        permission::check_data(context.caller, &before, MODE_WRITE)?;
        if length == 0 {
            return Err(FsError::Invalid);
        }
        let end = check_range(offset, length, context.limits.file_bytes_max)?;
        let keep_size = match allocation {
            Allocation::Reserve { keep_size } | Allocation::ZeroRange { keep_size } => {
                self.check_room(node.data()?.missing_blocks(offset, end))?;
                keep_size
            }
            Allocation::PunchHole => true,
        };
        let node = self.node_mut(file)?;
        node.data_mut()?.allocate(allocation, offset, end);
        if !keep_size {
            node.attributes.size = before.size.max(end);
        }
        self.content_changed(context, file);
        Ok(change(&before, &self.known(file.inode).attributes))
    }

    pub(super) fn seek(
        &self,
        context: Context<'_>,
        file: FileHandle,
        offset: u64,
        target: SeekTarget,
    ) -> Result<u64, FsError> {
        let node = self.node(file)?;
        check_has_data(&node.attributes)?;
        permission::check_data(context.caller, &node.attributes, MODE_READ)?;
        let size = node.attributes.size;
        let inside =
            (offset < size).then(|| node.data().map(|data| data.seek(offset, size, target)));
        inside.transpose()?.flatten().ok_or(FsError::NoSuchOffset)
    }

    pub(super) fn read_link(
        &mut self,
        context: Context<'_>,
        file: FileHandle,
    ) -> Result<(Vec<u8>, Attributes), FsError> {
        let node = self.node_mut(file)?;
        let Content::Symlink(text) = &node.content else { return Err(FsError::Invalid) };
        if atime_is_due(&node.attributes, context.now) {
            node.attributes.atime = context.now;
        }
        Ok((text.clone(), node.attributes.clone()))
    }

    pub(super) fn get_xattr(
        &self,
        context: Context<'_>,
        file: FileHandle,
        name: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        let node = self.node(file)?;
        xattrs::check_get(context.caller, &node.attributes, name)?;
        let found = match AclKind::of_name(name) {
            Some(kind) => node.acl(kind),
            None => node.xattrs.get(name).cloned(),
        };
        found.ok_or(FsError::NoAttribute)
    }

    pub(super) fn set_xattr(
        &mut self,
        context: Context<'_>,
        file: FileHandle,
        name: &[u8],
        value: &[u8],
        mode: XattrSetMode,
    ) -> Result<(), FsError> {
        let node = self.node_mut(file)?;
        xattrs::check_set(context.caller, &node.attributes, name, value.len())?;
        let there = node.xattrs.contains_key(name);
        match mode {
            XattrSetMode::Create if there => return Err(FsError::Exists),
            XattrSetMode::Replace if !there => return Err(FsError::NoAttribute),
            XattrSetMode::Either | XattrSetMode::Create | XattrSetMode::Replace => {}
        }
        if !there {
            let names_bytes = node.xattr_names().iter().map(|name| name.len() + 1).sum();
            xattrs::check_names_room(names_bytes, name)?;
        }
        node.xattrs.insert(name.to_vec(), value.to_vec());
        touch(&mut node.attributes, context.now);
        Ok(())
    }

    /// Sets an access control list, or removes it: an empty value.
    pub(super) fn set_acl(
        &mut self,
        context: Context<'_>,
        file: FileHandle,
        (kind, value): (AclKind, &[u8]),
        drops_setgid: bool,
    ) -> Result<(), FsError> {
        let node = self.node_mut(file)?;
        let caller = (context.caller, drops_setgid);
        let names_bytes = node.xattr_names().iter().map(|name| name.len() + 1).sum();
        let is_new = node.acl(kind).is_none();
        let check_room = || match is_new {
            true => xattrs::check_names_room(names_bytes, kind.name()),
            false => Ok(()),
        };
        match acls::changed(caller, &node.attributes, (kind, value), context.now)? {
            AclChange::Access(next) => {
                if next.acl.is_there() {
                    check_room()?;
                }
                node.attributes = next;
            }
            AclChange::Default(None, _) if node.default_acl.is_none() => {}
            AclChange::Default(list, next) => {
                if list.is_some() {
                    check_room()?;
                }
                (node.default_acl, node.attributes) = (list, next);
            }
            AclChange::Nothing => {}
        }
        Ok(())
    }

    pub(super) fn list_xattrs(
        &self,
        context: Context<'_>,
        file: FileHandle,
    ) -> Result<Vec<Vec<u8>>, FsError> {
        let names = self.node(file)?.xattr_names().into_iter();
        Ok(names.filter(|name| xattrs::is_listed(context.caller, name)).collect())
    }

    pub(super) fn remove_xattr(
        &mut self,
        context: Context<'_>,
        file: FileHandle,
        name: &[u8],
    ) -> Result<(), FsError> {
        let node = self.node_mut(file)?;
        xattrs::check_set(context.caller, &node.attributes, name, 0)?;
        node.xattrs.remove(name).ok_or(FsError::NoAttribute)?;
        touch(&mut node.attributes, context.now);
        Ok(())
    }
}

//! [`FileService`](crate::FileService) for [`MemoryFileSystem`]: finds the volume, asks it,
//! answers.

use super::MemoryFileSystem;
use super::volume::{Context, Volume, change};
use crate::calls::{self, Call, Done};
use crate::permission;
use crate::rules::acls::AclKind;
use crate::{Caller, CommitResult, FileHandle, FileSystemStatistics, FsError, Hold, WriteResult};
use std::collections::BTreeMap;
use units::{BLOCK_SIZE_U64, VolumeUuid};

/// Nothing is ever lost here.
const LOSSES: u64 = 0;

/// A call that is carried out on a volume.
trait OnVolume: Call {
    /// The volume that the call goes to.
    fn volume<'v>(
        &self,
        volumes: &'v mut BTreeMap<VolumeUuid, Volume>,
    ) -> Result<&'v mut Volume, FsError> {
        let file = self.file().ok_or(FsError::Stale)?;
        volumes.get_mut(&file.volume).ok_or(FsError::Stale)
    }

    fn on(self, volume: &mut Volume, context: Context<'_>) -> Result<Self::Reply, FsError>;
}

impl MemoryFileSystem {
    fn answer<C: OnVolume>(&self, caller: &Caller, call: C, done: Done<C::Reply>) {
        let context = Context { caller, now: self.clock.wall(), limits: self.limits };
        let answer = {
            let mut volumes = self.volumes.lock();
            let volume = call.volume(&mut volumes);
            volume.and_then(|volume| call.on(volume, context))
        };
        done(answer);
    }
}

impl_file_service! {
    MemoryFileSystem,
    limits: |service| service.limits,
    call: |service, caller, call, done| service.answer(caller, call, done),
}

/// # Errors
/// `CrossDevice` unless both lie in one volume.
fn check_same_volume(one: FileHandle, other: FileHandle) -> Result<(), FsError> {
    if one.volume == other.volume { Ok(()) } else { Err(FsError::CrossDevice) }
}

impl OnVolume for calls::Root {
    fn volume<'v>(
        &self,
        volumes: &'v mut BTreeMap<VolumeUuid, Volume>,
    ) -> Result<&'v mut Volume, FsError> {
        let found = volumes.values_mut().find(|volume| volume.name == self.name);
        found.ok_or(FsError::NotFound)
    }

    fn on(self, volume: &mut Volume, _: Context<'_>) -> Result<Self::Reply, FsError> {
        Ok(volume.root())
    }
}

macro_rules! on_volume {
    ($($name:ident: |$call:ident, $volume:ident, $context:pat_param| $answer:expr;)*) => {
        $(impl OnVolume for calls::$name {
            fn on(
                self,
                $volume: &mut Volume,
                $context: Context<'_>,
            ) -> Result<Self::Reply, FsError> {
                let $call = self;
                $answer
            }
        })*
    };
}

on_volume! {
    GetAttributes: |call, volume, _| Ok(volume.node(call.file)?.attributes.clone());
    SetFileAttributes: |call, volume, context| volume.set_attributes(context, call.file, &call.set);
    Access: |call, volume, context| {
        let attributes = volume.node(call.file)?.attributes.clone();
        Ok((permission::access_rights(context.caller, &attributes, call.wanted), attributes))
    };
    Lookup: |call, volume, context| volume.lookup(context, call.directory, &call.name);
    ReadLink: |call, volume, context| volume.read_link(context, call.file);
    Read: |call, volume, context| volume.read(context, call.file, call.offset, call.count);
    Write: |call, volume, context| {
        let (count, change) = volume.write(context, call.file, call.offset, &call.data)?;
        let verifier = super::WRITE_VERIFIER;
        Ok(WriteResult { count, stability: call.stability, verifier, change })
    };
    Append: |call, volume, context| {
        let size = volume.node(call.file)?.attributes.size;
        let (count, change) = volume.write(context, call.file, size, &call.data)?;
        let verifier = super::WRITE_VERIFIER;
        Ok(WriteResult { count, stability: call.stability, verifier, change })
    };
    Commit: |call, volume, _| {
        if call.known_losses.is_some_and(|known| known != LOSSES) {
            return Err(FsError::Io);
        }
        let attributes = &volume.node(call.file)?.attributes;
        let change = change(attributes, attributes);
        Ok(CommitResult { change, verifier: super::WRITE_VERIFIER })
    };
    SyncVolume: |_call, _volume, _| Ok(());
    Create: |call, volume, context| {
        volume.create(context, call.directory, &call.name, call.mode, &call.set)
    };
    MakeNode: |call, volume, context| {
        volume.make_node(context, call.directory, &call.name, call.node, &call.set)
    };
    CreateUnnamed: |call, volume, context| {
        let entry = volume.create_unnamed(context, call.directory, &call.set)?;
        let hold = Hold { file: entry.handle, losses: LOSSES };
        Ok((entry, hold))
    };
    Link: |call, volume, context| {
        check_same_volume(call.file, call.directory)?;
        volume.link(context, call.file, call.directory, &call.name)
    };
    Remove: |call, volume, context| volume.remove(context, (call.directory, &call.name));
    RemoveDirectory: |call, volume, context| {
        volume.remove_directory(context, (call.directory, &call.name))
    };
    Rename: |call, volume, context| {
        check_same_volume(call.from_directory, call.to_directory)?;
        let from = (call.from_directory, call.from_name.as_slice());
        volume.rename(context, from, (call.to_directory, &call.to_name), call.flags)
    };
    ReadDirectory: |call, volume, context| {
        let (cookie, most) = (call.cookie, call.entries_max);
        volume.read_directory(context, call.directory, cookie, most, call.with_attributes)
    };
    Statistics: |call, volume, _| {
        volume.node(call.file)?;
        let free_bytes = (volume.options.blocks_max - volume.used_blocks) * BLOCK_SIZE_U64;
        Ok(FileSystemStatistics {
            total_bytes: volume.options.blocks_max * BLOCK_SIZE_U64,
            free_bytes,
            available_bytes: free_bytes,
            total_files: volume.options.files_max,
            free_files: volume.options.files_max - volume.nodes.len() as u64,
        })
    };
    GetXattr: |call, volume, context| volume.get_xattr(context, call.file, &call.name);
    SetXattr: |call, volume, context| {
        match AclKind::of_name(&call.name) {
            None => volume.set_xattr(context, call.file, &call.name, &call.value, call.mode),
            Some(kind) => {
                volume.set_acl(context, call.file, (kind, &call.value), call.drops_setgid)
            }
        }
    };
    ListXattrs: |call, volume, context| volume.list_xattrs(context, call.file);
    RemoveXattr: |call, volume, context| match AclKind::of_name(&call.name) {
        None => volume.remove_xattr(context, call.file, &call.name),
        Some(kind) => volume.set_acl(context, call.file, (kind, &[]), false),
    };
    Allocate: |call, volume, context| {
        volume.allocate(context, call.file, call.allocation, (call.offset, call.length))
    };
    Seek: |call, volume, context| {
        volume.seek(context, call.file, call.offset, call.target)
    };
    HoldFile: |call, volume, _| {
        volume.node_mut(call.file)?.holds += 1;
        Ok(Hold { file: call.file, losses: LOSSES })
    };
    ReleaseHold: |call, volume, _| {
        let Hold { file, .. } = call.hold;
        let node = volume.node_mut(file)?;
        // A release without a hold is a front end's mistake, not a client's: crash in tests.
        assert!(node.holds > 0, "release without hold");
        node.holds -= 1;
        volume.reap(file.inode);
        Ok(())
    };
}

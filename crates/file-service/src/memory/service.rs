//! [`FileService`] for [`MemoryFileSystem`]: finds the volume, asks it, answers.

use super::MemoryFileSystem;
use super::volume::{Context, Volume, change};
use crate::permission;
use crate::{
    Allocation, Attributes, Caller, CreateMode, DirectoryPage, Done, Entry, FileHandle,
    FileService, FileSystemStatistics, FsError, Hold, Limits, NewNode, NodeChange, ReadData,
    RenameFlags, SeekTarget, SetAttributes, Stability, WriteResult, XattrSetMode,
};
use bytes::Bytes;
use units::BLOCK_SIZE_U64;

impl MemoryFileSystem {
    /// Runs `operation` on the volume of `file` and delivers what it says.
    fn answer<T>(
        &self,
        caller: &Caller,
        file: FileHandle,
        done: Done<T>,
        operation: impl FnOnce(&mut Volume, Context<'_>) -> Result<T, FsError>,
    ) {
        let context = Context { caller, now: self.clock.wall(), limits: self.limits };
        let result = {
            let mut volumes = self.volumes.lock();
            match volumes.get_mut(&file.volume) {
                Some(volume) if volume.file_system == file.file_system => {
                    operation(volume, context)
                }
                _ => Err(FsError::Stale),
            }
        };
        done(result);
    }
}

/// # Errors
/// `CrossDevice` unless both lie in one volume.
fn check_same_volume(one: FileHandle, other: FileHandle) -> Result<(), FsError> {
    let same = (one.file_system, one.volume) == (other.file_system, other.volume);
    if same { Ok(()) } else { Err(FsError::CrossDevice) }
}

impl FileService for MemoryFileSystem {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn write_verifier(&self) -> u64 {
        super::WRITE_VERIFIER
    }

    fn root(&self, name: &str, done: Done<Entry>) {
        let root = {
            let volumes = self.volumes.lock();
            volumes.values().find(|volume| volume.name == name).map(Volume::root)
        };
        done(root.ok_or(FsError::NotFound));
    }

    fn attributes(&self, file: FileHandle, done: Done<Attributes>) {
        self.answer(&Caller::root(), file, done, |volume, _| {
            Ok(volume.node(file)?.attributes.clone())
        });
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileHandle,
        set: SetAttributes,
        done: Done<NodeChange>,
    ) {
        self.answer(caller, file, done, |volume, context| {
            volume.set_attributes(context, file, &set)
        });
    }

    fn access(
        &self,
        caller: &Caller,
        file: FileHandle,
        wanted: u32,
        done: Done<(u32, Attributes)>,
    ) {
        self.answer(caller, file, done, |volume, context| {
            let attributes = volume.node(file)?.attributes.clone();
            Ok((permission::access_rights(context.caller, &attributes, wanted), attributes))
        });
    }

    fn lookup(&self, caller: &Caller, directory: FileHandle, name: &[u8], done: Done<Entry>) {
        self.answer(caller, directory, done, |volume, context| {
            volume.lookup(context, directory, name)
        });
    }

    fn read_link(&self, caller: &Caller, file: FileHandle, done: Done<(Vec<u8>, Attributes)>) {
        self.answer(caller, file, done, |volume, context| volume.read_link(context, file));
    }

    fn read(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        count: u32,
        done: Done<ReadData>,
    ) {
        self.answer(caller, file, done, |volume, context| {
            volume.read(context, file, offset, count)
        });
    }

    fn write(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        data: Bytes,
        stability: Stability,
        done: Done<WriteResult>,
    ) {
        self.answer(caller, file, done, |volume, context| {
            let (count, change) = volume.write(context, file, offset, &data)?;
            let verifier = super::WRITE_VERIFIER;
            Ok(WriteResult { count, stability, verifier, change })
        });
    }

    fn commit(&self, caller: &Caller, file: FileHandle, done: Done<NodeChange>) {
        self.answer(caller, file, done, |volume, _| {
            let attributes = &volume.node(file)?.attributes;
            Ok(change(attributes, attributes))
        });
    }

    fn create(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: CreateMode,
        set: SetAttributes,
        done: Done<(Entry, NodeChange)>,
    ) {
        self.answer(caller, directory, done, |volume, context| {
            volume.create(context, directory, name, mode, &set)
        });
    }

    fn make_node(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        node: NewNode,
        set: SetAttributes,
        done: Done<(Entry, NodeChange)>,
    ) {
        self.answer(caller, directory, done, |volume, context| {
            volume.make_node(context, directory, name, node, &set)
        });
    }

    fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
        done: Done<(Attributes, NodeChange)>,
    ) {
        self.answer(caller, directory, done, |volume, context| {
            check_same_volume(file, directory)?;
            volume.link(context, file, directory, name)
        });
    }

    fn remove(&self, caller: &Caller, directory: FileHandle, name: &[u8], done: Done<NodeChange>) {
        self.answer(caller, directory, done, |volume, context| {
            volume.remove(context, directory, name)
        });
    }

    fn remove_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        done: Done<NodeChange>,
    ) {
        self.answer(caller, directory, done, |volume, context| {
            volume.remove_directory(context, directory, name)
        });
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
        flags: RenameFlags,
        done: Done<(NodeChange, NodeChange)>,
    ) {
        self.answer(caller, from.0, done, |volume, context| {
            check_same_volume(from.0, to.0)?;
            volume.rename(context, from, to, flags)
        });
    }

    fn read_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        cookie: u64,
        entries_max: u32,
        with_attributes: bool,
        done: Done<DirectoryPage>,
    ) {
        self.answer(caller, directory, done, |volume, context| {
            volume.read_directory(context, directory, cookie, entries_max, with_attributes)
        });
    }

    fn statistics(&self, file: FileHandle, done: Done<FileSystemStatistics>) {
        self.answer(&Caller::root(), file, done, |volume, _| {
            volume.node(file)?;
            let free_blocks = volume.options.blocks_max - volume.used_blocks;
            let free_bytes = free_blocks * BLOCK_SIZE_U64;
            Ok(FileSystemStatistics {
                total_bytes: volume.options.blocks_max * BLOCK_SIZE_U64,
                free_bytes,
                available_bytes: free_bytes,
                total_files: volume.options.files_max,
                free_files: volume.options.files_max - volume.nodes.len() as u64,
            })
        });
    }

    fn get_xattr(&self, caller: &Caller, file: FileHandle, name: &[u8], done: Done<Vec<u8>>) {
        self.answer(caller, file, done, |volume, context| volume.get_xattr(context, file, name));
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &[u8],
        value: &[u8],
        mode: XattrSetMode,
        done: Done<()>,
    ) {
        self.answer(caller, file, done, |volume, context| {
            volume.set_xattr(context, file, name, value, mode)
        });
    }

    fn list_xattrs(&self, caller: &Caller, file: FileHandle, done: Done<Vec<Vec<u8>>>) {
        self.answer(caller, file, done, |volume, context| volume.list_xattrs(context, file));
    }

    fn remove_xattr(&self, caller: &Caller, file: FileHandle, name: &[u8], done: Done<()>) {
        self.answer(caller, file, done, |volume, context| volume.remove_xattr(context, file, name));
    }

    fn allocate(
        &self,
        caller: &Caller,
        file: FileHandle,
        allocation: Allocation,
        offset: u64,
        length: u64,
        done: Done<NodeChange>,
    ) {
        self.answer(caller, file, done, |volume, context| {
            volume.allocate(context, file, allocation, (offset, length))
        });
    }

    fn seek(&self, file: FileHandle, offset: u64, target: SeekTarget, done: Done<u64>) {
        self.answer(&Caller::root(), file, done, |volume, _| volume.seek(file, offset, target));
    }

    fn hold(&self, file: FileHandle, done: Done<Hold>) {
        self.answer(&Caller::root(), file, done, |volume, _| {
            volume.node_mut(file)?.holds += 1;
            Ok(Hold { file, losses: 0 })
        });
    }

    fn release(&self, Hold { file, .. }: Hold) {
        let ignored: Done<()> = Box::new(|_| {});
        self.answer(&Caller::root(), file, ignored, |volume, _| {
            let node = volume.node_mut(file)?;
            // A release without a hold is a front end's mistake, not a client's: crash in tests.
            assert!(node.holds > 0, "release without hold");
            node.holds -= 1;
            volume.reap(file.inode);
            Ok(())
        });
    }
}

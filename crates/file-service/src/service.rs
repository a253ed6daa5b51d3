//! The trait between front ends and backends.
//!
//! Names are bytes, 1 to 255 of them, without `/` and NUL; the backend refuses others with
//! `Invalid` or `NameTooLong`. `.` and `..` are names that `lookup` knows; `.snapshot` is known in
//! every directory, though no listing shows it.

use crate::{
    Allocation, Attributes, Caller, CreateMode, DirectoryPage, Entry, FileHandle,
    FileSystemStatistics, FsError, Hold, NewNode, NodeChange, ReadData, RenameFlags, SeekTarget,
    SetAttributes, Stability, WriteResult, XattrSetMode,
};
use bytes::Bytes;

/// Receives the answer of a call, once.
pub type Done<T> = Box<dyn FnOnce(Result<T, FsError>) + Send>;

/// Numbers that a front end tells its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest read or write in bytes.
    pub transfer_bytes_max: u32,
    /// Largest file in bytes.
    pub file_bytes_max: u64,
    /// Most links of a file.
    pub links_max: u32,
    /// Longest name in bytes.
    pub name_bytes_max: u32,
}

/// A file system, whole. See the crate's invariants.
pub trait FileService: Send + Sync {
    /// The limits of this service.
    fn limits(&self) -> Limits;

    /// A number that changes when unstable data may have been lost (the WRITE verifier).
    fn write_verifier(&self) -> u64;

    /// How often what was written to the file's file system, and not committed, may have been lost
    /// since the service started. A program that had the file open meanwhile must be told at its
    /// next commit: it cannot send the data again.
    fn losses(&self, file: &FileHandle) -> u64 {
        let _ = file;
        0
    }

    /// The root directory of the volume called `name`; `NotFound` if there is none online.
    fn root(&self, name: &str, done: Done<Entry>);

    /// A file's attributes.
    fn attributes(&self, file: FileHandle, done: Done<Attributes>);

    /// Changes attributes.
    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileHandle,
        set: SetAttributes,
        done: Done<NodeChange>,
    );

    /// Which of the [`crate::permission`] rights in `wanted` the caller has; with the attributes.
    fn access(&self, caller: &Caller, file: FileHandle, wanted: u32, done: Done<(u32, Attributes)>);

    /// The file that `name` in `directory` leads to.
    fn lookup(&self, caller: &Caller, directory: FileHandle, name: &[u8], done: Done<Entry>);

    /// A symbolic link's text.
    fn read_link(&self, caller: &Caller, file: FileHandle, done: Done<(Vec<u8>, Attributes)>);

    /// Up to `count` bytes from `offset`; fewer only at the end of the file or past
    /// [`Limits::transfer_bytes_max`].
    fn read(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        count: u32,
        done: Done<ReadData>,
    );

    /// Writes `data` at `offset`.
    fn write(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        data: Bytes,
        stability: Stability,
        done: Done<WriteResult>,
    );

    /// Makes all that was written to `file` durable; of a directory, all its changes.
    fn commit(&self, caller: &Caller, file: FileHandle, done: Done<NodeChange>);

    /// Makes a regular file, or finds it, as `mode` says. The entry and the directory's change.
    fn create(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: CreateMode,
        set: SetAttributes,
        done: Done<(Entry, NodeChange)>,
    );

    /// Makes a directory, symbolic link or special file. The entry and the directory's change.
    fn make_node(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        node: NewNode,
        set: SetAttributes,
        done: Done<(Entry, NodeChange)>,
    );

    /// Makes another name for `file`. The file's attributes and the directory's change.
    fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
        done: Done<(Attributes, NodeChange)>,
    );

    /// Removes the name of anything but a directory.
    fn remove(&self, caller: &Caller, directory: FileHandle, name: &[u8], done: Done<NodeChange>);

    /// Removes an empty directory.
    fn remove_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        done: Done<NodeChange>,
    );

    /// Moves a name; what has the new name is replaced, unless the flags say otherwise. The
    /// changes of the directory that was left and of the one that was entered.
    fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
        flags: RenameFlags,
        done: Done<(NodeChange, NodeChange)>,
    );

    /// Entries after `cookie` (0: from the start), at most `entries_max`, with handles and
    /// attributes if `with_attributes`. Cookies stay good while the directory changes.
    fn read_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        cookie: u64,
        entries_max: u32,
        with_attributes: bool,
        done: Done<DirectoryPage>,
    );

    /// Sizes of the file's volume.
    fn statistics(&self, file: FileHandle, done: Done<FileSystemStatistics>);

    /// An extended attribute's value.
    fn get_xattr(&self, caller: &Caller, file: FileHandle, name: &[u8], done: Done<Vec<u8>>);

    /// Sets an extended attribute; value at most 64 KiB.
    fn set_xattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &[u8],
        value: &[u8],
        mode: XattrSetMode,
        done: Done<()>,
    );

    /// The names of all extended attributes.
    fn list_xattrs(&self, caller: &Caller, file: FileHandle, done: Done<Vec<Vec<u8>>>);

    /// Removes an extended attribute.
    fn remove_xattr(&self, caller: &Caller, file: FileHandle, name: &[u8], done: Done<()>);

    /// fallocate.
    fn allocate(
        &self,
        caller: &Caller,
        file: FileHandle,
        allocation: Allocation,
        offset: u64,
        length: u64,
        done: Done<NodeChange>,
    );

    /// The offset of the next data or hole at or after `offset`.
    fn seek(&self, file: FileHandle, offset: u64, target: SeekTarget, done: Done<u64>);

    /// Keeps the file alive, though its last name be removed, until [`Self::release`] is called as
    /// often. Front ends with open files (FUSE) call it; NFS does not. A restore of a snapshot ends
    /// no hold of a file that the snapshot has.
    fn hold(&self, file: FileHandle, done: Done<Hold>);

    /// Ends a [`Self::hold`]. One whose file is gone, or that was lost with its aggregate
    /// ([`Self::losses`]), ends nothing.
    fn release(&self, hold: Hold);
}

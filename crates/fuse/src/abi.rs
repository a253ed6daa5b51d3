//! The FUSE protocol's structures and numbers, as the kernel has them (`linux/fuse.h`, 7.31 on).
//!
//! Invariants: host byte order; no implicit padding (asserted by `zerocopy`); sizes are asserted.
//! Only what this crate uses is here.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol's major version.
pub(crate) const MAJOR: u32 = 7;
/// The minor version that this crate speaks: what newer kernels add, it does not use.
pub(crate) const MINOR: u32 = 40;
/// Oldest minor version with everything that is used here (Linux 5.4); `INIT` fails below.
pub(crate) const MINOR_MIN: u32 = 31;
/// The root directory's node.
pub(crate) const ROOT_NODE: u64 = 1;

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $kind:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub $field: $kind),* }
        const _: () = assert!(size_of::<$name>() == $size);
    )* };
}

wire! {
    /// Begins every request.
    InHeader: 40 {
        length: u32, opcode: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32,
        extension_length: u16, padding: u16,
    }
    /// Begins every reply.
    OutHeader: 16 { length: u32, error: i32, unique: u64 }
    /// What [`NOTIFY_INVALIDATE_INODE`] is about; an offset below zero: attributes only; no length:
    /// to the end.
    InvalidateInodeOut: 24 { node: u64, offset: i64, length: i64 }
    InitIn: 16 { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    InitOut: 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_granularity: u32, max_pages: u16,
        map_alignment: u16, flags_high: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
    Attr: 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atime_nanoseconds: u32, mtime_nanoseconds: u32, ctime_nanoseconds: u32, mode: u32,
        links: u32, uid: u32, gid: u32, device: u32, block_size: u32, flags: u32,
    }
    EntryOut: 128 {
        node: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nanoseconds: u32, attr_valid_nanoseconds: u32, attr: Attr,
    }
    AttrOut: 104 { attr_valid: u64, attr_valid_nanoseconds: u32, padding: u32, attr: Attr }
    ForgetIn: 8 { lookups: u64 }
    BatchForgetIn: 8 { count: u32, padding: u32 }
    ForgetOne: 16 { node: u64, lookups: u64 }
    SetAttrIn: 88 {
        valid: u32, padding: u32, handle: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64, atime_nanoseconds: u32, mtime_nanoseconds: u32, ctime_nanoseconds: u32,
        mode: u32, unused_a: u32, uid: u32, gid: u32, unused_b: u32,
    }
    MakeNodeIn: 16 { mode: u32, device: u32, umask: u32, padding: u32 }
    MakeDirectoryIn: 8 { mode: u32, umask: u32 }
    RenameIn: 8 { new_directory: u64 }
    Rename2In: 16 { new_directory: u64, flags: u32, padding: u32 }
    LinkIn: 8 { old_node: u64 }
    OpenIn: 8 { flags: u32, open_flags: u32 }
    CreateIn: 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut: 16 { handle: u64, open_flags: u32, backing: u32 }
    ReadIn: 40 {
        handle: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteIn: 40 {
        handle: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteOut: 8 { size: u32, padding: u32 }
    FlushIn: 24 { handle: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReleaseIn: 24 { handle: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// A range of bytes, `end` included, with the sort of lock and whose it is.
    LockRange: 24 { start: u64, end: u64, kind: u32, process: u32 }
    LockIn: 48 { handle: u64, owner: u64, lock: LockRange, flags: u32, padding: u32 }
    LockOut: 24 { lock: LockRange }
    InterruptIn: 8 { unique: u64 }
    StatFsOut: 80 {
        blocks: u64, blocks_free: u64, blocks_available: u64, files: u64, files_free: u64,
        block_size: u32, name_length: u32, fragment_size: u32, padding: u32, spare: [u32; 6],
    }
    SetXattrIn: 8 { size: u32, flags: u32 }
    /// Follows [`SetXattrIn`] where that was agreed.
    SetXattrExtension: 8 { flags: u32, padding: u32 }
    GetXattrIn: 8 { size: u32, padding: u32 }
    GetXattrOut: 8 { size: u32, padding: u32 }
    AllocateIn: 32 { handle: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    SeekIn: 24 { handle: u64, offset: u64, whence: u32, padding: u32 }
    SeekOut: 8 { offset: u64 }
    DirEntry: 24 { ino: u64, offset: u64, name_length: u32, kind: u32 }
    StatxTime: 16 { seconds: i64, nanoseconds: u32, reserved: u32 }
    Statx: 256 {
        mask: u32, block_size: u32, attributes: u64, links: u32, uid: u32, gid: u32, mode: u16,
        spare_a: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime,
        btime: StatxTime, ctime: StatxTime, mtime: StatxTime, device_major: u32,
        device_minor: u32, file_system_major: u32, file_system_minor: u32, spare_b: [u64; 14],
    }
    StatxOut: 288 {
        attr_valid: u64, attr_valid_nanoseconds: u32, flags: u32, spare: [u64; 2], stat: Statx,
    }
    /// What [`NOTIFY_RETRIEVE`] asks the kernel to send in a request.
    RetrieveOut: 32 { unique: u64, node: u64, offset: u64, size: u32, padding: u32 }
    /// What is said of the request or reply in an entry of a ring, at [`RING_STATE_AT`].
    RingState: 32 { flags: u64, commit: u64, payload_bytes: u32, padding: u32, reserved: u64 }
    /// In the command that gives an entry to the kernel.
    RingCommand: 24 { flags: u64, commit: u64, queue: u16, padding: [u8; 6] }
}

/// Request kinds.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// [`OutHeader::error`] of a message that answers nothing: what the kernel knows of a file is old.
pub(crate) const NOTIFY_INVALIDATE_INODE: i32 = 2;
/// The same: the kernel is to send what it has of a file's content, in a request.
pub(crate) const NOTIFY_RETRIEVE: i32 = 5;

/// The first part of an entry of a ring has the header of a request or reply here, ...
pub(crate) const RING_HEADER_AT: usize = 0;
/// ... the arguments of a request that are no names and no data here, ...
pub(crate) const RING_ARGUMENTS_AT: usize = 128;
/// ... and this many of them at most; ...
pub(crate) const RING_ARGUMENTS_BYTES_MAX: usize = 128;
/// ... and [`RingState`] here.
pub(crate) const RING_STATE_AT: usize = RING_ARGUMENTS_AT + RING_ARGUMENTS_BYTES_MAX;
/// Bytes of the first part.
pub(crate) const RING_HEAD_BYTES: usize = RING_STATE_AT + size_of::<RingState>();

/// Commands of io_uring for `/dev/fuse`.
pub(crate) mod ring_command {
    /// A new entry, which waits for a request.
    pub(crate) const REGISTER: u32 = 1;
    /// An entry with the reply to its request, which waits for the next one.
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}

/// Features agreed in `INIT`: bits of `flags` and, from 32 on, of `flags_high`.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Bits of [`SetAttrIn::valid`].
pub(crate) mod set_attr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_PRIVILEGE: u32 = 1 << 11;
}

/// [`LockRange::kind`], the same on all Linux architectures that this runs on.
pub(crate) mod lock_kind {
    pub(crate) const READ: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const NONE: u32 = 2;
}

/// Bit of [`LockIn::flags`]: `flock`.
pub(crate) const LOCK_FLOCK: u32 = 1 << 0;
/// Bit of [`ReleaseIn::release_flags`]: the open file may have a `flock`.
pub(crate) const RELEASE_FLOCK: u32 = 1 << 1;
/// Bit of [`WriteIn::write_flags`]: what the page cache writes back, at the offset that it has.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// Bit of [`WriteIn::write_flags`]: the writer may not keep setuid and setgid.
pub(crate) const WRITE_KILL_PRIVILEGE: u32 = 1 << 2;
/// Bit of [`SetXattrExtension::flags`]: who sets an access control list may not keep setgid.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// Bit of [`OpenOut::open_flags`]: past the page cache.
pub(crate) const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// Bit of [`OpenOut::open_flags`]: direct writes to one file at the same time.
pub(crate) const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// Bits of `open(2)` flags, the same on all Linux architectures that this runs on.
pub(crate) const O_EXCL: u32 = 0o200;
pub(crate) const O_APPEND: u32 = 0o2000;
pub(crate) const O_DSYNC: u32 = 0o10000;
/// The part of an open's flags that says whether it is for reading, writing or both.
pub(crate) const O_ACCMODE: u32 = 3;
/// For reading only.
pub(crate) const O_RDONLY: u32 = 0;
/// `O_DIRECT` differs by architecture.
pub(crate) const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();

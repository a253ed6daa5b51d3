//! Conversions between the file service's types and the protocol's; pure.

use crate::abi::{Attr, DirEntry, EntryOut, Statx, StatxTime, set_attr};
use crate::abi::{SetAttrIn, StatFsOut};
use file_service::{
    Allocation, Attributes, FileKind, FileSystemStatistics, NewNode, RenameFlags, SetAttributes,
    SetTime, XattrSetMode,
};
use std::time::Duration;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, Timestamp};
use zerocopy::IntoBytes;

/// `st_blksize`: what programs take as the size of a good write. Unless the mount writes back, each
/// of them is one request, so it is larger than a block.
const PREFERRED_TRANSFER_BYTES: u32 = 64 << 10;
/// Bytes of the unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;
const PERMISSION_BITS: u32 = 0o7777;
const KIND_SHIFT: u32 = 12;
/// `STATX_BASIC_STATS | STATX_BTIME`.
const STATX_MASK: u32 = 0x0fff;

/// The bits of `S_IFMT`, shifted down: the `d_type` of a directory entry.
pub(crate) const fn kind_number(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 1,
        FileKind::CharacterDevice => 2,
        FileKind::Directory => 4,
        FileKind::BlockDevice => 6,
        FileKind::Regular => 8,
        FileKind::Symlink => 10,
        FileKind::Socket => 12,
    }
}

const fn full_mode(attributes: &Attributes) -> u32 {
    kind_number(attributes.kind) << KIND_SHIFT | (attributes.mode & PERMISSION_BITS)
}

/// Linux's 32-bit device number: 12 bits of major between 8 and 12 of minor.
const fn encode_device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

const fn decode_device(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, (device & 0xff) | (device >> 12 & 0xf_ff00))
}

/// What a MKNOD with `mode` makes; `Ok(None)` is a regular file.
pub(crate) const fn new_node(mode: u32, device: u32) -> Result<Option<NewNode>, ()> {
    let (major, minor) = decode_device(device);
    match mode >> KIND_SHIFT {
        0 | 8 => Ok(None),
        1 => Ok(Some(NewNode::Fifo)),
        2 => Ok(Some(NewNode::CharacterDevice(major, minor))),
        6 => Ok(Some(NewNode::BlockDevice(major, minor))),
        12 => Ok(Some(NewNode::Socket)),
        _ => Err(()),
    }
}

/// Seconds as the protocol carries them: the bits of a signed number.
const fn seconds(time: Timestamp) -> u64 {
    time.seconds().cast_unsigned()
}

fn time(seconds: u64, nanoseconds: u32) -> Timestamp {
    Timestamp::from_parts(seconds.cast_signed(), nanoseconds)
}

pub(crate) fn attr(ino: u64, attributes: &Attributes) -> Attr {
    Attr {
        ino,
        size: attributes.size,
        blocks: attributes.used.div_ceil(STAT_BLOCK_BYTES),
        atime: seconds(attributes.atime),
        mtime: seconds(attributes.mtime),
        ctime: seconds(attributes.ctime),
        atime_nanoseconds: attributes.atime.subsecond_nanoseconds(),
        mtime_nanoseconds: attributes.mtime.subsecond_nanoseconds(),
        ctime_nanoseconds: attributes.ctime.subsecond_nanoseconds(),
        mode: full_mode(attributes),
        links: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        device: encode_device(attributes.device),
        block_size: PREFERRED_TRANSFER_BYTES,
        flags: 0,
    }
}

pub(crate) fn statx(ino: u64, attributes: &Attributes) -> Statx {
    let time = |time: Timestamp| StatxTime {
        seconds: time.seconds(),
        nanoseconds: time.subsecond_nanoseconds(),
        reserved: 0,
    };
    Statx {
        mask: STATX_MASK,
        block_size: PREFERRED_TRANSFER_BYTES,
        links: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        mode: full_mode(attributes) as u16,
        ino,
        size: attributes.size,
        blocks: attributes.used.div_ceil(STAT_BLOCK_BYTES),
        atime: time(attributes.atime),
        btime: time(attributes.birth),
        ctime: time(attributes.ctime),
        mtime: time(attributes.mtime),
        device_major: attributes.device.0,
        device_minor: attributes.device.1,
        ..Statx::default()
    }
}

/// What a SETATTR changes. With a size, a time of "now" is left out: setting a size moves mtime by
/// itself, and who may do the one by an open file may lack the permission for the other.
pub(crate) fn set_attributes(request: &SetAttrIn) -> SetAttributes {
    let has = |bit: u32| request.valid & bit != 0;
    let set_time = |set: u32, now: u32, to: Timestamp| match (has(set), has(now)) {
        (false, _) => None,
        (true, true) => (!has(set_attr::SIZE)).then_some(SetTime::Now),
        (true, false) => Some(SetTime::To(to)),
    };
    let atime = time(request.atime, request.atime_nanoseconds);
    let mtime = time(request.mtime, request.mtime_nanoseconds);
    SetAttributes {
        mode: has(set_attr::MODE).then_some(request.mode & PERMISSION_BITS),
        uid: has(set_attr::UID).then_some(request.uid),
        gid: has(set_attr::GID).then_some(request.gid),
        size: has(set_attr::SIZE).then_some(request.size),
        atime: set_time(set_attr::ATIME, set_attr::ATIME_NOW, atime),
        mtime: set_time(set_attr::MTIME, set_attr::MTIME_NOW, mtime),
        guard: None,
    }
}

/// What fallocate's mode asks for.
pub(crate) const fn allocation(mode: u32) -> Option<Allocation> {
    const KEEP_SIZE: u32 = 1;
    const PUNCH_HOLE: u32 = 2;
    const ZERO_RANGE: u32 = 0x10;
    let keep_size = mode & KEEP_SIZE != 0;
    match mode & !KEEP_SIZE {
        0 => Some(Allocation::Reserve { keep_size }),
        ZERO_RANGE => Some(Allocation::ZeroRange { keep_size }),
        PUNCH_HOLE if keep_size => Some(Allocation::PunchHole),
        _ => None,
    }
}

/// What `renameat2`'s flags ask for; none if unknown ones are among them.
pub(crate) const fn rename_flags(flags: u32) -> Option<RenameFlags> {
    const NO_REPLACE: u32 = 1;
    const EXCHANGE: u32 = 2;
    if flags & !(NO_REPLACE | EXCHANGE) != 0 {
        return None;
    }
    Some(RenameFlags { no_replace: flags & NO_REPLACE != 0, exchange: flags & EXCHANGE != 0 })
}

pub(crate) const fn xattr_mode(flags: u32) -> Option<XattrSetMode> {
    match flags {
        0 => Some(XattrSetMode::Either),
        1 => Some(XattrSetMode::Create),
        2 => Some(XattrSetMode::Replace),
        _ => None,
    }
}

pub(crate) fn statistics(statistics: &FileSystemStatistics, name_length: u32) -> StatFsOut {
    StatFsOut {
        blocks: statistics.total_bytes / BLOCK_SIZE_U64,
        blocks_free: statistics.free_bytes / BLOCK_SIZE_U64,
        blocks_available: statistics.available_bytes / BLOCK_SIZE_U64,
        files: statistics.total_files,
        files_free: statistics.free_files,
        block_size: BLOCK_SIZE as u32,
        name_length,
        fragment_size: BLOCK_SIZE as u32,
        ..StatFsOut::default()
    }
}

/// How long the kernel may believe what it was told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Validity {
    pub seconds: u64,
    pub nanoseconds: u32,
}

impl From<Duration> for Validity {
    fn from(duration: Duration) -> Self {
        Self { seconds: duration.as_secs(), nanoseconds: duration.subsec_nanos() }
    }
}

/// An entry that says: there is no such name, and you may believe it for so long.
pub(crate) fn negative_entry(valid: Validity) -> EntryOut {
    EntryOut {
        entry_valid: valid.seconds,
        entry_valid_nanoseconds: valid.nanoseconds,
        ..EntryOut::default()
    }
}

pub(crate) fn entry(
    node: u64,
    ino: u64,
    generation: u32,
    attributes: &Attributes,
    valid: Validity,
) -> EntryOut {
    EntryOut {
        node,
        generation: u64::from(generation),
        entry_valid: valid.seconds,
        attr_valid: valid.seconds,
        entry_valid_nanoseconds: valid.nanoseconds,
        attr_valid_nanoseconds: valid.nanoseconds,
        attr: attr(ino, attributes),
    }
}

/// Directory entries as READDIR and READDIRPLUS answer them, up to a size.
pub(crate) struct DirectoryBuffer {
    bytes: Vec<u8>,
    bytes_max: usize,
}

const ENTRY_ALIGNMENT: usize = 8;

impl DirectoryBuffer {
    pub(crate) fn new(bytes_max: u32) -> Self {
        let bytes_max = bytes_max as usize;
        Self { bytes: Vec::with_capacity(bytes_max), bytes_max }
    }

    /// The most entries that can fit, names being what they are: 8 bytes or less.
    pub(crate) fn entries_max(bytes_max: u32, plus: bool) -> u32 {
        let head = if plus { size_of::<EntryOut>() } else { 0 };
        let entry = head + size_of::<DirEntry>() + ENTRY_ALIGNMENT;
        bytes_max / entry as u32 + 1
    }

    /// Whether an entry with a name of `name_bytes` fits.
    pub(crate) fn has_room(&self, name_bytes: usize, plus: bool) -> bool {
        let head = if plus { size_of::<EntryOut>() } else { 0 };
        let entry = (size_of::<DirEntry>() + name_bytes).next_multiple_of(ENTRY_ALIGNMENT);
        self.bytes.len() + head + entry <= self.bytes_max
    }

    /// Appends an entry that fits; `plus` comes before it in READDIRPLUS.
    pub(crate) fn push(&mut self, plus: Option<&EntryOut>, entry: DirEntry, name: &[u8]) {
        assert!(self.has_room(name.len(), plus.is_some()), "the caller asked for room");
        if let Some(plus) = plus {
            self.bytes.extend_from_slice(plus.as_bytes());
        }
        self.bytes.extend_from_slice(entry.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(self.bytes.len().next_multiple_of(ENTRY_ALIGNMENT), 0);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Names as LISTXATTR answers them: each with a NUL.
pub(crate) fn joined_names(names: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
    for name in names {
        bytes.extend_from_slice(name);
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests;

//! Records of operations, as the log holds them (decisions 10, 13; FlexVol section 2).
//!
//! A record is a fixed structure for its kind and then its variable part: names, text, data. It
//! carries what replay may not choose again: inode numbers, generations, times, and attributes as
//! they were decided, so that replay asks no permission. Every record begins with
//! [`OperationPrefix`], so that its volume is known without knowing its kind.
//!
//! Invariants: kinds are never used again ([`KINDS`] is append only); sizes of variable parts are
//! in the fixed structure, and nothing follows the last part.
//!
//! Fails: [`split`] gives [`Damage`] for bytes that are too short; nothing here panics on bytes.

use crate::damage::Damage;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Kinds of records, append only: number, name.
pub const KINDS: &[(u16, &str)] = &[
    (KIND_CREATE, "create"),
    (KIND_LINK, "link"),
    (KIND_REMOVE, "remove"),
    (KIND_RENAME, "rename"),
    (KIND_SET_ATTRIBUTES, "set attributes"),
    (KIND_WRITE, "write"),
    (KIND_COMMIT, "commit"),
    (KIND_ALLOCATE, "allocate"),
    (KIND_SET_XATTR, "set extended attribute"),
    (KIND_REMOVE_XATTR, "remove extended attribute"),
    (KIND_CREATE_UNNAMED, "create without a name"),
    (KIND_SET_ACL, "set access control list"),
    (KIND_MAKE_TREE, "make quota tree"),
];

/// A file of any kind is made: [`CreateRecord`], name, symbolic link's text, inherited lists.
pub const KIND_CREATE: u16 = 1;
/// A file gets another name: [`NameRecord`], name.
pub const KIND_LINK: u16 = 2;
/// A file or empty directory loses a name: [`NameRecord`], name.
pub const KIND_REMOVE: u16 = 3;
/// A name moves: [`RenameRecord`], old name, new name.
pub const KIND_RENAME: u16 = 4;
/// Attributes change, the size among them: [`SetAttributesRecord`].
pub const KIND_SET_ATTRIBUTES: u16 = 5;
/// Data is written: [`WriteRecord`], data.
pub const KIND_WRITE: u16 = 6;
/// Blocks that were written without a record: [`CommitRecord`], block numbers, blocks.
pub const KIND_COMMIT: u16 = 7;
/// A range is reserved, punched or zeroed: [`AllocateRecord`].
pub const KIND_ALLOCATE: u16 = 8;
/// An extended attribute is set: [`SetXattrRecord`], name, value.
pub const KIND_SET_XATTR: u16 = 9;
/// An extended attribute is removed: [`RemoveXattrRecord`], name.
pub const KIND_REMOVE_XATTR: u16 = 10;
/// A regular file is made without a name: [`CreateRecord`], with no name nor text; inherited lists.
/// Its directory is that of the quota tree which the file counts to, if it counts to one, without a
/// generation.
pub const KIND_CREATE_UNNAMED: u16 = 11;
/// An access control list is set or removed: [`SetAclRecord`], the list as it is stored.
pub const KIND_SET_ACL: u16 = 12;

/// An empty directory becomes a quota tree: [`TreeRecord`].
pub const KIND_MAKE_TREE: u16 = 13;

/// `flags`: the change dropped the file's `security.capability`.
pub const FLAG_DROPS_CAPABILITY: u32 = 1;

/// `action` of a rename: the new name was free.
pub const RENAME_MOVE: u8 = 1;
/// `action` of a rename: what had the new name was removed.
pub const RENAME_REPLACE: u8 = 2;
/// `action` of a rename: the names swapped.
pub const RENAME_EXCHANGE: u8 = 3;

/// `action` of an allocation: only the size may have changed.
pub const ALLOCATE_RESERVE: u8 = 1;
/// `action` of an allocation: the range reads as zeros now.
pub const ALLOCATE_ZERO: u8 = 2;

/// `list` of a set access control list: the access list.
pub const LIST_ACCESS: u8 = 1;
/// `list` of a set access control list: the default list.
pub const LIST_DEFAULT: u8 = 2;

/// What every record begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OperationPrefix {
    /// The volume.
    pub volume: U32,
    /// Reserved; zero.
    pub reserved: U32,
    /// When the operation happened, nanoseconds since the epoch.
    pub time: I64,
}

/// Names a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FileReference {
    /// Its inode; 0 for no file.
    pub inode: U64,
    /// Which of the inode's files.
    pub generation: U32,
    /// Reserved; zero.
    pub reserved: U32,
}

/// A file's attributes after an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FileState {
    /// Permission bits, 12 of them.
    pub mode: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Reserved; zero.
    pub reserved: U32,
    /// Length in bytes.
    pub size: U64,
    /// Time of last read.
    pub atime: I64,
    /// Time of last change of content.
    pub mtime: I64,
    /// Time of last change.
    pub ctime: I64,
    /// The change counter.
    pub change: U64,
}

/// See [`KIND_CREATE`] and [`KIND_CREATE_UNNAMED`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CreateRecord {
    /// Volume and time.
    pub prefix: OperationPrefix,
    /// The directory that got the entry.
    pub directory: FileReference,
    /// The new file.
    pub file: FileReference,
    /// Its attributes; their size is that of a regular file.
    pub state: FileState,
    /// Major device number.
    pub device_major: U32,
    /// Minor device number.
    pub device_minor: U32,
    /// Verifier of an exclusive create as the inode has it, or 0.
    pub create_verifier: U64,
    /// Of a directory: the key of its hash.
    pub hash_seed: [U64; 2],
    /// One of `inode::KIND_*`.
    pub kind: u8,
    /// Reserved; zero.
    pub reserved_a: u8,
    /// Bytes of the name.
    pub name_size: U16,
    /// Bytes of a symbolic link's text.
    pub text_size: U16,
    /// Bytes of the inherited access control lists, [`InheritedLists`] included; 0: none.
    pub lists_size: U16,
}

/// What begins the access control lists that a new file inherited: the access list follows, then
/// the default list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct InheritedLists {
    /// The file that holds them.
    pub holder: FileReference,
    /// Bytes of the access list; 0: none.
    pub access_size: U16,
    /// Bytes of the default list; 0: none.
    pub default_size: U16,
    /// Reserved; zero.
    pub reserved: U32,
}

/// See [`KIND_LINK`] and [`KIND_REMOVE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NameRecord {
    /// Volume and time.
    pub prefix: OperationPrefix,
    /// The directory.
    pub directory: FileReference,
    /// The file that the name leads to.
    pub file: FileReference,
    /// Bytes of the name.
    pub name_size: U16,
    /// Reserved; zero.
    pub reserved: [u8; 6],
}

/// See [`KIND_RENAME`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RenameRecord {
    /// Volume and time.
    pub prefix: OperationPrefix,
    /// The directory of the old name.
    pub from_directory: FileReference,
    /// The directory of the new name.
    pub to_directory: FileReference,
    /// The file that had the old name.
    pub source: FileReference,
    /// The file that had the new name, if any.
    pub target: FileReference,
    /// One of `RENAME_*`.
    pub action: u8,
    /// Reserved; zero.
    pub reserved_a: u8,
    /// Bytes of the old name.
    pub from_name_size: U16,
    /// Bytes of the new name.
    pub to_name_size: U16,
    /// Reserved; zero.
    pub reserved_b: U16,
}

/// See [`KIND_SET_ATTRIBUTES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SetAttributesRecord {
    /// Volume and time.
    pub prefix: OperationPrefix,
    /// The file.
    pub file: FileReference,
    /// Its attributes after the change.
    pub state: FileState,
    /// `FLAG_*`.
    pub flags: U32,
    /// Reserved; zero.
    pub reserved: U32,
}

/// See [`KIND_WRITE`]. Writes to different stripes of a file may be logged in another order than
/// they were decided in, so that what the record says commutes: sizes and counters are maxima, and
/// of the mode there is only what was cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct WriteRecord {
    /// Volume and time, which is the file's mtime and ctime.
    pub prefix: OperationPrefix,
    /// The file.
    pub file: FileReference,
    /// Where the data goes.
    pub offset: U64,
    /// The file's size, at least.
    pub size: U64,
    /// The change counter, at least.
    pub change: U64,
    /// Mode bits that the write cleared.
    pub mode_cleared: U32,
    /// Bytes of data.
    pub data_size: U32,
    /// `FLAG_*`.
    pub flags: U32,
    /// Reserved; zero.
    pub reserved: U32,
}

/// See [`KIND_COMMIT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CommitRecord {
    /// Volume and time.
    pub prefix: OperationPrefix,
    /// The file.
    pub file: FileReference,
    /// Its attributes at that moment.
    pub state: FileState,
    /// Blocks that follow: first all their numbers, 64 bits each, then the blocks.
    pub block_count: U32,
    /// Reserved; zero.
    pub reserved: U32,
}

/// See [`KIND_ALLOCATE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct AllocateRecord {
    /// Volume and time.
    pub prefix: OperationPrefix,
    /// The file.
    pub file: FileReference,
    /// Its attributes after the change.
    pub state: FileState,
    /// First byte of the range.
    pub start: U64,
    /// One past its last byte.
    pub end: U64,
    /// `FLAG_*`.
    pub flags: U32,
    /// One of `ALLOCATE_*`.
    pub action: u8,
    /// Reserved; zero.
    pub reserved: [u8; 3],
}

/// See [`KIND_SET_XATTR`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SetXattrRecord {
    /// Volume and time.
    pub prefix: OperationPrefix,
    /// The file.
    pub file: FileReference,
    /// The file that holds its extended attributes.
    pub holder: FileReference,
    /// Bytes of the value.
    pub value_size: U32,
    /// Bytes of the name.
    pub name_size: U16,
    /// Reserved; zero.
    pub reserved: U16,
}

/// See [`KIND_REMOVE_XATTR`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RemoveXattrRecord {
    /// Volume and time.
    pub prefix: OperationPrefix,
    /// The file.
    pub file: FileReference,
    /// Bytes of the name.
    pub name_size: U16,
    /// Reserved; zero.
    pub reserved: [u8; 6],
}

/// See [`KIND_SET_ACL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SetAclRecord {
    /// Volume and time.
    pub prefix: OperationPrefix,
    /// The file.
    pub file: FileReference,
    /// The file that holds its extended attributes; zeros if the list is removed.
    pub holder: FileReference,
    /// The file's permission bits after the change.
    pub mode: U32,
    /// Bytes of the list; 0: it is removed.
    pub value_size: U32,
    /// One of `LIST_*`.
    pub list: u8,
    /// Reserved; zero.
    pub reserved: [u8; 7],
    /// The file's change counter, at least.
    pub change: U64,
}

/// See [`KIND_MAKE_TREE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TreeRecord {
    /// Volume and time.
    pub prefix: OperationPrefix,
    /// The directory.
    pub directory: FileReference,
}

const _: () = {
    assert!(size_of::<OperationPrefix>() == 16);
    assert!(std::mem::offset_of!(OperationPrefix, volume) == 0);
    assert!(size_of::<FileReference>() == 16);
    assert!(size_of::<FileState>() == 56);
    assert!(size_of::<CreateRecord>() == 144);
    assert!(size_of::<NameRecord>() == 56);
    assert!(size_of::<RenameRecord>() == 88);
    assert!(size_of::<SetAttributesRecord>() == 96);
    assert!(size_of::<WriteRecord>() == 72);
    assert!(size_of::<CommitRecord>() == 96);
    assert!(size_of::<AllocateRecord>() == 112);
    assert!(size_of::<SetXattrRecord>() == 56);
    assert!(size_of::<RemoveXattrRecord>() == 40);
    assert!(size_of::<InheritedLists>() == 24);
    assert!(size_of::<SetAclRecord>() == 72);
    assert!(size_of::<TreeRecord>() == 32);
};

/// The fixed part of a record, or a part of that.
pub trait RecordPart: FromBytes + KnownLayout + Immutable {
    /// Whether every reserved byte is zero.
    fn is_reserved_zero(&self) -> bool;
}

macro_rules! record_parts {
    ($($part:ident: [$($field:ident),*], [$($zero:ident),*] $(, $flags:ident)?;)*) => {
        $(impl RecordPart for $part {
            fn is_reserved_zero(&self) -> bool {
                true $(&& self.$field.is_reserved_zero())*
                    $(&& self.$zero.as_bytes().iter().all(|byte| *byte == 0))*
                    $(&& self.$flags.get() & !FLAG_DROPS_CAPABILITY == 0)?
            }
        })*
    };
}

record_parts! {
    OperationPrefix: [], [reserved];
    FileReference: [], [reserved];
    FileState: [], [reserved];
    CreateRecord: [prefix, directory, file, state], [reserved_a];
    InheritedLists: [holder], [reserved];
    NameRecord: [prefix, directory, file], [reserved];
    RenameRecord: [prefix, from_directory, to_directory, source, target], [reserved_a, reserved_b];
    SetAttributesRecord: [prefix, file, state], [reserved], flags;
    WriteRecord: [prefix, file], [reserved], flags;
    CommitRecord: [prefix, file, state], [reserved];
    AllocateRecord: [prefix, file, state], [reserved], flags;
    SetXattrRecord: [prefix, file, holder], [reserved];
    RemoveXattrRecord: [prefix, file], [reserved];
    SetAclRecord: [prefix, file, holder], [reserved];
    TreeRecord: [prefix, directory], [];
}

/// The fixed part of a record and what follows it.
///
/// # Errors
/// [`Damage::Field`] if the bytes are too short for `structure`, [`Damage::Reserved`] if a newer
/// build wrote it.
pub fn split<'a, T: RecordPart>(
    body: &'a [u8],
    structure: &'static str,
) -> Result<(T, &'a [u8]), Damage> {
    let (part, rest) =
        T::read_from_prefix(body).map_err(|_| Damage::Field { structure, field: "size" })?;
    if part.is_reserved_zero() { Ok((part, rest)) } else { Err(Damage::Reserved { structure }) }
}

/// The volume of any record.
///
/// # Errors
/// [`Damage::Field`] if the bytes are too short for a record.
pub fn record_volume(body: &[u8]) -> Result<units::VolumeId, Damage> {
    let (prefix, _) = split::<OperationPrefix>(body, "operation")?;
    Ok(units::VolumeId(prefix.volume.get()))
}

/// The file of a record that is about the content or the attributes of one file; `None` for records
/// about names, and about extended attributes, which lie in a file of their own. An access control
/// list is about the file, although it lies there: who replays none must not serve the file.
#[must_use]
pub fn record_file(kind: u16, body: &[u8]) -> Option<(units::InodeNumber, units::Generation)> {
    let is_about_one = matches!(
        kind,
        KIND_SET_ATTRIBUTES | KIND_WRITE | KIND_COMMIT | KIND_ALLOCATE | KIND_SET_ACL
    );
    let (_, rest) = split::<OperationPrefix>(body, "operation").ok().filter(|_| is_about_one)?;
    let (file, _) = split::<FileReference>(rest, "operation").ok()?;
    let generation = units::Generation(file.generation.get());
    Some((units::InodeNumber(file.inode.get()), generation))
}

/// A record's kind in words.
#[must_use]
pub fn kind_name(kind: u16) -> &'static str {
    KINDS.iter().find(|known| known.0 == kind).map_or("unknown", |known| known.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_once() {
        for (index, (kind, name)) in KINDS.iter().enumerate() {
            assert_eq!(usize::from(*kind), index + 1, "{name}");
            assert_eq!(kind_name(*kind), *name);
        }
        assert_eq!(kind_name(0), "unknown");
    }

    #[test]
    fn short_bodies_are_damage() {
        assert!(record_volume(&[0; 15]).is_err());
        let mut body = [0; 16];
        body[0] = 7;
        assert_eq!(record_volume(&body), Ok(units::VolumeId(7)));
        assert!(split::<CreateRecord>(&[0; 143], "create").is_err());
        let (_, rest) = split::<NameRecord>(&[0; 60], "name").unwrap();
        assert_eq!(rest.len(), 4);
        for reserved in [4, 28, 44, 50, 55] {
            let mut newer = [0; 60];
            newer[reserved] = 1;
            let refused = split::<NameRecord>(&newer, "name");
            assert_eq!(refused, Err(Damage::Reserved { structure: "name" }), "byte {reserved}");
        }
        let mut write = <WriteRecord as zerocopy::FromZeros>::new_zeroed();
        for (flags, is_known) in [(FLAG_DROPS_CAPABILITY, true), (2, false), (1 << 31, false)] {
            write.flags.set(flags);
            let found = split::<WriteRecord>(write.as_bytes(), "write");
            assert_eq!(found.is_ok(), is_known, "flags {flags:#x}");
        }
    }
}

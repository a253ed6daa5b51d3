//! One call of the file service, as data: files are slots, names and callers are numbers of a small
//! domain, so that operations meet each other's files often.
//!
//! Invariants: an operation means the same on every service and in every run. What it needs of the
//! moment (the ctime for a guard, say) the executor finds out.

use bytes::Bytes;
use file_service::acl::{ACL_ACCESS, ACL_DEFAULT, Acl, Subject};
use file_service::rules::acls::AclKind;
use file_service::{
    Allocation, Caller, CreateMode, Durability, NewNode, RenameFlags, SeekTarget, SetAttributes,
    Stability, XattrSetMode,
};
use std::sync::Arc;

/// A place for a handle. Slot 0 is always the root directory; all begin as the root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u8);

/// How many slots there are.
pub const SLOT_COUNT: u8 = 16;
/// Slots from 1 to below this are where directories are put, those from it on other files.
pub const FILE_SLOT_FIRST: u8 = 6;

/// A name of the small domain: see [`Name::bytes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(pub u8);

/// Names below this are single letters.
pub const ORDINARY_NAMES: u8 = 8;
/// Names below this can be made.
pub const POSSIBLE_NAMES: u8 = 10;
/// How many names there are.
pub const NAME_COUNT: u8 = 16;
/// `.snapshot`: only ever made, because whether it can be looked up is the service's affair.
pub const SNAPSHOT_NAME: Name = Name(12);

impl Name {
    /// The name's bytes: letters; the longest name; one that is no UTF-8; then names that cannot be
    /// made.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        match self.0 {
            letter if letter < ORDINARY_NAMES => vec![b'a' + letter],
            8 => vec![b'x'; 255],
            9 => vec![0xff, 0xfe, b' '],
            10 => b".".to_vec(),
            11 => b"..".to_vec(),
            12 => b".snapshot".to_vec(),
            13 => vec![b'y'; 256],
            14 => b"a/b".to_vec(),
            _ => Vec::new(),
        }
    }
}

/// A caller of the small domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Who(pub u8);

/// How many callers there are.
pub const WHO_COUNT: u8 = 4;
/// Owners and groups that operations set.
pub const UIDS: [u32; 4] = [0, 1000, 1001, 1002];
/// Groups that operations set.
pub const GIDS: [u32; 4] = [0, 100, 200, 300];

impl Who {
    /// Root.
    pub const ROOT: Self = Self(0);

    /// The caller: root; two users of group 100, the first also in 200; a stranger.
    #[must_use]
    pub fn caller(self, durability: Durability) -> Caller {
        let (uid, gid, groups): (u32, u32, Arc<[u32]>) = match self.0 {
            0 => (0, 0, Arc::new([])),
            1 => (1000, 100, Arc::new([200])),
            2 => (1001, 100, Arc::new([])),
            _ => (1002, 300, Arc::new([])),
        };
        // What is ordered comes from programs with open files, as of a FUSE mount.
        let has_opened = durability == Durability::Ordered;
        Caller { uid, gid, groups, durability, has_opened, umask: 0 }
    }
}

/// The guard of a SETATTR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// None.
    Absent,
    /// The ctime that the file has.
    Matching,
    /// One that no file has.
    Wrong,
}

/// What is done to the volume's snapshots: a matter of management, not of the file service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotAction {
    /// Makes the snapshot of this number.
    Create(u8),
    /// Deletes it.
    Delete(u8),
    /// Takes the volume back to it; later snapshots are gone.
    Restore(u8),
}

/// How many snapshots operations know.
pub const SNAPSHOT_COUNT: u8 = 3;

/// The bytes of a write: made from a number, so that an operation is small and prints well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// Bytes.
    pub length: u32,
    /// Which bytes; 0 makes zeros.
    pub seed: u16,
}

impl Fill {
    /// The bytes.
    #[must_use]
    pub fn bytes(self) -> Bytes {
        if self.seed == 0 {
            return Bytes::from(vec![0; self.length as usize]);
        }
        let mut bytes = Vec::with_capacity(self.length as usize + 8);
        let mut word = u64::from(self.seed);
        while bytes.len() < self.length as usize {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.extend_from_slice(&(word ^ (word >> 32)).to_le_bytes());
        }
        bytes.truncate(self.length as usize);
        Bytes::from(bytes)
    }
}

/// One call. Fields mean what the arguments of `FileService` mean.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are the arguments of the calls of `FileService`")]
pub enum Operation {
    /// `attributes`
    Attributes { file: Slot },
    /// `set_attributes`
    SetAttributes { who: Who, file: Slot, set: SetAttributes, guard: Guard },
    /// `access`
    Access { who: Who, file: Slot, wanted: u32 },
    /// `lookup`; the file found goes `into` a slot.
    Lookup { who: Who, directory: Slot, name: Name, into: Slot },
    /// `read_link`
    ReadLink { who: Who, file: Slot },
    /// `read`
    Read { who: Who, file: Slot, offset: u64, count: u32 },
    /// `write`
    Write { who: Who, file: Slot, offset: u64, fill: Fill, stability: Stability },
    /// `append`
    Append { who: Who, file: Slot, fill: Fill, stability: Stability },
    /// `commit`
    Commit { who: Who, file: Slot },
    /// `create`
    Create {
        who: Who,
        directory: Slot,
        name: Name,
        mode: CreateMode,
        set: SetAttributes,
        into: Slot,
    },
    /// `make_node`
    MakeNode {
        who: Who,
        directory: Slot,
        name: Name,
        node: NewNode,
        set: SetAttributes,
        into: Slot,
    },
    /// `create_unnamed`; the executor remembers the hold, and the file goes `into` a slot.
    CreateUnnamed { who: Who, directory: Slot, set: SetAttributes, into: Slot },
    /// `link`
    Link { who: Who, file: Slot, directory: Slot, name: Name },
    /// `remove`
    Remove { who: Who, directory: Slot, name: Name },
    /// `remove_directory`
    RemoveDirectory { who: Who, directory: Slot, name: Name },
    /// `rename`
    Rename { who: Who, from: (Slot, Name), to: (Slot, Name), flags: RenameFlags },
    /// `read_directory`, page after page to the end.
    ReadDirectory { who: Who, directory: Slot, page_entries: u32, with_attributes: bool },
    /// `statistics`
    Statistics { file: Slot },
    /// `get_xattr`
    GetXattr { who: Who, file: Slot, name: u8 },
    /// `set_xattr`
    SetXattr { who: Who, file: Slot, name: u8, value: Fill, mode: XattrSetMode },
    /// `list_xattrs`
    ListXattrs { who: Who, file: Slot },
    /// `remove_xattr`
    RemoveXattr { who: Who, file: Slot, name: u8 },
    /// `allocate`
    Allocate { who: Who, file: Slot, allocation: Allocation, offset: u64, length: u64 },
    /// `seek`
    Seek { file: Slot, offset: u64, target: SeekTarget },
    /// `hold`; the executor remembers it, so that each is released once at most.
    Hold { file: Slot },
    /// `release`, if the file is held.
    Release { file: Slot },
    /// A snapshot is made, deleted or restored, by a [`crate::Subject`].
    Snapshot(SnapshotAction),
}

/// How many of [`XATTR_NAMES`] can be, from the first on.
pub const XATTR_NAMES_GOOD: u8 = 6;
/// Extended attributes of the small domain, one of each namespace, and two that cannot be.
pub const XATTR_NAMES: [&[u8]; 8] = [
    b"user.a",
    b"user.b",
    b"trusted.t",
    b"security.capability",
    ACL_ACCESS,
    ACL_DEFAULT,
    b"unknown.x",
    b"user.",
];

impl Operation {
    /// Whether the operation can change what lasts.
    #[must_use]
    pub fn is_mutation(&self) -> bool {
        match self {
            Self::SetAttributes { .. }
            | Self::Write { .. }
            | Self::Append { .. }
            | Self::Create { .. }
            | Self::MakeNode { .. }
            | Self::CreateUnnamed { .. }
            | Self::Link { .. }
            | Self::Remove { .. }
            | Self::RemoveDirectory { .. }
            | Self::Rename { .. }
            | Self::SetXattr { .. }
            | Self::RemoveXattr { .. }
            | Self::Allocate { .. }
            | Self::Snapshot(_) => true,
            Self::Attributes { .. }
            | Self::Access { .. }
            | Self::Lookup { .. }
            | Self::ReadLink { .. }
            | Self::Read { .. }
            | Self::Commit { .. }
            | Self::ReadDirectory { .. }
            | Self::Statistics { .. }
            | Self::GetXattr { .. }
            | Self::ListXattrs { .. }
            | Self::Seek { .. }
            | Self::Hold { .. }
            | Self::Release { .. } => false,
        }
    }

    /// The same with `count` bytes to write at most: a service may write fewer than it is given.
    #[must_use]
    pub fn writing_at_most(mut self, count: u32) -> Self {
        if let Self::Write { fill, .. } | Self::Append { fill, .. } = &mut self {
            fill.length = fill.length.min(count);
        }
        self
    }
}

/// The value for an extended attribute: of an access control list mostly one that can be.
#[must_use]
pub fn xattr_value(number: u8, fill: Fill) -> Bytes {
    if AclKind::of_name(xattr_name(number)).is_none() || fill.length == 5 {
        return fill.bytes();
    }
    // Permissions and identities out of the bits of a number, those of callers among them.
    let mut bits = u64::from(fill.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7;
    let mut draw = |below: u64| {
        let drawn = bits % below;
        bits /= below;
        drawn
    };
    let mut subjects = vec![Subject::Owner, Subject::Group, Subject::Other];
    if draw(8) > 0 {
        subjects.push(Subject::Mask);
        let users = [1000, 1001, 1002].map(Subject::User).into_iter();
        let groups = [100, 200, 300].map(Subject::NamedGroup);
        subjects.extend(users.chain(groups).filter(|_| draw(3) == 0));
    }
    // More is allowed than not, or nothing would happen.
    let entries = subjects.into_iter().map(|one| (one, [7, 7, 6, 5, 4, 3, 1, 0][draw(8) as usize]));
    Acl::new(entries).map_or_else(Bytes::new, |list| Bytes::from(list.value()))
}

/// The name of an extended attribute of the small domain.
#[must_use]
pub fn xattr_name(number: u8) -> &'static [u8] {
    XATTR_NAMES.get(usize::from(number)).copied().unwrap_or(b"user.a")
}

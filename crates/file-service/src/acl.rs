//! Access control lists (POSIX 1003.1e draft 17, as Linux has them): what they say, what of them is
//! in the mode, what a new file inherits.
//!
//! A file with an access list has the mask in its mode where the group's bits are else. What the
//! list says of owner, mask and others *is* the mode, so a list is kept without them: as the
//! [`GroupClass`], the entries of named users and of all groups. A change of the mode changes the
//! list so, and needs not touch it. A list that says no more than a mode can is a mode.
//!
//! Invariants: a list has each subject once, owner, owning group and others always, and a mask
//! where it names anybody; a group class always has the owning group.
//!
//! Fails: `Invalid`, `AttributeTooLarge` for what a client sends; no bytes panic.

use crate::{Caller, FsError};
use ondisk::acl::{
    self, ACL_ENTRIES_MAX, ACL_NO_ID, AclEntry, TAG_GROUP, TAG_MASK, TAG_NAMED_GROUP, TAG_OTHER,
    TAG_OWNER, TAG_USER,
};
use ondisk::damage::Damage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

pub use ondisk::acl::{ACL_ACCESS, ACL_DEFAULT};

/// Whom an entry is about, in the order of entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Subject {
    /// The owner.
    Owner,
    /// A user by name.
    User(u32),
    /// The owning group.
    Group,
    /// A group by name.
    NamedGroup(u32),
    /// What named users and all groups may do at most.
    Mask,
    /// Everybody else.
    Other,
}

impl Subject {
    /// Its tag and identity in a value.
    #[must_use]
    pub const fn tag(self) -> (u16, u32) {
        match self {
            Self::Owner => (TAG_OWNER, ACL_NO_ID),
            Self::User(id) => (TAG_USER, id),
            Self::Group => (TAG_GROUP, ACL_NO_ID),
            Self::NamedGroup(id) => (TAG_NAMED_GROUP, id),
            Self::Mask => (TAG_MASK, ACL_NO_ID),
            Self::Other => (TAG_OTHER, ACL_NO_ID),
        }
    }

    /// Whom a tag and an identity mean; an identity that does not matter is passed over.
    #[must_use]
    pub const fn of_tag(tag: u16, id: u32) -> Option<Self> {
        match tag {
            TAG_OWNER => Some(Self::Owner),
            TAG_USER if id != ACL_NO_ID => Some(Self::User(id)),
            TAG_GROUP => Some(Self::Group),
            TAG_NAMED_GROUP if id != ACL_NO_ID => Some(Self::NamedGroup(id)),
            TAG_MASK => Some(Self::Mask),
            TAG_OTHER => Some(Self::Other),
            _ => None,
        }
    }

    const fn is_named(self) -> bool {
        matches!(self, Self::User(_) | Self::NamedGroup(_))
    }

    const fn is_of_mode(self) -> bool {
        matches!(self, Self::Owner | Self::Mask | Self::Other)
    }
}

type Entries = BTreeMap<Subject, u8>;

fn encode(entries: &Entries) -> Vec<u8> {
    acl::encode(entries.iter().map(|(subject, permissions)| {
        let (tag, id) = subject.tag();
        AclEntry { tag: tag.into(), permissions: u16::from(*permissions).into(), id: id.into() }
    }))
}

fn decode(entries: &[AclEntry]) -> Option<Entries> {
    let mut decoded = Entries::new();
    for entry in entries {
        let permissions = u8::try_from(entry.permissions.get()).ok().filter(|bits| *bits <= 7)?;
        let twice = decoded.insert(Subject::of_tag(entry.tag.get(), entry.id.get())?, permissions);
        if twice.is_some() {
            return None;
        }
    }
    Some(decoded)
}

/// What a stored list is that passed the format's check and cannot be one.
const UNFIT: Damage = Damage::Field { structure: "access control list", field: "entry" };

/// A list with all its entries: a default list, or an access list as clients see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl(Entries);

impl Acl {
    /// The list in a value that a client sets, in whatever order; `None` for one without entries,
    /// which removes the list that is there.
    ///
    /// # Errors
    /// `Invalid`, `AttributeTooLarge`.
    pub fn parse(value: &[u8]) -> Result<Option<Self>, FsError> {
        if value.is_empty() {
            return Ok(None);
        }
        if value.len() > size_of::<u32>() + ACL_ENTRIES_MAX * size_of::<AclEntry>() {
            return Err(FsError::AttributeTooLarge);
        }
        let entries = acl::split(value).map_err(|_| FsError::Invalid)?;
        if entries.is_empty() {
            return Ok(None);
        }
        let list = Self(decode(entries).ok_or(FsError::Invalid)?);
        if !list.is_valid() {
            return Err(FsError::Invalid);
        }
        // Room for the mask that a file with a list has.
        let fits = list.0.contains_key(&Subject::Mask) || list.0.len() < ACL_ENTRIES_MAX;
        if fits { Ok(Some(list)) } else { Err(FsError::AttributeTooLarge) }
    }

    /// A list of these entries; none if it cannot be one.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = (Subject, u8)>) -> Option<Self> {
        let list = Self(entries.into_iter().collect());
        let is_right = list.is_valid() && list.0.values().all(|bits| *bits <= 7);
        is_right.then_some(list)
    }

    /// Its entries, in order.
    pub fn entries(&self) -> impl Iterator<Item = (Subject, u8)> + '_ {
        self.0.iter().map(|(subject, permissions)| (*subject, *permissions))
    }

    fn is_valid(&self) -> bool {
        let has = |subject| self.0.contains_key(&subject);
        let needs_mask = self.0.keys().any(|subject| subject.is_named());
        has(Subject::Owner)
            && has(Subject::Group)
            && has(Subject::Other)
            && (has(Subject::Mask) || !needs_mask)
    }

    /// A stored default list.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_default(stored: &[u8]) -> Result<Self, Damage> {
        decode(acl::parse_default(stored)?).map(Self).ok_or(UNFIT)
    }

    /// The access list of a file with this mode.
    #[must_use]
    pub fn of_access(mode: u32, class: &GroupClass) -> Self {
        let mut entries = class.0.clone();
        for (subject, shift) in [(Subject::Owner, 6), (Subject::Mask, 3), (Subject::Other, 0)] {
            entries.insert(subject, (mode >> shift & 7) as u8);
        }
        Self(entries)
    }

    /// The value: what clients see, and how a default list is stored.
    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        encode(&self.0)
    }

    fn of(&self, subject: Subject) -> u32 {
        u32::from(self.0.get(&subject).copied().unwrap_or(0))
    }

    /// The permission bits (9) of a file that has this as its access list, and what of the list is
    /// not in them.
    #[must_use]
    pub fn into_access(self) -> (u32, Option<GroupClass>) {
        let mask = if self.0.contains_key(&Subject::Mask) { Subject::Mask } else { Subject::Group };
        let mode = self.of(Subject::Owner) << 6 | self.of(mask) << 3 | self.of(Subject::Other);
        let is_more = mask == Subject::Mask;
        let mut entries = self.0;
        entries.retain(|subject, _| !subject.is_of_mode());
        (mode, is_more.then_some(GroupClass(entries)))
    }

    /// What a file inherits that is made with `mode` in a directory with this default list: its
    /// mode, where nothing is allowed that `mode` does not allow, and its access list.
    #[must_use]
    pub fn inherited(&self, mode: u32) -> (u32, Option<GroupClass>) {
        let (allowed, class) = self.clone().into_access();
        (mode & (allowed | !0o777), class)
    }
}

/// What an access list says beside the mode: of named users, of the owning group, of named groups.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupClass(Entries);

impl GroupClass {
    /// As it is stored.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_stored(stored: &[u8]) -> Result<Self, Damage> {
        decode(acl::parse_access(stored)?).map(Self).ok_or(UNFIT)
    }

    /// What is stored.
    #[must_use]
    pub fn stored(&self) -> Vec<u8> {
        encode(&self.0)
    }

    /// Whether `caller`, who is neither root nor the owner, has all `wanted` bits on a file with
    /// this mode and group. One entry must grant them all: that of the caller's user, or else one
    /// of the caller's groups; who has none is as others.
    pub(crate) fn permits(
        &self,
        caller: &Caller,
        (mode, owning_group): (u32, u32),
        wanted: u32,
    ) -> bool {
        let mask = mode >> 3 & 7;
        let grants = |permissions: u8| u32::from(permissions) & mask & wanted == wanted;
        if let Some(permissions) = self.0.get(&Subject::User(caller.uid)) {
            return grants(*permissions);
        }
        let mut is_member = false;
        for (subject, permissions) in &self.0 {
            let group = match subject {
                Subject::Group => owning_group,
                Subject::NamedGroup(group) => *group,
                Subject::Owner | Subject::User(_) | Subject::Mask | Subject::Other => continue,
            };
            if caller.is_member_of(group) {
                is_member = true;
                if grants(*permissions) {
                    return true;
                }
            }
        }
        !is_member && mode & wanted == wanted
    }
}

/// Whether a file has an access list, and what it says.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum AccessList {
    /// It has none: the mode says all.
    #[default]
    None,
    /// It has one, which was not read: nobody is permitted anything but root and the owner.
    Unread,
    /// It has this.
    Read(Arc<GroupClass>),
}

impl From<Option<GroupClass>> for AccessList {
    /// One that was read.
    fn from(class: Option<GroupClass>) -> Self {
        class.map_or(Self::None, |class| Self::Read(Arc::new(class)))
    }
}

impl AccessList {
    /// What is told of it to many: that there is one.
    #[must_use]
    pub const fn unread(&self) -> Self {
        if self.is_there() { Self::Unread } else { Self::None }
    }

    /// Whether there is one.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        !matches!(self, Self::None)
    }
}

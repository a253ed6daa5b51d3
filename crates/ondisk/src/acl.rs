//! Access control lists as values of extended attributes: those that Linux gives and takes
//! (`system.posix_acl_access`, version 2), and what of them is stored.
//!
//! What an access list says of the owner, of the mask and of others is in the mode, and only there.
//! So a list that is stored has the rest: the entry of the owning group, and those of named users
//! and groups. A change of the mode leaves it as it is. A default list is stored whole.
//!
//! Invariants: entries of a stored list ascend strictly by tag and identity; permissions are `rwx`
//! bits; an entry without an identity has [`ACL_NO_ID`], and no other has it.
//!
//! Fails: [`parse_access`] and [`parse_default`] name the field that is wrong; no bytes panic.

use crate::damage::Damage;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The attribute that is a file's access list.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that is the list which files inherit that are made in a directory.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// First word of a value.
pub const ACL_VERSION: u32 = 2;
/// Most entries, so that a value fits a page: Linux asks for no more over FUSE.
pub const ACL_ENTRIES_MAX: usize = 511;
/// `id` of an entry that names nobody.
pub const ACL_NO_ID: u32 = u32::MAX;

/// `tag` of what the owner may do.
pub const TAG_OWNER: u16 = 1;
/// `tag` of what a named user may do.
pub const TAG_USER: u16 = 2;
/// `tag` of what the owning group may do.
pub const TAG_GROUP: u16 = 4;
/// `tag` of what a named group may do.
pub const TAG_NAMED_GROUP: u16 = 8;
/// `tag` of what named users and all groups may do at most.
pub const TAG_MASK: u16 = 16;
/// `tag` of what all others may do.
pub const TAG_OTHER: u16 = 32;

const STRUCTURE: &str = "access control list";

/// An entry.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AclEntry {
    /// One of `TAG_*`.
    pub tag: U16,
    /// `rwx` bits.
    pub permissions: U16,
    /// A user or a group, or [`ACL_NO_ID`].
    pub id: U32,
}

const _: () = assert!(size_of::<AclEntry>() == 8);

impl AclEntry {
    /// Whether its tag goes with a user or a group.
    #[must_use]
    pub fn is_named(&self) -> bool {
        matches!(self.tag.get(), TAG_USER | TAG_NAMED_GROUP)
    }

    fn place(&self) -> (u16, u32) {
        (self.tag.get(), self.id.get())
    }

    fn is_right(&self) -> bool {
        let has_id = self.id.get() != ACL_NO_ID;
        let is_tag = matches!(
            self.tag.get(),
            TAG_OWNER | TAG_USER | TAG_GROUP | TAG_NAMED_GROUP | TAG_MASK | TAG_OTHER
        );
        is_tag && self.permissions.get() <= 7 && has_id == self.is_named()
    }
}

/// The value of entries.
#[must_use]
pub fn encode(entries: impl IntoIterator<Item = AclEntry>) -> Vec<u8> {
    let mut bytes = ACL_VERSION.to_le_bytes().to_vec();
    entries.into_iter().for_each(|entry| bytes.extend_from_slice(entry.as_bytes()));
    bytes
}

/// The entries of a value, in whatever order and whatever they say.
///
/// # Errors
/// For what is no value of version 2, or has more than [`ACL_ENTRIES_MAX`] entries.
pub fn split(bytes: &[u8]) -> Result<&[AclEntry], Damage> {
    let wrong = |field| Damage::Field { structure: STRUCTURE, field };
    let (version, rest) = U32::read_from_prefix(bytes).map_err(|_| wrong("version"))?;
    if version.get() != ACL_VERSION {
        return Err(wrong("version"));
    }
    let entries = <[AclEntry]>::ref_from_bytes(rest).map_err(|_| wrong("size"))?;
    if entries.len() > ACL_ENTRIES_MAX { Err(wrong("size")) } else { Ok(entries) }
}

/// The entries of an access list as it is stored.
///
/// # Errors
/// The damage of the value.
pub fn parse_access(bytes: &[u8]) -> Result<&[AclEntry], Damage> {
    let entries = ordered(bytes)?;
    let is_of_mode = |tag| matches!(tag, TAG_OWNER | TAG_MASK | TAG_OTHER);
    if count(entries, TAG_GROUP) != 1 || entries.iter().any(|entry| is_of_mode(entry.tag.get())) {
        return Err(Damage::Field { structure: STRUCTURE, field: "tag" });
    }
    // With what the mode says it must fit a page.
    if entries.len() + 3 > ACL_ENTRIES_MAX {
        return Err(Damage::Field { structure: STRUCTURE, field: "size" });
    }
    Ok(entries)
}

/// What clients see of a stored access list, of a file with this mode.
///
/// # Errors
/// As [`parse_access`].
pub fn value_shown(mode: u16, stored: &[u8]) -> Result<Vec<u8>, Damage> {
    let mut entries = parse_access(stored)?.to_vec();
    for (tag, shift) in [(TAG_OWNER, 6), (TAG_MASK, 3), (TAG_OTHER, 0)] {
        let permissions = mode >> shift & 7;
        entries.push(AclEntry {
            tag: tag.into(),
            permissions: permissions.into(),
            id: ACL_NO_ID.into(),
        });
    }
    entries.sort_unstable_by_key(AclEntry::place);
    Ok(encode(entries))
}

/// The entries of a default list.
///
/// # Errors
/// The damage of the value.
pub fn parse_default(bytes: &[u8]) -> Result<&[AclEntry], Damage> {
    let entries = ordered(bytes)?;
    let has_all = [TAG_OWNER, TAG_GROUP, TAG_OTHER].iter().all(|tag| count(entries, *tag) == 1);
    let needs_mask = entries.iter().any(AclEntry::is_named);
    if !has_all || (needs_mask && count(entries, TAG_MASK) == 0) {
        return Err(Damage::Field { structure: STRUCTURE, field: "tag" });
    }
    Ok(entries)
}

fn ordered(bytes: &[u8]) -> Result<&[AclEntry], Damage> {
    let entries = split(bytes)?;
    if !entries.iter().all(AclEntry::is_right) {
        return Err(Damage::Field { structure: STRUCTURE, field: "entry" });
    }
    if !entries.is_sorted_by(|one, next| one.place() < next.place()) {
        return Err(Damage::Field { structure: STRUCTURE, field: "order" });
    }
    Ok(entries)
}

fn count(entries: &[AclEntry], tag: u16) -> usize {
    entries.iter().filter(|entry| entry.tag.get() == tag).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: u16, id: u32) -> AclEntry {
        AclEntry { tag: tag.into(), permissions: 5.into(), id: id.into() }
    }

    fn whole() -> Vec<AclEntry> {
        vec![
            entry(TAG_OWNER, ACL_NO_ID),
            entry(TAG_USER, 7),
            entry(TAG_GROUP, ACL_NO_ID),
            entry(TAG_NAMED_GROUP, 0),
            entry(TAG_MASK, ACL_NO_ID),
            entry(TAG_OTHER, ACL_NO_ID),
        ]
    }

    fn without(tags: &[u16]) -> Vec<u8> {
        encode(whole().into_iter().filter(|entry| !tags.contains(&entry.tag.get())))
    }

    #[test]
    fn a_stored_list_has_its_entries() {
        assert!(parse_default(&without(&[])).is_ok());
        assert!(parse_default(&without(&[TAG_USER, TAG_NAMED_GROUP, TAG_MASK])).is_ok());
        for missing in [TAG_OWNER, TAG_GROUP, TAG_MASK, TAG_OTHER] {
            assert!(parse_default(&without(&[missing])).is_err(), "{missing}");
        }
        let of_mode = [TAG_OWNER, TAG_MASK, TAG_OTHER];
        assert!(parse_access(&without(&of_mode)).is_ok());
        assert!(parse_access(&without(&[&of_mode[..], &[TAG_GROUP]].concat())).is_err());
        for more in 0..3 {
            let mut tags = of_mode.to_vec();
            tags.remove(more);
            assert!(parse_access(&without(&tags)).is_err());
        }
        let many = (0..508).map(|id| entry(TAG_NAMED_GROUP, id));
        let many = [entry(TAG_GROUP, ACL_NO_ID)].into_iter().chain(many);
        assert!(parse_access(&encode(many.clone().take(508))).is_ok());
        assert!(parse_access(&encode(many)).is_err(), "no room for what the mode says");
    }

    #[test]
    fn damage_is_seen_and_never_panics() {
        let bytes = without(&[]);
        for length in 0..bytes.len() {
            assert!(parse_default(&bytes[..length]).is_err(), "{length}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                if let Ok(entries) = parse_default(&changed) {
                    assert_eq!(encode(entries.iter().copied()), changed);
                }
            }
        }
        let mut twice = whole();
        twice.insert(1, twice[1]);
        assert!(parse_default(&encode(twice)).is_err());
    }
}

//! Access control lists against a naive model: a list of entries that is walked as the standard
//! says, with the mask in its place.

use super::acls::{self, AclChange, AclKind};
use super::attributes::{NewIdentity, changed, created};
use super::tests::{NOW, directory, file, regular, user};
use super::xattrs;
use crate::acl::{ACL_ACCESS, ACL_DEFAULT, Acl};
use crate::permission::{self, MODE_EXECUTE, MODE_READ, MODE_WRITE};
use crate::{AccessList, Attributes, Caller, FileKind, FsError, SetAttributes};
use proptest::prelude::*;
use units::{Generation, InodeNumber};

const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP: u16 = 4;
const NAMED_GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NOBODY: u32 = u32::MAX;

/// Tag, permissions, identity.
type Entry = (u16, u16, u32);

fn value(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// A valid list in canonical order.
fn list() -> impl Strategy<Value = Vec<Entry>> {
    let named = |tag| {
        proptest::collection::btree_map(1_u32..5, 0_u16..8, 0..3)
            .prop_map(move |map| map.into_iter().map(|(id, bits)| (tag, bits, id)).collect())
    };
    let base = (0_u16..8, 0_u16..8, 0_u16..8, proptest::option::of(0_u16..8));
    (base, named(USER), named(NAMED_GROUP)).prop_map(|(base, users, groups)| {
        let (owner, group, other, mask) = base;
        let (users, groups): (Vec<Entry>, Vec<Entry>) = (users, groups);
        let is_named = !users.is_empty() || !groups.is_empty();
        let mask = mask.or(is_named.then_some(5));
        let mut entries = vec![(OWNER, owner, NOBODY)];
        entries.extend(users);
        entries.push((GROUP, group, NOBODY));
        entries.extend(groups);
        entries.extend(mask.map(|bits| (MASK, bits, NOBODY)));
        entries.push((OTHER, other, NOBODY));
        entries
    })
}

fn bits(entries: &[Entry], tag: u16) -> Option<u16> {
    entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1)
}

/// POSIX 1003.1e draft 17, 23.1.5, for a caller without privilege.
fn permits(entries: &[Entry], caller: &Caller, (uid, gid): (u32, u32), wanted: u16) -> bool {
    let mask = bits(entries, MASK).unwrap_or(7);
    if caller.uid == uid {
        return bits(entries, OWNER).unwrap() & wanted == wanted;
    }
    if let Some(entry) = entries.iter().find(|entry| entry.0 == USER && entry.2 == caller.uid) {
        return entry.1 & mask & wanted == wanted;
    }
    let of_caller = |entry: &&Entry| match entry.0 {
        GROUP => caller.is_member_of(gid),
        NAMED_GROUP => caller.is_member_of(entry.2),
        _ => false,
    };
    let groups: Vec<&Entry> = entries.iter().filter(of_caller).collect();
    if groups.is_empty() {
        return bits(entries, OTHER).unwrap() & wanted == wanted;
    }
    groups.iter().any(|entry| entry.1 & mask & wanted == wanted)
}

/// What a new file has, entry by entry.
fn inherited(default: &[Entry], mode: u32) -> Vec<Entry> {
    let has_mask = bits(default, MASK).is_some();
    let limited = |entry: &Entry| match entry.0 {
        OWNER => entry.1 & (mode >> 6) as u16,
        MASK => entry.1 & (mode >> 3) as u16,
        GROUP if !has_mask => entry.1 & (mode >> 3) as u16,
        OTHER => entry.1 & mode as u16,
        _ => entry.1,
    };
    default.iter().map(|entry| (entry.0, limited(entry) & 7, entry.2)).collect()
}

/// A list after chmod.
fn with_mode(entries: &[Entry], mode: u32) -> Vec<Entry> {
    let group = if bits(entries, MASK).is_some() { MASK } else { GROUP };
    let set = |entry: &Entry| match entry.0 {
        OWNER => (mode >> 6 & 7) as u16,
        OTHER => (mode & 7) as u16,
        tag if tag == group => (mode >> 3 & 7) as u16,
        _ => entry.1,
    };
    entries.iter().map(|entry| (entry.0, set(entry), entry.2)).collect()
}

fn set(caller: &Caller, file: &Attributes, value: &[u8]) -> Result<Attributes, FsError> {
    match acls::changed((caller, false), file, (AclKind::Access, value), NOW)? {
        AclChange::Access(next) => Ok(next),
        AclChange::Nothing => Ok(file.clone()),
        AclChange::Default(..) => unreachable!("an access list was set"),
    }
}

/// What `getfacl` shows.
fn shown(file: &Attributes) -> Vec<u8> {
    match &file.acl {
        AccessList::None => value(&[
            (OWNER, (file.mode >> 6 & 7) as u16, NOBODY),
            (GROUP, (file.mode >> 3 & 7) as u16, NOBODY),
            (OTHER, (file.mode & 7) as u16, NOBODY),
        ]),
        AccessList::Unread => panic!("it was read"),
        AccessList::Read(class) => Acl::of_access(file.mode, class).value(),
    }
}

proptest! {
    #[test]
    fn lists_permit_what_the_standard_says(
        entries in list(),
        uid in 1_u32..7,
        groups in proptest::collection::vec(1_u32..7, 1..4),
        wanted in 1_u32..8,
    ) {
        let file = set(&user(1, &[]), &regular(0o2751), &value(&entries)).unwrap();
        prop_assert_eq!(shown(&file), value(&entries));
        let caller = user(uid, &groups);
        let expected = permits(&entries, &caller, (file.uid, file.gid), wanted as u16);
        prop_assert_eq!(permission::permits(&caller, &file, wanted), expected);
        let unread = Attributes { acl: AccessList::Unread, ..file.clone() };
        if file.acl.is_there() && permission::permits(&caller, &unread, wanted) {
            prop_assert_eq!(caller.uid, file.uid);
        }
    }

    #[test]
    fn new_files_inherit_what_the_standard_says(
        entries in list(),
        mode in 0_u32..0o1000,
        is_directory in any::<bool>(),
    ) {
        let default = Acl::parse(&value(&entries)).unwrap().unwrap();
        let kind = if is_directory { FileKind::Directory } else { FileKind::Regular };
        let identity = NewIdentity { inode: InodeNumber(20), generation: Generation(1), kind };
        let wanted = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let caller = Caller { umask: 0o777, ..user(1, &[]) };
        let parent = directory(0o777, 3);
        let made = created(&caller, (&parent, Some(&default)), identity, &wanted, NOW).unwrap();
        prop_assert_eq!(shown(&made), value(&inherited(&entries, mode)));
        let plain = created(&caller, (&parent, None), identity, &wanted, NOW).unwrap();
        prop_assert_eq!((plain.mode, plain.acl), (0, AccessList::None));
        let link = NewIdentity { kind: FileKind::Symlink, ..identity };
        let link = created(&caller, (&parent, Some(&default)), link, &wanted, NOW).unwrap();
        prop_assert_eq!((link.mode, link.acl), (0o777, AccessList::None));
    }

    #[test]
    fn a_change_of_mode_changes_the_list(entries in list(), mode in 0_u32..0o1000) {
        let before = set(&user(1, &[]), &regular(0), &value(&entries)).unwrap();
        let wanted = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let after = changed(&user(1, &[]), &before, &wanted, 1 << 20, NOW).unwrap();
        prop_assert_eq!(after.mode, mode);
        prop_assert_eq!(shown(&after), value(&with_mode(&entries, mode)));
    }

    #[test]
    fn no_bytes_panic_and_what_is_taken_can_be_stored(
        bytes in proptest::collection::vec(0_u8..10, 0..80),
        has_version in any::<bool>(),
    ) {
        let start = if has_version { 2_u32.to_le_bytes().to_vec() } else { Vec::new() };
        if let Ok(Some(list)) = Acl::parse(&[start, bytes].concat()) {
            prop_assert_eq!(&Acl::of_default(&list.value()).unwrap(), &list);
            if let (mode, Some(class)) = list.clone().into_access() {
                let again = crate::acl::GroupClass::of_stored(&class.stored()).unwrap();
                let shown = ondisk::acl::value_shown(mode as u16, &class.stored()).unwrap();
                prop_assert_eq!(shown, list.value());
                prop_assert_eq!(Acl::of_access(mode, &again), list);
            }
        }
    }
}

const FULL: [Entry; 5] =
    [(OWNER, 7, NOBODY), (USER, 6, 4), (GROUP, 5, NOBODY), (MASK, 7, NOBODY), (OTHER, 0, NOBODY)];

#[test]
fn lists_that_are_none_are_refused() {
    let parse = |entries: &[Entry]| Acl::parse(&value(entries));
    assert_eq!(Acl::parse(&[]), Ok(None));
    assert_eq!(parse(&[]), Ok(None));
    assert!(parse(&FULL).unwrap().is_some());
    for missing in [0, 2, 3, 4] {
        let mut entries = FULL.to_vec();
        entries.remove(missing);
        assert_eq!(parse(&entries), Err(FsError::Invalid), "{missing}");
    }
    for (at, entry) in [(0, FULL[0]), (1, (USER, 1, 4)), (1, (USER, 8, 5)), (1, (USER, 1, NOBODY))]
    {
        let mut entries = FULL.to_vec();
        entries.insert(at, entry);
        assert_eq!(parse(&entries), Err(FsError::Invalid), "{entry:?}");
    }
    let mut turned = FULL.to_vec();
    turned.reverse();
    assert_eq!(parse(&turned), parse(&FULL));
    assert_eq!(Acl::parse(&[1, 0, 0, 0]), Err(FsError::Invalid));
    assert_eq!(Acl::parse(&[2, 0, 0]), Err(FsError::Invalid));
    assert_eq!(Acl::parse(&value(&FULL)[..20]), Err(FsError::Invalid));
    let many = |count| {
        let named = (0..count).map(|id| (USER, 4, id));
        let entries: Vec<Entry> =
            FULL.into_iter().filter(|one| one.0 != USER).chain(named).collect();
        Acl::parse(&value(&entries)).map(|list| list.is_some())
    };
    assert_eq!(many(507), Ok(true));
    assert_eq!(many(508), Err(FsError::AttributeTooLarge));
}

#[test]
fn lists_are_the_owners_to_set() {
    let (owner, other) = (user(1, &[]), user(2, &[]));
    let change = |caller: &Caller, file: &Attributes, kind| {
        acls::changed((caller, false), file, (kind, &value(&FULL)), NOW)
    };
    let place = directory(0o755, 3);
    assert!(change(&owner, &regular(0o644), AclKind::Access).is_ok());
    assert!(change(&Caller::root(), &regular(0o644), AclKind::Access).is_ok());
    assert!(change(&owner, &place, AclKind::Default).is_ok());
    assert_eq!(change(&other, &place, AclKind::Default), Err(FsError::NotPermitted));
    assert_eq!(change(&other, &regular(0o666), AclKind::Access), Err(FsError::NotPermitted));
    assert_eq!(change(&owner, &regular(0o644), AclKind::Default), Err(FsError::AccessDenied));
    let link = file(FileKind::Symlink, 0o777);
    assert_eq!(change(&owner, &link, AclKind::Access), Err(FsError::NotSupported));
    assert_eq!(xattrs::check_get(&owner, &link, ACL_ACCESS), Err(FsError::NotSupported));
    assert_eq!(xattrs::check_get(&other, &regular(0), ACL_ACCESS), Ok(()));
    assert_eq!(xattrs::check_get(&other, &regular(0), ACL_DEFAULT), Ok(()));
    let none = acls::changed((&owner, false), &regular(0o644), (AclKind::Default, &[]), NOW);
    assert_eq!(none, Ok(AclChange::Nothing));
}

#[test]
fn a_list_that_a_mode_can_say_is_the_mode() {
    let before = set(&user(1, &[]), &regular(0o644), &value(&FULL)).unwrap();
    assert_eq!((before.mode, before.acl.is_there(), before.ctime), (0o770, true, NOW));
    let trivial = [FULL[0], FULL[2], FULL[4]];
    let after = set(&user(1, &[]), &before, &value(&trivial)).unwrap();
    assert_eq!((after.mode, after.acl), (0o750, AccessList::None));
    let removed = set(&user(1, &[]), &before, &[]).unwrap();
    assert_eq!((removed.mode, removed.acl), (0o770, AccessList::None));
}

#[test]
fn a_list_takes_setgid_from_who_is_not_in_the_group() {
    let mode = |caller: &Caller, drops| {
        let change =
            acls::changed((caller, drops), &regular(0o2755), (AclKind::Access, &value(&FULL)), NOW);
        let Ok(AclChange::Access(next)) = change else { panic!("{change:?}") };
        next.mode
    };
    assert_eq!(mode(&user(1, &[1]), false), 0o2770);
    assert_eq!(mode(&user(1, &[9]), false), 0o770);
    assert_eq!(mode(&Caller::root(), false), 0o2770);
    assert_eq!(mode(&Caller::root(), true), 0o770);
}

#[test]
fn one_entry_must_grant_all() {
    let entries = [
        (OWNER, 7, NOBODY),
        (GROUP, 4, NOBODY),
        (NAMED_GROUP, 2, 5),
        (MASK, 7, NOBODY),
        (OTHER, 7, NOBODY),
    ];
    let file = set(&user(1, &[]), &regular(0), &value(&entries)).unwrap();
    let caller = user(8, &[1, 5]);
    assert!(permission::permits(&caller, &file, MODE_READ));
    assert!(permission::permits(&caller, &file, MODE_WRITE));
    assert!(!permission::permits(&caller, &file, MODE_READ | MODE_WRITE));
    assert!(!permission::permits(&caller, &file, MODE_EXECUTE));
    let rights = permission::access_rights(&caller, &file, u32::MAX);
    assert_eq!(rights, permission::READ | permission::MODIFY | permission::EXTEND);
}

//! Tests of the rules that need no backend: tables of who may do what.

use super::attributes::{NO_ID, NewIdentity, atime_is_due, changed, created, mode_after_write};
use super::entries::{self, RenameAction, RenameParties, check_rename};
use super::{names, xattrs};
use crate::{
    AccessList, Attributes, Caller, FileKind, FsError, NewNode, RenameFlags, SetAttributes, SetTime,
};
use units::{Generation, InodeNumber, Timestamp};

pub(super) const NOW: Timestamp = Timestamp(1_000);
const SIZE_MAX: u64 = 1 << 20;

pub(super) fn user(uid: u32, groups: &[u32]) -> Caller {
    let gid = groups.first().copied().unwrap_or(uid);
    Caller { uid, gid, groups: groups.into(), ..Caller::root() }
}

pub(super) fn file(kind: FileKind, mode: u32) -> Attributes {
    Attributes {
        inode: InodeNumber(10),
        generation: Generation(1),
        kind,
        mode,
        acl: AccessList::None,
        links: if kind == FileKind::Directory { 2 } else { 1 },
        uid: 1,
        gid: 1,
        size: 0,
        used: 0,
        device: (0, 0),
        file_system: 1,
        atime: Timestamp(5),
        mtime: Timestamp(5),
        ctime: Timestamp(5),
        birth: Timestamp(5),
        change: 1,
    }
}

pub(super) fn regular(mode: u32) -> Attributes {
    file(FileKind::Regular, mode)
}

pub(super) fn directory(mode: u32, inode: u64) -> Attributes {
    Attributes { inode: InodeNumber(inode), ..file(FileKind::Directory, mode) }
}

fn set() -> SetAttributes {
    SetAttributes::default()
}

fn change(
    caller: &Caller,
    current: &Attributes,
    set: &SetAttributes,
) -> Result<Attributes, FsError> {
    changed(caller, current, set, SIZE_MAX, NOW)
}

#[test]
fn names_have_limits() {
    assert_eq!(names::check_name(&[b'x'; 255]), Ok(()));
    assert_eq!(names::check_name(&[b'x'; 256]), Err(FsError::NameTooLong));
    for wrong in [b"".as_slice(), b"a/b", b"a\0"] {
        assert_eq!(names::check_name(wrong), Err(FsError::Invalid));
    }
    for taken in [b".".as_slice(), b"..", b".snapshot"] {
        assert_eq!(names::check_new_name(taken), Err(FsError::Exists));
    }
    assert_eq!(names::check_symlink(&[b'x'; 4095]), Ok(()));
    assert_eq!(names::check_symlink(&[b'x'; 4096]), Err(FsError::NameTooLong));
    assert_eq!(names::check_symlink(b""), Err(FsError::Invalid));
}

#[test]
fn only_the_owner_changes_the_mode() {
    let wanted = SetAttributes { mode: Some(0o600), ..set() };
    assert_eq!(change(&user(2, &[1]), &regular(0o777), &wanted), Err(FsError::NotPermitted));
    let next = change(&user(1, &[]), &regular(0o777), &wanted).unwrap();
    assert_eq!((next.mode, next.ctime, next.mtime, next.change), (0o600, NOW, Timestamp(5), 2));
    assert!(change(&Caller::root(), &regular(0o777), &wanted).is_ok());
}

#[test]
fn chmod_drops_setgid_outside_the_group() {
    let wanted = SetAttributes { mode: Some(0o2755), ..set() };
    let mode = |caller: &Caller| change(caller, &regular(0o644), &wanted).unwrap().mode;
    assert_eq!(mode(&user(1, &[9])), 0o755);
    assert_eq!(mode(&user(1, &[9, 1])), 0o2755);
    assert_eq!(mode(&Caller::root()), 0o2755);
}

#[test]
fn owners_give_groups_and_root_gives_all() {
    let to = |uid, gid| SetAttributes { uid, gid, ..set() };
    let refused = Err(FsError::NotPermitted);
    let owner = user(1, &[1, 7]);
    assert_eq!(change(&owner, &regular(0o644), &to(Some(2), None)), refused);
    assert_eq!(change(&owner, &regular(0o644), &to(None, Some(8))), refused);
    assert_eq!(change(&user(2, &[7]), &regular(0o644), &to(None, Some(7))), refused);
    assert_eq!(change(&owner, &regular(0o644), &to(Some(1), Some(7))).unwrap().gid, 7);
    let next = change(&Caller::root(), &regular(0o644), &to(Some(2), Some(3))).unwrap();
    assert_eq!((next.uid, next.gid), (2, 3));
}

#[test]
fn chown_clears_privilege_of_programs() {
    let wanted = SetAttributes { gid: Some(1), ..set() };
    let mode = |caller: &Caller, file: Attributes| change(caller, &file, &wanted).unwrap().mode;
    for caller in [user(1, &[]), Caller::root()] {
        assert_eq!(mode(&caller, regular(0o6755)), 0o755);
        assert_eq!(mode(&caller, regular(0o6745)), 0o2745, "setgid without group execute");
        assert_eq!(mode(&caller, directory(0o6755, 3)), 0o6755);
    }
}

#[test]
fn writes_clear_privilege_unless_root_writes() {
    assert_eq!(mode_after_write(&user(2, &[1]), &regular(0o6777)), 0o777);
    assert_eq!(mode_after_write(&user(2, &[1]), &regular(0o2767)), 0o2767);
    assert_eq!(mode_after_write(&user(2, &[]), &regular(0o2767)), 0o767);
    assert_eq!(mode_after_write(&Caller::root(), &regular(0o6777)), 0o6777);
    let cut = SetAttributes { size: Some(1), ..set() };
    assert_eq!(change(&user(1, &[]), &regular(0o4755), &cut).unwrap().mode, 0o755);
    assert_eq!(change(&Caller::root(), &regular(0o4755), &cut).unwrap().mode, 0o4755);
}

#[test]
fn times_are_the_owners_and_now_is_the_writers() {
    let touch = SetAttributes { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..set() };
    let explicit = SetAttributes { mtime: Some(SetTime::To(Timestamp(77))), ..set() };
    let mixed = SetAttributes { atime: Some(SetTime::Now), ..explicit.clone() };
    let writer = user(2, &[]);
    assert_eq!(change(&writer, &regular(0o646), &touch).unwrap().atime, NOW);
    assert_eq!(change(&writer, &regular(0o644), &touch), Err(FsError::AccessDenied));
    assert_eq!(change(&writer, &regular(0o646), &explicit), Err(FsError::NotPermitted));
    assert_eq!(change(&writer, &regular(0o646), &mixed), Err(FsError::NotPermitted));
    let next = change(&user(1, &[]), &regular(0o444), &explicit).unwrap();
    assert_eq!((next.atime, next.mtime, next.ctime), (Timestamp(5), Timestamp(77), NOW));
}

#[test]
fn sizes_need_write_permission_and_a_file() {
    let size = |size| SetAttributes { size: Some(size), ..set() };
    let next = change(&user(2, &[]), &regular(0o646), &size(7)).unwrap();
    assert_eq!((next.size, next.mtime, next.ctime), (7, NOW, NOW));
    assert_eq!(change(&user(2, &[]), &regular(0o644), &size(7)), Err(FsError::AccessDenied));
    let too_large = change(&user(1, &[]), &regular(0o644), &size(SIZE_MAX + 1));
    assert_eq!(too_large, Err(FsError::FileTooLarge));
    let root = Caller::root();
    assert_eq!(change(&root, &directory(0o755, 3), &size(0)), Err(FsError::IsDirectory));
    assert_eq!(change(&root, &file(FileKind::Fifo, 0o644), &size(0)), Err(FsError::Invalid));
}

#[test]
fn a_guard_and_an_empty_change() {
    let guarded = |guard| SetAttributes { guard: Some(guard), ..set() };
    let file = regular(0o644);
    assert_eq!(change(&user(1, &[]), &file, &guarded(Timestamp(4))), Err(FsError::GuardMismatch));
    assert_eq!(change(&user(1, &[]), &file, &guarded(Timestamp(5))), Ok(file.clone()));
}

#[test]
fn new_files_take_their_group_from_setgid_directories() {
    let make = |parent: u32, kind, mode, caller: &Caller| {
        let identity = NewIdentity { inode: InodeNumber(20), generation: Generation(1), kind };
        let wanted = SetAttributes { mode: Some(mode), ..set() };
        created(caller, (&directory(parent, 3), None), identity, &wanted, NOW).unwrap()
    };
    let stranger = user(5, &[6]);
    let plain = make(0o777, FileKind::Regular, 0o640, &stranger);
    assert_eq!((plain.uid, plain.gid, plain.mode, plain.links), (5, 6, 0o640, 1));
    let inherited = make(0o2777, FileKind::Regular, 0o2755, &stranger);
    assert_eq!((inherited.gid, inherited.mode), (1, 0o755), "no program for a foreign group");
    assert_eq!(make(0o2777, FileKind::Regular, 0o2755, &user(5, &[6, 1])).mode, 0o2755);
    let below = make(0o2777, FileKind::Directory, 0o755, &stranger);
    assert_eq!((below.gid, below.mode, below.links), (1, 0o2755, 2));
    assert_eq!(make(0o777, FileKind::Symlink, 0o600, &stranger).mode, 0o777);
}

#[test]
fn nobody_makes_files_for_others() {
    let identity =
        NewIdentity { inode: InodeNumber(20), generation: Generation(1), kind: FileKind::Regular };
    let wanted = SetAttributes { uid: Some(9), gid: Some(8), ..set() };
    let parent = directory(0o777, 3);
    let make = |caller: &Caller| {
        let made = created(caller, (&parent, None), identity, &wanted, NOW).unwrap();
        (made.uid, made.gid)
    };
    assert_eq!(make(&user(5, &[6])), (5, 6));
    assert_eq!(make(&Caller::root()), (9, 8));
}

#[test]
fn no_file_is_given_to_the_user_that_nobody_is() {
    let identity =
        NewIdentity { inode: InodeNumber(20), generation: Generation(1), kind: FileKind::Regular };
    let wanted = [
        SetAttributes { uid: Some(NO_ID), ..set() },
        SetAttributes { gid: Some(NO_ID), mode: Some(0o644), ..set() },
    ];
    for wanted in &wanted {
        for caller in [Caller::root(), user(1, &[])] {
            let made = created(&caller, (&directory(0o777, 3), None), identity, wanted, NOW);
            assert_eq!(made, Err(FsError::Invalid));
            assert_eq!(change(&caller, &regular(0o644), wanted), Err(FsError::Invalid));
        }
    }
}

#[test]
fn device_nodes_are_roots() {
    let check = |caller: &Caller, node: NewNode| entries::check_device(caller, &node);
    assert_eq!(check(&user(1, &[]), NewNode::BlockDevice(0, 0)), Err(FsError::NotPermitted));
    assert_eq!(check(&user(1, &[]), NewNode::CharacterDevice(1, 3)), Err(FsError::NotPermitted));
    assert_eq!(check(&user(1, &[]), NewNode::CharacterDevice(0, 0)), Ok(()), "whiteout");
    assert_eq!(check(&Caller::root(), NewNode::BlockDevice(8, 0)), Ok(()));
}

#[test]
fn sticky_directories_protect_others_files() {
    let parent = Attributes { uid: 3, ..directory(0o1777, 3) };
    let remove = |uid| entries::check_remove(&user(uid, &[]), &parent, &regular(0o666));
    assert_eq!(remove(2), Err(FsError::NotPermitted));
    assert_eq!(remove(1), Ok(()), "the file's owner");
    assert_eq!(remove(3), Ok(()), "the directory's owner");
    assert_eq!(remove(0), Ok(()));
}

#[test]
fn links_have_limits() {
    let root = Caller::root();
    let parent = directory(0o755, 3);
    let at = |links| Attributes { links, ..regular(0o644) };
    assert_eq!(entries::check_link(&root, &at(64_999), &parent, false), Ok(()));
    assert_eq!(entries::check_link(&root, &at(65_000), &parent, false), Err(FsError::TooManyLinks));
    assert_eq!(entries::check_link(&root, &at(0), &parent, false), Err(FsError::NotFound));
    assert_eq!(entries::check_link(&root, &at(0), &parent, true), Ok(()));
    let below = directory(0o755, 4);
    assert_eq!(entries::check_link(&root, &below, &parent, false), Err(FsError::NotPermitted));
    let full = Attributes { links: 65_000, ..parent.clone() };
    assert_eq!(entries::check_add(&root, &full, FileKind::Regular), Ok(()));
    let refused = entries::check_add(&root, &full, FileKind::Directory);
    assert_eq!(refused, Err(FsError::TooManyLinks));
    let gone = Attributes { links: 0, ..parent };
    assert_eq!(entries::check_add(&root, &gone, FileKind::Regular), Err(FsError::NotFound));
}

#[test]
fn renames_decide_by_what_has_the_new_name() {
    let (here, there) = (directory(0o777, 3), directory(0o777, 4));
    let source = regular(0o644);
    let folder = directory(0o755, 11);
    let other = Attributes { inode: InodeNumber(12), ..regular(0o644) };
    let decide = |from_file: &Attributes, to_file: Option<&Attributes>, flags| {
        let parties =
            RenameParties { from_directory: &here, from_file, to_directory: &there, to_file };
        check_rename(&user(1, &[]), parties, flags)
    };
    let plain = RenameFlags::default();
    let no_replace = RenameFlags { no_replace: true, exchange: false };
    let exchange = RenameFlags { no_replace: false, exchange: true };
    assert_eq!(decide(&source, None, plain), Ok(RenameAction::Move));
    assert_eq!(decide(&source, None, no_replace), Ok(RenameAction::Move));
    assert_eq!(decide(&source, None, exchange), Err(FsError::NotFound));
    assert_eq!(decide(&source, Some(&other), plain), Ok(RenameAction::Replace));
    assert_eq!(decide(&source, Some(&other), no_replace), Err(FsError::Exists));
    assert_eq!(decide(&source, Some(&other), exchange), Ok(RenameAction::Exchange));
    assert_eq!(decide(&source, Some(&source), plain), Ok(RenameAction::Nothing));
    assert_eq!(decide(&source, Some(&folder), plain), Err(FsError::IsDirectory));
    assert_eq!(decide(&folder, Some(&source), plain), Err(FsError::NotDirectory));
    assert_eq!(decide(&folder, Some(&source), exchange), Ok(RenameAction::Exchange));
}

#[test]
fn a_directory_that_moves_must_be_writable() {
    let (here, there) = (directory(0o777, 3), directory(0o777, 4));
    let folder = directory(0o555, 11);
    let decide = |to_directory| {
        let parties = RenameParties {
            from_directory: &here,
            from_file: &folder,
            to_directory,
            to_file: None,
        };
        check_rename(&user(1, &[]), parties, RenameFlags::default())
    };
    assert_eq!(decide(&there), Err(FsError::AccessDenied));
    assert_eq!(decide(&here), Ok(RenameAction::Move));
}

#[test]
fn xattr_namespaces_have_their_rules() {
    let (owner, other, root) = (user(1, &[]), user(2, &[]), Caller::root());
    let plain = regular(0o640);
    let get =
        |caller, file: &Attributes, name: &str| xattrs::check_get(caller, file, name.as_bytes());
    let put =
        |caller, file: &Attributes, name: &str| xattrs::check_set(caller, file, name.as_bytes(), 1);
    assert_eq!(get(&owner, &plain, "user.a"), Ok(()));
    assert_eq!(get(&other, &plain, "user.a"), Err(FsError::AccessDenied));
    assert_eq!(put(&other, &plain, "user.a"), Err(FsError::AccessDenied));
    let link = file(FileKind::Symlink, 0o777);
    assert_eq!(put(&root, &link, "user.a"), Err(FsError::NotPermitted));
    assert_eq!(get(&root, &link, "user.a"), Err(FsError::NoAttribute));
    assert_eq!(put(&root, &link, "trusted.a"), Ok(()));
    assert_eq!(put(&owner, &plain, "trusted.a"), Err(FsError::NotPermitted));
    assert_eq!(get(&owner, &plain, "trusted.a"), Err(FsError::NoAttribute));
    assert_eq!(get(&other, &plain, "security.a"), Ok(()));
    assert_eq!(put(&owner, &plain, "security.a"), Err(FsError::NotPermitted));
    assert_eq!(put(&root, &plain, "system.posix_acl_access"), Err(FsError::NotSupported));
    assert_eq!(put(&root, &plain, "other.a"), Err(FsError::NotSupported));
    assert_eq!(put(&root, &plain, "user."), Err(FsError::Invalid));
    assert_eq!(put(&root, &plain, &format!("user.{}", "a".repeat(251))), Err(FsError::Range));
    let sticky = directory(0o1777, 3);
    assert_eq!(put(&other, &sticky, "user.a"), Err(FsError::NotPermitted));
    assert_eq!(put(&owner, &sticky, "user.a"), Ok(()));
    let too_large = xattrs::check_set(&root, &plain, b"user.a", (64 << 10) + 1);
    assert_eq!(too_large, Err(FsError::AttributeTooLarge));
    assert!(!xattrs::is_listed(&owner, b"trusted.a") && xattrs::is_listed(&root, b"trusted.a"));
}

#[test]
fn atime_moves_after_a_change_or_a_day() {
    let day = 24 * 3600 * 1_000_000_000;
    let at = |atime| Attributes { atime: Timestamp(atime), ..regular(0o644) };
    assert!(atime_is_due(&at(5), NOW), "not read since it was written");
    assert!(!atime_is_due(&at(6), Timestamp(day)));
    assert!(atime_is_due(&at(6), Timestamp(day + 6)));
}

//! Access control lists: that every call goes by them, and what a crash leaves of what was
//! inherited.

use super::cases::{create, make_directory, root, scope, write};
use super::engine::{BLOCKS, State};
use crate::{Scope, Scoped};
use bytes::Bytes;
use file_service::acl::{ACL_ACCESS, ACL_DEFAULT, Acl, Subject};
use file_service::permission;
use file_service::rules::xattrs::CAPABILITY;
use file_service::{
    Caller, CreateMode, FileHandle, FsError, SetAttributes, Stability, XattrSetMode, calls,
};

const USER: u32 = 7;
const STRANGER: u32 = 8;

/// Nobody but the owner may do anything, and [`USER`] what `permissions` say.
fn list(permissions: u8) -> Vec<u8> {
    let entries = [
        (Subject::Owner, 7),
        (Subject::User(USER), permissions),
        (Subject::Group, 0),
        (Subject::Mask, 7),
        (Subject::Other, 0),
    ];
    Acl::new(entries).unwrap().value()
}

pub(super) fn set(state: &mut State, file: FileHandle, name: &[u8], value: Vec<u8>) {
    let set = Scoped {
        scope: scope(state),
        call: calls::SetXattr {
            file,
            name: name.to_vec(),
            value,
            mode: XattrSetMode::Either,
            drops_setgid: false,
        },
    };
    state.mutate(&set).unwrap();
}

pub(super) fn set_default(state: &mut State, directory: FileHandle) {
    set(state, directory, ACL_DEFAULT, list(6));
}

fn shown(state: &mut State, file: FileHandle, name: &[u8]) -> Result<Vec<u8>, FsError> {
    let call = calls::GetXattr { file, name: name.to_vec() };
    let get = Scoped { scope: scope(state), call };
    state.query(&get)
}

fn scope_of(state: &State, uid: u32) -> Scope {
    Scope { caller: Caller { uid, gid: uid, ..Caller::root() }, ..scope(state) }
}

/// What each call says to a user.
fn tries(state: &mut State, (uid, directory, file): (u32, FileHandle, FileHandle)) -> Vec<bool> {
    let scope = scope_of(state, uid);
    let read = Scoped { scope: scope.clone(), call: calls::Read { file, offset: 0, count: 9 } };
    let in_stripe = state.read(&read, true).is_ok();
    let whole = state.query(&read).is_ok();
    let (data, stability) = (Bytes::from_static(b"new"), Stability::FileSync);
    let call = calls::Write { file, offset: 0, data, stability };
    let wrote = state.mutate(&Scoped { scope: scope.clone(), call }).is_ok();
    let call = calls::Lookup { directory, name: b"f".to_vec() };
    let found = state.query(&Scoped { scope: scope.clone(), call }).is_ok();
    let call = calls::ReadDirectory { directory, cookie: 0, entries_max: 9, with_attributes: true };
    let listed = state.query(&Scoped { scope: scope.clone(), call }).is_ok();
    let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
    let call = calls::Create { directory, name: b"new".to_vec(), mode, set };
    let made = state.mutate(&Scoped { scope: scope.clone(), call }).is_ok();
    let call = calls::Remove { directory, name: b"new".to_vec() };
    let removed = state.mutate(&Scoped { scope: scope.clone(), call }).is_ok();
    let call = calls::Access { file, wanted: permission::READ | permission::MODIFY };
    let (rights, _) = state.query(&Scoped { scope, call }).unwrap();
    let rights = [rights & permission::READ != 0, rights & permission::MODIFY != 0];
    [&[in_stripe, whole, wrote, found, listed, made, removed], &rights[..]].concat()
}

#[test]
fn every_call_goes_by_the_list() {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let directory = make_directory(&mut state, root, b"d");
    let file = create(&mut state, directory, b"f").unwrap();
    write(&mut state, file, 0, vec![1; 5000], Stability::FileSync).unwrap();
    for (on_directory, on_file, expected) in [
        (7, 6, [true; 9]),
        // Who may search may look up, but neither list nor add.
        (1, 4, [true, true, false, true, false, false, false, true, false]),
        (5, 0, [false, false, false, true, true, false, false, false, false]),
    ] {
        set(&mut state, directory, ACL_ACCESS, list(on_directory));
        set(&mut state, file, ACL_ACCESS, list(on_file));
        state.consistency_point();
        assert_eq!(tries(&mut state, (USER, directory, file)), expected, "{on_directory}");
        assert_eq!(tries(&mut state, (STRANGER, directory, file)), [false; 9]);
        assert_eq!(tries(&mut state, (0, directory, file)), [true; 9], "root");
        state.verify();
    }
}

#[test]
fn what_was_inherited_is_there_after_a_crash() {
    for is_committed in [false, true] {
        let mut state = State::new(BLOCKS);
        let root = root(&mut state);
        let directory = make_directory(&mut state, root, b"d");
        set_default(&mut state, directory);
        if is_committed {
            state.consistency_point();
        }
        let below = make_directory(&mut state, directory, b"below");
        let file = create(&mut state, below, b"f").unwrap();
        let before = [
            shown(&mut state, below, ACL_ACCESS),
            shown(&mut state, below, ACL_DEFAULT),
            shown(&mut state, file, ACL_ACCESS),
        ];
        assert_eq!(before[1], Ok(list(6)));
        assert!(before.iter().all(Result::is_ok), "{before:?}");
        assert_eq!(shown(&mut state, file, ACL_DEFAULT), Err(FsError::NoAttribute));
        // The directory's list is gone when the log is replayed again after the next crash.
        set(&mut state, directory, ACL_DEFAULT, Vec::new());
        state.restart();
        let after = [
            shown(&mut state, below, ACL_ACCESS),
            shown(&mut state, below, ACL_DEFAULT),
            shown(&mut state, file, ACL_ACCESS),
        ];
        assert_eq!(after, before);
        assert_eq!(shown(&mut state, directory, ACL_DEFAULT), Err(FsError::NoAttribute));
        state.verify();
    }
}

/// A write beside others must not miss capabilities, nor wait for attributes that are none.
#[test]
fn writes_look_for_capabilities_once() {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let file = create(&mut state, root, b"f").unwrap();
    set(&mut state, file, ACL_ACCESS, list(6));
    let in_stripe = |state: &mut State, uid: u32| {
        let (data, stability) = (Bytes::from_static(b"new"), Stability::FileSync);
        let call = calls::Write { file, offset: 0, data, stability };
        let before = state.in_stripe;
        let scope = scope_of(state, uid);
        state.write(&Scoped { scope, call }, true).unwrap();
        state.in_stripe > before
    };
    assert!(!in_stripe(&mut state, 0), "nobody has looked yet");
    assert!(in_stripe(&mut state, 0));
    assert!(!in_stripe(&mut state, USER), "it is up to the list");
    set(&mut state, file, CAPABILITY, b"all".to_vec());
    assert!(shown(&mut state, file, CAPABILITY).is_ok());
    assert!(!in_stripe(&mut state, 0), "it may have some");
    assert_eq!(shown(&mut state, file, CAPABILITY), Err(FsError::NoAttribute));
    set(&mut state, file, CAPABILITY, b"all".to_vec());
    state.consistency_point();
    assert!(!in_stripe(&mut state, 0));
    assert_eq!(shown(&mut state, file, CAPABILITY), Err(FsError::NoAttribute));
    assert!(
        !in_stripe(&mut state, 0),
        "the one that found some did not see that there are no more"
    );
    assert!(in_stripe(&mut state, 0));
    state.verify();
}

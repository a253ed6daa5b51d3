//! Files that are made without a name (`O_TMPFILE`): who keeps them, who may name them, and what a
//! crash leaves.

use super::cases::{read, remove, root, scope, write};
use super::engine::{BLOCKS, State};
use crate::Scoped;
use file_service::{FileHandle, FsError, Hold, SetAttributes, Stability, calls};

fn make(state: &mut State, directory: FileHandle) -> Hold {
    let set = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
    let call = calls::CreateUnnamed { directory, set };
    let make = Scoped { scope: scope(state), call };
    let (entry, hold) = state.mutate(&make).unwrap();
    assert_eq!((entry.handle, entry.attributes.links), (hold.file, 0));
    assert_eq!((entry.attributes.mode, entry.attributes.size), (0o640, 0));
    hold
}

fn link(
    state: &mut State,
    file: FileHandle,
    directory: FileHandle,
    name: &[u8],
) -> Result<u32, FsError> {
    let call = calls::Link { file, directory, name: name.to_vec() };
    let link = Scoped { scope: scope(state), call };
    state.mutate(&link).map(|(linked, _)| linked.links)
}

fn found(
    state: &mut State,
    directory: FileHandle,
    name: &[u8],
) -> Result<(FileHandle, u32), FsError> {
    let call = calls::Lookup { directory, name: name.to_vec() };
    let lookup = Scoped { scope: scope(state), call };
    state.query(&lookup).map(|entry| (entry.handle, entry.attributes.links))
}

#[test]
fn a_file_without_a_name_goes_with_its_last_hold() {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let before = state.query(&calls::GetAttributes { file: root }).unwrap();
    let file = make(&mut state, root).file;
    assert_eq!(state.query(&calls::GetAttributes { file: root }), Ok(before), "it has no entry");
    write(&mut state, file, 0, vec![7; 9_000], Stability::FileSync).unwrap();
    state.consistency_point();
    assert_eq!(read(&mut state, file, 8_999, 9), [7]);
    assert_eq!(state.reap_orphans(), 0, "it is held");
    state.release(file);
    assert_eq!(state.query(&calls::GetAttributes { file }), Err(FsError::Stale));
    assert!(state.logical.get_mut().orphans.is_empty());
    state.verify();
}

#[test]
fn a_crash_takes_a_file_without_a_name() {
    for is_committed in [false, true] {
        let mut state = State::new(BLOCKS);
        let root = root(&mut state);
        let file = make(&mut state, root).file;
        write(&mut state, file, 0, vec![7; 9_000], Stability::FileSync).unwrap();
        if is_committed {
            state.consistency_point();
        }
        state.restart();
        assert_eq!(state.logical.get_mut().orphans[..], [file.inode]);
        assert_eq!(state.query(&calls::GetAttributes { file }), Err(FsError::Stale));
        state.reap_orphans();
        assert!(state.logical.get_mut().orphans.is_empty());
        state.verify();
    }
}

#[test]
fn a_first_name_is_there_after_a_crash() {
    for committed_after in [None, Some("making"), Some("naming")] {
        let mut state = State::new(BLOCKS);
        let root = root(&mut state);
        let file = make(&mut state, root).file;
        write(&mut state, file, 0, vec![7; 9_000], Stability::FileSync).unwrap();
        if committed_after == Some("making") {
            state.consistency_point();
        }
        assert_eq!(link(&mut state, file, root, b"named"), Ok(1));
        assert_eq!(link(&mut state, file, root, b"again"), Ok(2));
        assert!(state.logical.get_mut().orphans.is_empty());
        if committed_after == Some("naming") {
            state.consistency_point();
        }
        state.restart();
        assert!(state.logical.get_mut().orphans.is_empty(), "committed after {committed_after:?}");
        state.reap_orphans();
        assert_eq!(found(&mut state, root, b"named"), Ok((file, 2)));
        assert_eq!(read(&mut state, file, 8_999, 9), [7]);
        state.verify();
    }
}

#[test]
fn only_a_file_that_was_made_without_a_name_gets_a_first_one() {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let file = make(&mut state, root).file;
    assert_eq!(link(&mut state, file, root, b"named"), Ok(1));
    remove(&mut state, root, b"named").unwrap();
    assert_eq!(link(&mut state, file, root, b"anew"), Err(FsError::NotFound), "it had one");
    state.release(file);
    assert_eq!(link(&mut state, file, root, b"anew"), Err(FsError::Stale));
    state.verify();
}

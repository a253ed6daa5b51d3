//! Single behaviours: what random sequences reach seldom, and what they cannot see.

use super::engine::{BLOCKS, State};
use crate::data::CommitReply;
use crate::quota_trees::MakeTree;
use crate::{
    GetRoot, MakeNode, OperationStop, Reap, Reaped, RecordError, Scope, Scoped, apply, replay,
};
use bytes::Bytes;
use cowfs::reader::{HeldBlocks, Reader};
use cowfs::transaction::Transaction;
use file_service::{
    Caller, CreateMode, Entry, FileHandle, FsError, NewNode, SetAttributes, Stability,
    XattrSetMode, calls,
};
use platform::Clock;
use proptest::prelude::*;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, SnapshotId, Timestamp};

pub(super) fn scope(state: &State) -> Scope {
    Scope { caller: Caller::root(), now: state.clock.wall() }
}

pub(super) fn root(state: &mut State) -> FileHandle {
    state.query(&GetRoot).unwrap().handle
}

pub(super) fn create(
    state: &mut State,
    directory: FileHandle,
    name: &[u8],
) -> Result<FileHandle, FsError> {
    let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
    let create = Scoped {
        scope: scope(state),
        call: calls::Create { directory, name: name.to_vec(), mode, set },
    };
    state.mutate(&create).map(|(entry, _)| entry.handle)
}

/// A volume with one file, and the root directory that holds it.
fn with_file(name: &[u8]) -> (State, FileHandle, FileHandle) {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let file = create(&mut state, root, name).unwrap();
    (state, root, file)
}

/// A volume with an orphan that is too large to be freed at once, when its reaping has begun.
fn with_orphan(stability: Stability) -> (State, FileHandle) {
    let (mut state, root, file) = with_file(b"large");
    set_size(&mut state, file, apply::FREE_AT_ONCE_BYTES_MAX * 2).unwrap();
    for block in (0..2_000).step_by(100) {
        let content = vec![7; BLOCK_SIZE];
        write(&mut state, file, block * BLOCK_SIZE_U64, content, stability).unwrap();
    }
    state.consistency_point();
    remove(&mut state, root, b"large").unwrap();
    assert_eq!(state.mutate(&Reap { inode: file.inode }), Ok(Reaped::Later));
    (state, file)
}

pub(super) fn make_directory(state: &mut State, directory: FileHandle, name: &[u8]) -> FileHandle {
    let make = MakeNode {
        scope: scope(state),
        call: calls::MakeNode {
            directory,
            name: name.to_vec(),
            node: NewNode::Directory,
            set: SetAttributes::default(),
        },
        hash_seed: [5, 6],
    };
    state.mutate(&make).unwrap().0.handle
}

pub(super) fn remove(state: &mut State, directory: FileHandle, name: &[u8]) -> Result<(), FsError> {
    let remove =
        Scoped { scope: scope(state), call: calls::Remove { directory, name: name.to_vec() } };
    state.mutate(&remove).map(|_| ())
}

pub(super) fn write(
    state: &mut State,
    file: FileHandle,
    offset: u64,
    data: Vec<u8>,
    stability: Stability,
) -> Result<(), FsError> {
    let (scope, data) = (scope(state), Bytes::from(data));
    let request = Scoped { scope, call: calls::Write { file, offset, data, stability } };
    state.write(&request, true).map(|_| ())
}

pub(super) fn read(state: &mut State, file: FileHandle, offset: u64, count: u32) -> Vec<u8> {
    let request = Scoped { scope: scope(state), call: calls::Read { file, offset, count } };
    let whole = state.query(&request).unwrap().to_vec();
    assert_eq!(state.read(&request, true).unwrap().to_vec(), whole);
    whole
}

fn set_size(state: &mut State, file: FileHandle, size: u64) -> Result<(), FsError> {
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    let set = Scoped { scope: scope(state), call: calls::SetFileAttributes { file, set } };
    state.mutate(&set).map(|_| ())
}

fn lookup(state: &mut State, directory: FileHandle, name: &[u8]) -> Result<Entry, FsError> {
    let scope = scope(state);
    state.query(&Scoped { scope, call: calls::Lookup { directory, name: name.to_vec() } })
}

fn names(state: &mut State, directory: FileHandle, entries_max: u32) -> Vec<Vec<u8>> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let scope = scope(state);
        let list = Scoped {
            scope,
            call: calls::ReadDirectory { directory, cookie, entries_max, with_attributes: true },
        };
        let page = state.query(&list).unwrap();
        assert!(page.end || !page.entries.is_empty());
        for entry in page.entries {
            assert!(entry.cookie > cookie);
            cookie = entry.cookie;
            names.push(entry.name);
        }
        if page.end {
            return names;
        }
    }
}

/// Where it goes is decided when it runs, and the log says where that was.
#[test]
fn an_append_goes_where_the_file_ends() {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let file = create(&mut state, root, b"log").unwrap();
    let append = |state: &mut State, text: &'static [u8], stability| {
        let call = calls::Append { file, stability, data: Bytes::from_static(text) };
        let scope = scope(state);
        state.mutate(&Scoped { scope, call }).map(|written| written.count)
    };
    assert_eq!(append(&mut state, b"one ", Stability::FileSync), Ok(4));
    write(&mut state, file, 4, b"two ".to_vec(), Stability::Unstable).unwrap();
    assert_eq!(append(&mut state, b"three ", Stability::Unstable), Ok(6));
    assert_eq!(append(&mut state, b"four", Stability::FileSync), Ok(4));
    assert_eq!(read(&mut state, file, 0, 100), b"one two three four");
    let most = state.environment.limits.file_bytes_max;
    set_size(&mut state, file, most - 2).unwrap();
    assert_eq!(append(&mut state, b"too much", Stability::FileSync), Err(FsError::FileTooLarge));
}

#[test]
fn large_directories_grow_and_shrink_over_consistency_points() {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let directory = make_directory(&mut state, root, b"d");
    for number in 0..1_500 {
        create(&mut state, directory, format!("file-{number}").as_bytes()).unwrap();
        if number % 400 == 399 {
            state.consistency_point();
        }
    }
    assert_eq!(names(&mut state, directory, 100).len(), 1_502);
    let grown = state.query(&calls::GetAttributes { file: directory }).unwrap();
    assert!(grown.size > 10 * BLOCK_SIZE_U64);
    state.restart();
    state.verify();
    assert_eq!(names(&mut state, directory, 333).len(), 1_502);
    for number in 0..1_500 {
        remove(&mut state, directory, format!("file-{number}").as_bytes()).unwrap();
    }
    assert_eq!(names(&mut state, directory, 10), [b".".to_vec(), b"..".to_vec()]);
    assert_eq!(
        state.query(&calls::GetAttributes { file: directory }).unwrap().size,
        BLOCK_SIZE_U64
    );
    let gone = Scoped {
        scope: scope(&state),
        call: calls::RemoveDirectory { directory: root, name: b"d".to_vec() },
    };
    state.mutate(&gone).unwrap();
    state.verify();
}

#[test]
fn a_large_orphan_goes_bit_by_bit() {
    let (mut state, root, file) = with_file(b"large");
    for block in 0..2_000 {
        let content = vec![block as u8 | 1; BLOCK_SIZE];
        write(&mut state, file, block * BLOCK_SIZE_U64, content, Stability::Unstable).unwrap();
    }
    state.consistency_point();
    let used = state.query(&calls::GetAttributes { file }).unwrap().used;
    assert_eq!(used, 2_000 * BLOCK_SIZE_U64);
    state.hold(file).unwrap();
    remove(&mut state, root, b"large").unwrap();
    assert_eq!(state.mutate(&Reap { inode: file.inode }), Ok(Reaped::Needed));
    assert_eq!(read(&mut state, file, 4096, 3), [1; 3]);
    state.release(file);
    assert_eq!(state.query(&calls::GetAttributes { file }), Err(FsError::Stale));
    assert!(state.reap_orphans() > 2);
    state.verify();
    // Its number may be used again only after the image without it is committed.
    state.consistency_point();
    assert!(create(&mut state, root, b"next").is_ok());
}

/// Found by the fuzz target `mount_image`: every look at the orphan came amid a consistency point
/// that its own reaping had caused, and it was never found empty.
#[test]
fn regression_an_orphan_ends_though_each_look_at_it_comes_amid_a_consistency_point() {
    let (mut state, file) = with_orphan(Stability::Unstable);
    let ended = (0..50).any(|_| {
        state.freeze();
        let reaped = state.mutate(&Reap { inode: file.inode });
        state.publish();
        reaped == Ok(Reaped::Freed)
    });
    assert!(ended, "the orphan is never freed");
    state.consistency_point();
    state.verify();
}

#[test]
fn a_restart_amid_reaping_goes_on() {
    let (mut state, file) = with_orphan(Stability::FileSync);
    state.consistency_point();
    state.restart();
    assert_eq!(state.logical.get_mut().orphans[..], [file.inode]);
    state.reap_orphans();
    state.verify();
}

#[test]
fn commit_logs_what_a_running_consistency_point_has_not_committed() {
    let (mut state, _, file) = with_file(b"f");
    state.consistency_point();
    write(&mut state, file, 0, vec![1; 3 * BLOCK_SIZE], Stability::Unstable).unwrap();
    state.freeze();
    write(&mut state, file, 5_000, vec![2; 10], Stability::FileSync).unwrap();
    write(&mut state, file, 20_000, vec![3; 10], Stability::Unstable).unwrap();
    let before = state.log.len();
    assert!(matches!(state.mutate(&calls::Commit::of(file)), Ok(CommitReply::Logged(_))));
    assert_eq!(state.log.len(), before + 1);
    let content = read(&mut state, file, 0, 1 << 20);
    // The consistency point is lost.
    state.restart();
    assert_eq!(read(&mut state, file, 0, 1 << 20), content);
    state.verify();
    // Nothing is left to commit.
    state.consistency_point();
    assert!(matches!(state.mutate(&calls::Commit::of(file)), Ok(CommitReply::Logged(_))));
    assert!(state.log.is_empty());
}

#[test]
fn too_much_to_commit_is_a_consistency_points_business() {
    let (mut state, _, file) = with_file(b"f");
    let megabyte = vec![9; 1 << 20];
    for part in 0..8 {
        write(&mut state, file, part << 20, megabyte.clone(), Stability::Unstable).unwrap();
    }
    let before = state.log.len();
    assert!(matches!(state.mutate(&calls::Commit::of(file)), Ok(CommitReply::Logged(_))));
    assert_eq!(state.log.len() - before, 2_048 / crate::data::commit::COMMIT_RECORD_BLOCKS_MAX);
    for part in 0..9 {
        write(&mut state, file, part << 20, megabyte.clone(), Stability::Unstable).unwrap();
    }
    assert!(matches!(state.mutate(&calls::Commit::of(file)), Ok(CommitReply::TooMuchToLog(_))));
    state.consistency_point();
    state.restart();
    assert_eq!(read(&mut state, file, (9 << 20) - 2, 10), [9; 2]);
}

#[test]
fn unstable_data_may_be_lost_but_not_what_was_there() {
    let (mut state, _, file) = with_file(b"f");
    write(&mut state, file, 0, vec![1; 5_000], Stability::FileSync).unwrap();
    write(&mut state, file, 100, vec![2; 100], Stability::Unstable).unwrap();
    state.restart();
    assert_eq!(read(&mut state, file, 0, 10_000), [1; 5_000]);
}

#[test]
fn deleting_works_on_a_full_volume() {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let [one, _] = [b"1", b"2"].map(|name| create(&mut state, root, name).unwrap());
    write(&mut state, one, 0, vec![1; 50_000], Stability::Unstable).unwrap();
    state.free_blocks = super::engine::RESERVE_BLOCKS;
    state.consistency_point();
    assert_eq!(create(&mut state, root, b"3"), Err(FsError::NoSpace));
    for stability in [Stability::Unstable, Stability::FileSync] {
        let refused = write(&mut state, one, 60_000, vec![1; 5_000], stability);
        assert_eq!(refused, Err(FsError::NoSpace));
    }
    let reserve = |keep_size| file_service::Allocation::Reserve { keep_size };
    let allocate = |state: &mut State, allocation, offset, length| {
        let scope = scope(state);
        let request =
            Scoped { scope, call: calls::Allocate { file: one, allocation, offset, length } };
        state.mutate(&request).map(|_| ())
    };
    // What is there already needs no room, but the inode does.
    assert_eq!(allocate(&mut state, reserve(true), 0, 60_000), Err(FsError::NoSpace));
    let punch = file_service::Allocation::PunchHole;
    assert_eq!(allocate(&mut state, punch, 4_096, 8_192), Ok(()));
    assert_eq!(set_size(&mut state, one, 10), Ok(()));
    assert_eq!(remove(&mut state, root, b"2"), Ok(()));
    state.free_blocks = BLOCKS;
    state.verify();
    assert_eq!(allocate(&mut state, reserve(false), 0, 60_000), Err(FsError::NoSpace));
    state.consistency_point();
    assert_eq!(allocate(&mut state, reserve(false), 0, 60_000), Ok(()));
    assert_eq!(allocate(&mut state, reserve(false), 0, 16 << 40), Err(FsError::NoSpace));
    assert_eq!(read(&mut state, one, 0, 100_000).len(), 60_000);
}

#[test]
fn the_snapshot_directory_leads_through_time() {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let old = make_directory(&mut state, root, b"old");
    let file = create(&mut state, old, b"f").unwrap();
    write(&mut state, file, 0, vec![1; 6_000], Stability::FileSync).unwrap();
    let (name, value) = (b"user.a".to_vec(), b"then".to_vec());
    let scope_now = scope(&state);
    let set = Scoped {
        scope: scope_now,
        call: calls::SetXattr {
            file,
            name,
            value,
            mode: XattrSetMode::Create,
            drops_setgid: false,
        },
    };
    state.mutate(&set).unwrap();
    state.make_snapshot("one");
    let new = make_directory(&mut state, root, b"new");
    write(&mut state, file, 0, vec![2; 100], Stability::FileSync).unwrap();
    remove(&mut state, old, b"f").unwrap();
    state.make_snapshot("two");

    let snapshots = lookup(&mut state, old, b".snapshot").unwrap();
    assert_eq!(snapshots.handle, FileHandle { snapshot: SnapshotId::DIRECTORY, ..old });
    assert_eq!(
        names(&mut state, snapshots.handle, 3),
        [&b"."[..], b"..", b"one", b"two"].map(<[u8]>::to_vec)
    );
    assert_eq!(names(&mut state, snapshots.handle, 1).len(), 4);
    assert_eq!(lookup(&mut state, snapshots.handle, b"..").unwrap().handle, old);
    assert_eq!(lookup(&mut state, snapshots.handle, b".").unwrap().handle, snapshots.handle);
    assert_eq!(lookup(&mut state, snapshots.handle, b"three").err(), Some(FsError::NotFound));
    assert_eq!(lookup(&mut state, snapshots.handle, b".snapshot").err(), Some(FsError::NotFound));

    let then = lookup(&mut state, snapshots.handle, b"one").unwrap();
    let found = lookup(&mut state, then.handle, b"f").unwrap();
    assert_eq!(found.attributes.links, 1);
    assert_ne!(found.attributes.file_system, then.attributes.file_system + 1);
    assert_eq!(read(&mut state, found.handle, 0, 9_000), [1; 6_000]);
    assert_eq!(lookup(&mut state, then.handle, b"..").unwrap().handle.inode, root.inode);
    let gone = lookup(&mut state, snapshots.handle, b"two").unwrap();
    assert_eq!(lookup(&mut state, gone.handle, b"f").err(), Some(FsError::NotFound));
    // A directory that was not there then has no such snapshot.
    let of_new = lookup(&mut state, new, b".snapshot").unwrap();
    assert_eq!(names(&mut state, of_new.handle, 9).len(), 3);
    assert_eq!(lookup(&mut state, of_new.handle, b"one").err(), Some(FsError::NotFound));
    // Nothing in a snapshot changes.
    let refused = write(&mut state, found.handle, 0, vec![1], Stability::Unstable);
    assert_eq!(refused, Err(FsError::ReadOnly));
    assert_eq!(create(&mut state, snapshots.handle, b"x"), Err(FsError::ReadOnly));
    state.hold(found.handle).unwrap();
    state.release(found.handle);
    state.logical.get_mut().snapshots.clear();
    assert_eq!(state.query(&calls::GetAttributes { file: found.handle }), Err(FsError::Stale));
}

#[test]
fn handles_of_other_places_are_stale_and_metafiles_are_not_files() {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let elsewhere = FileHandle { volume: units::VolumeUuid([6; 16]), ..root };
    assert_eq!(state.query(&calls::GetAttributes { file: elsewhere }), Err(FsError::Stale));
    for number in 0..64 {
        for generation in 0..3 {
            let file = FileHandle {
                inode: units::InodeNumber(number),
                generation: units::Generation(generation),
                ..root
            };
            assert_eq!(state.query(&calls::GetAttributes { file }), Err(FsError::Stale));
            assert_eq!(state.hold(file), Err(FsError::Stale));
        }
    }
    let far = FileHandle { inode: units::InodeNumber(u64::MAX), ..root };
    assert_eq!(state.query(&calls::GetAttributes { file: far }), Err(FsError::Stale));
}

/// A volume whose log has a record of each kind, the log being what is left to replay.
fn busy() -> State {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let directory = make_directory(&mut state, root, b"d");
    super::acls::set_default(&mut state, directory);
    let file = create(&mut state, directory, b"f").unwrap();
    write(&mut state, file, 10, vec![1; 50], Stability::FileSync).unwrap();
    write(&mut state, file, 4096, vec![1; 50], Stability::Unstable).unwrap();
    state.mutate(&calls::Commit::of(file)).unwrap();
    let scope_now = scope(&state);
    let (name, value) = (b"user.a".to_vec(), b"v".to_vec());
    let set = Scoped {
        scope: scope_now,
        call: calls::SetXattr {
            file,
            name,
            value,
            mode: XattrSetMode::Either,
            drops_setgid: false,
        },
    };
    state.mutate(&set).unwrap();
    set_size(&mut state, file, 77).unwrap();
    let rename = Scoped {
        scope: scope(&state),
        call: calls::Rename {
            from_directory: directory,
            from_name: b"f".to_vec(),
            to_directory: root,
            to_name: b"g".to_vec(),
            flags: file_service::RenameFlags::default(),
        },
    };
    state.mutate(&rename).unwrap();
    let scope_now = scope(&state);
    let link =
        Scoped { scope: scope_now, call: calls::Link { file, directory, name: b"h".to_vec() } };
    state.mutate(&link).unwrap();
    let allocate = Scoped {
        scope: scope(&state),
        call: calls::Allocate {
            file,
            allocation: file_service::Allocation::PunchHole,
            offset: 0,
            length: 20,
        },
    };
    state.mutate(&allocate).unwrap();
    let scope_now = scope(&state);
    let unset =
        Scoped { scope: scope_now, call: calls::RemoveXattr { file, name: b"user.a".to_vec() } };
    state.mutate(&unset).unwrap();
    remove(&mut state, root, b"g").unwrap();
    let call = calls::CreateUnnamed { directory: root, set: SetAttributes::default() };
    let unnamed = Scoped { scope: scope(&state), call };
    state.mutate(&unnamed).unwrap();
    make_directory(&mut state, root, b"t");
    let (path, now) = (vec![b"t".to_vec()], scope(&state).now);
    state.mutate(&MakeTree { path, now }).unwrap();
    let kinds: std::collections::BTreeSet<u16> = state.log.iter().map(|record| record.0).collect();
    assert_eq!(kinds.len(), ondisk::operation::KINDS.len());
    state
}

/// Replays one record, in whatever state the volume is; a panic is a failure.
fn replay_one(state: &mut State, kind: u16, body: &[u8]) -> Result<(), OperationStop> {
    let mut result = Ok(());
    state.logical.get_mut().replaying = true;
    let _ = state.run(|state, held: &HeldBlocks| {
        let reader = Reader { cache: &state.cache, held };
        let mut transaction = Transaction::new(state.logical.get_mut(), reader, Timestamp(0));
        match replay(kind, body, &mut transaction) {
            Err(stop) if stop.wait().is_some() => Err(stop),
            other => {
                result = other;
                Ok(())
            }
        }
    });
    state.logical.get_mut().replaying = false;
    result
}

#[test]
fn records_that_do_not_fit_are_named() {
    let mut state = busy();
    assert_eq!(
        replay_one(&mut state, 99, &[0; 64]),
        Err(OperationStop::Record { kind: 99, error: RecordError::Kind })
    );
    for (kind, body) in state.log.clone() {
        assert_eq!(replay::record_volume(&body), Ok(state.environment.volume));
        for length in 0..body.len().min(300) {
            let cut = replay_one(&mut state, kind, &body[..length]);
            assert!(matches!(cut, Err(OperationStop::Record { .. })), "{kind}: {cut:?}");
        }
        let mut long = body.clone();
        long.push(0);
        let long = replay_one(&mut state, kind, &long);
        assert!(matches!(long, Err(OperationStop::Record { .. })), "{kind}: {long:?}");
    }
    // The first is done already: the name is taken, the inode in use.
    let first = state.log[0].clone();
    // So is the last: the directory is a tree.
    let last = state.log[state.log.len() - 1].clone();
    for (kind, body) in [first, last] {
        let twice = replay_one(&mut state, kind, &body);
        let is_unfit =
            matches!(twice, Err(OperationStop::Record { error: RecordError::Unfit { .. }, .. }));
        assert!(is_unfit, "{kind}: {twice:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_record_panics(changes in prop::collection::vec((0_usize..400, any::<u8>()), 1..4)) {
        let mut state = busy();
        for (kind, body) in state.log.clone() {
            let mut body = body;
            for (at, byte) in &changes {
                let at = at % body.len();
                body[at] = *byte;
            }
            // Whatever it says; it is not applied.
            let _ = replay_one(&mut state, kind, &body);
        }
    }
}

#[test]
fn regression_punching_beyond_the_end_leaves_no_block() {
    let (mut state, _, file) = with_file(b"f");
    let punch = |state: &mut State, offset, length| {
        let scope = scope(state);
        let allocation = file_service::Allocation::PunchHole;
        let request = Scoped { scope, call: calls::Allocate { file, allocation, offset, length } };
        state.mutate(&request).unwrap();
    };
    // Empty and lying in its inode since the consistency point.
    state.consistency_point();
    punch(&mut state, 2_974, 248);
    state.verify();
    write(&mut state, file, 0, vec![1; 5_000], Stability::FileSync).unwrap();
    punch(&mut state, 4_096, 1 << 30);
    let seek = calls::Seek { file, offset: 4_096, target: file_service::SeekTarget::Data };
    let scope = scope(&state);
    assert_eq!(state.query(&Scoped { scope, call: seek }), Err(FsError::NoSuchOffset));
    state.verify();
}

#[test]
fn a_users_write_takes_privileges_away_for_good() {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    for stability in [Stability::FileSync, Stability::Unstable] {
        for stripes in [false, true] {
            let name = format!("{stability:?} {stripes}");
            let file = create(&mut state, root, name.as_bytes()).unwrap();
            let set = SetAttributes { mode: Some(0o6777), ..SetAttributes::default() };
            let set = Scoped { scope: scope(&state), call: calls::SetFileAttributes { file, set } };
            state.mutate(&set).unwrap();
            let mut scope = scope(&state);
            (scope.caller.uid, scope.caller.gid) = (7, 7);
            let data = Bytes::from_static(b"x");
            let request = Scoped { scope, call: calls::Write { file, offset: 9, data, stability } };
            let written = state.write(&request, stripes).unwrap();
            assert_eq!(written.change.after.mode, 0o777);
            state.mutate(&calls::Commit::of(file)).unwrap();
            state.restart();
            assert_eq!(state.query(&calls::GetAttributes { file }).unwrap().mode, 0o777, "{name}");
        }
    }
}

#[test]
fn where_data_lies_is_told_to_who_may_read_or_has_it_open() {
    let (mut state, _, file) = with_file(b"f");
    write(&mut state, file, 0, vec![1; 5_000], Stability::FileSync).unwrap();
    let mut seek = |uid, has_opened| {
        let mut scope = scope(&state);
        (scope.caller.uid, scope.caller.gid, scope.caller.has_opened) = (uid, uid, has_opened);
        let target = file_service::SeekTarget::Hole;
        state.query(&Scoped { scope, call: calls::Seek { file, offset: 0, target } })
    };
    assert_eq!(seek(7, false), Err(FsError::AccessDenied));
    assert_eq!((seek(7, true), seek(0, false)), (Ok(5_000), Ok(5_000)));
}

//! Quotas: what owners use is counted exactly, and nobody uses more than he may.

mod trees;

use super::*;
use crate::{Limits, Listed, Quota, QuotaChange, QuotaKey, QuotaKind, QuotaList, QuotaTarget};
use file_service::calls;
use platform::completion::promise;
use units::Fbn;
use volume::SnapshotRequest;

const BLOCK: usize = units::BLOCK_SIZE;
/// A write takes no more than 32 blocks.
const PIECE_BLOCKS: usize = 16;

fn user(id: u32) -> QuotaKey {
    QuotaKey { kind: QuotaKind::User, id }
}

fn group(id: u32) -> QuotaKey {
    QuotaKey { kind: QuotaKind::Group, id }
}

fn blocks(hard_blocks: u64) -> Limits {
    Limits { hard_blocks, ..Limits::default() }
}

fn files(hard_files: u64) -> Limits {
    Limits { hard_files, ..Limits::default() }
}

fn caller(uid: u32, gid: u32) -> Caller {
    Caller { uid, gid, ..Caller::root() }
}

impl Node {
    fn limit(&self, target: QuotaTarget, limits: Option<Limits>) {
        let changes = vec![QuotaChange { target, limits }];
        self.wait(|done| self.engine.set_quotas("home", changes, done)).unwrap();
    }

    fn limit_one(&self, key: QuotaKey, limits: Limits) {
        self.limit(QuotaTarget::One(key), Some(limits));
    }

    fn quotas_of(&self, volume: &str, listed: Listed) -> QuotaList {
        self.consistency_point();
        let wanted = Arc::new(());
        self.wait(|done| self.engine.quotas(volume, listed, &wanted, done)).unwrap()
    }

    fn quota(&self, key: QuotaKey) -> Quota {
        self.quotas_of("home", Listed::One(key)).quotas[0]
    }

    fn used(&self, key: QuotaKey) -> (u64, u64) {
        let quota = self.quota(key);
        (quota.used_blocks, quota.used_files)
    }

    fn make_as(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &str,
    ) -> Result<FileHandle, FsError> {
        let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
        let create = calls::Create { directory, name: name.as_bytes().to_vec(), mode, set };
        self.ask_as(caller, create).map(|(entry, _)| entry.handle)
    }

    fn put(&self, file: FileHandle, first: u64, count: usize) -> Result<(), FsError> {
        for (index, piece) in content(first, count * BLOCK).chunks(PIECE_BLOCKS * BLOCK).enumerate()
        {
            let offset = (first as usize + index * PIECE_BLOCKS) * BLOCK;
            let (offset, stability) = (offset as u64, Stability::FileSync);
            let data = Bytes::copy_from_slice(piece);
            self.ask(calls::Write { file, offset, data, stability })?;
        }
        Ok(())
    }

    fn give(&self, file: FileHandle, uid: Option<u32>, gid: Option<u32>) -> Result<(), FsError> {
        let set = SetAttributes { uid, gid, ..SetAttributes::default() };
        self.ask(calls::SetFileAttributes { file, set }).map(drop)
    }

    fn drop_file(&self, directory: FileHandle, name: &str) {
        self.ask(calls::Remove { directory, name: name.as_bytes().to_vec() }).unwrap();
    }
}

/// A node with the volume `home`, whose root anybody may write in.
fn start(seed: u64) -> (Node, FileHandle) {
    let node = Node::create(&SimulatedWorld::new(seed), RaidKind::Raid4, false);
    let root = node.root("home");
    let set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    node.ask(calls::SetFileAttributes { file: root, set }).unwrap();
    (node, root)
}

#[test]
fn nobody_uses_more_than_he_may() {
    let (node, root) = start(300);
    let (alice, bob) = (caller(1000, 100), caller(1001, 100));
    node.limit_one(user(1000), blocks(64));
    let file = node.make_as(&alice, root, "a").unwrap();
    let other = node.make_as(&bob, root, "b").unwrap();
    node.put(file, 0, 60).unwrap();
    assert_eq!(node.put(file, 60, 5), Err(FsError::OverQuota));
    node.put(file, 60, 4).unwrap();
    assert_eq!(node.put(file, 64, 1), Err(FsError::OverQuota));
    node.put(other, 0, 100).unwrap();
    assert_eq!(node.used(user(1000)), (64, 1));
    assert_eq!(node.used(user(1001)), (100, 1));
    assert_eq!(node.used(group(100)), (164, 2));
    for round in 0..3 {
        node.put(file, round, 40).unwrap();
        assert_eq!(node.put(file, 200, 1), Err(FsError::OverQuota), "round {round}");
    }
    let set = SetAttributes { size: Some(30 * BLOCK as u64), ..SetAttributes::default() };
    node.ask(calls::SetFileAttributes { file, set }).unwrap();
    node.put(file, 100, 34).unwrap();
    assert_eq!(node.put(file, 200, 1), Err(FsError::OverQuota));
    node.drop_file(root, "a");
    let file = node.make_as(&alice, root, "a").unwrap();
    node.put(file, 0, 64).unwrap();
    assert_eq!(node.used(user(1000)), (64, 1));
}

#[test]
fn nobody_has_more_files_than_he_may() {
    let (node, root) = start(301);
    let alice = caller(1000, 100);
    node.limit_one(user(1000), files(3));
    for name in ["a", "b", "c"] {
        node.make_as(&alice, root, name).unwrap();
    }
    assert_eq!(node.make_as(&alice, root, "d"), Err(FsError::OverQuota));
    node.drop_file(root, "b");
    node.make_as(&alice, root, "d").unwrap();
    assert_eq!(node.make_as(&alice, root, "e"), Err(FsError::OverQuota));
    assert_eq!(node.used(user(1000)).1, 3);
    // A large file is freed in several consistency points.
    let large = node.make_as(&alice, root, "d").unwrap();
    node.put(large, 0, 400).unwrap();
    node.drop_file(root, "d");
    node.make_as(&alice, root, "d").unwrap();
    assert_eq!(node.make_as(&alice, root, "e"), Err(FsError::OverQuota));
    node.limit(QuotaTarget::One(user(1000)), None);
    node.make_as(&alice, root, "e").unwrap();
}

#[test]
fn a_file_counts_to_whom_it_is_given() {
    let (node, root) = start(302);
    let file = node.make_as(&caller(1000, 100), root, "a").unwrap();
    node.put(file, 0, 50).unwrap();
    node.limit_one(user(1001), blocks(40));
    node.limit_one(group(200), blocks(60));
    assert_eq!(node.give(file, Some(1001), None), Err(FsError::OverQuota));
    node.give(file, Some(1002), Some(200)).unwrap();
    assert_eq!(node.put(file, 50, 20), Err(FsError::OverQuota), "of the group");
    assert_eq!(node.used(user(1000)), (0, 0));
    assert_eq!(node.used(user(1002)), (50, 1));
    assert_eq!((node.used(group(100)), node.used(group(200))), ((0, 0), (50, 1)));
    node.put(file, 50, 10).unwrap();
    node.give(file, None, Some(201)).unwrap();
    node.put(file, 60, 10).unwrap();
}

#[test]
fn files_that_were_there_are_counted() {
    let (node, root) = start(303);
    for number in 0..100 {
        let file = node.make_as(&caller(1000 + number % 5, 7), root, &number.to_string()).unwrap();
        node.put(file, 0, 2).unwrap();
    }
    assert!(!node.quotas_of("home", Listed::From(Fbn(0), 0)).is_counting);
    node.limit(QuotaTarget::Others(QuotaKind::User), Some(blocks(50)));
    let list = node.quotas_of("home", Listed::From(Fbn(0), 0));
    assert!(list.is_counting && list.are_all_counted, "{list:?}");
    let of_users =
        list.quotas.iter().filter(|one| one.key.kind == QuotaKind::User && one.key.id > 0);
    let used: Vec<_> = of_users.map(|one| (one.used_blocks, one.used_files, one.is_own)).collect();
    assert_eq!(used, vec![(40, 20, false); 5]);
    assert_eq!(node.used(group(7)), (200, 100));
    let file = node.make_as(&caller(1000, 7), root, "more").unwrap();
    assert_eq!(node.put(file, 0, 11), Err(FsError::OverQuota), "the limit of the others");
    node.put(file, 0, 10).unwrap();
    node.limit_one(user(1000), blocks(60));
    node.put(file, 10, 10).unwrap();
    // Those of user 0 are its own only.
    let of_root = node.create_file(root, "of root").unwrap();
    node.put(of_root, 0, 200).unwrap();
}

#[test]
fn quotas_survive_a_power_cut() {
    let (node, root) = start(304);
    node.limit_one(user(1000), blocks(100));
    let file = node.make_as(&caller(1000, 100), root, "a").unwrap();
    node.put(file, 0, 60).unwrap();
    node.consistency_point();
    // In the log only.
    node.put(file, 60, 40).unwrap();
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(node.put(file, 100, 1), Err(FsError::OverQuota));
    assert_eq!(node.used(user(1000)), (100, 1));
    assert_eq!(node.quota(user(1000)).limits, blocks(100));
}

#[test]
fn what_was_promised_is_replayed_whatever_the_limit() {
    let (node, root) = start(305);
    node.limit_one(user(1000), blocks(100));
    let file = node.make_as(&caller(1000, 100), root, "a").unwrap();
    node.put(file, 0, 10).unwrap();
    node.limit_one(user(1000), blocks(20));
    node.put(file, 10, 10).unwrap();
    assert_eq!(node.put(file, 20, 1), Err(FsError::OverQuota));
    node.limit_one(user(1000), blocks(5));
    node.put(file, 0, 20).unwrap();
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(node.used(user(1000)), (20, 1));
    node.put(file, 0, 20).unwrap();
    assert_eq!(node.put(file, 20, 1), Err(FsError::OverQuota));
}

#[test]
fn snapshots_and_clones_have_the_quotas_of_their_time() {
    let (node, root) = start(306);
    let request = |request| node.wait(|done| node.engine.request_snapshot("home", request, done));
    request(SnapshotRequest::Create("before".to_owned())).unwrap();
    node.limit_one(user(1000), blocks(50));
    let file = node.make_as(&caller(1000, 100), root, "a").unwrap();
    node.put(file, 0, 50).unwrap();
    request(SnapshotRequest::Create("with".to_owned())).unwrap();
    node.limit_one(user(1000), blocks(70));
    node.put(file, 50, 20).unwrap();
    request(SnapshotRequest::Restore("with".to_owned())).unwrap();
    assert_eq!(node.used(user(1000)), (50, 1));
    assert_eq!(node.put(file, 50, 1), Err(FsError::OverQuota));
    let clone_of = |snapshot: &str, name: &str| {
        let clone = crate::CloneRequest {
            volume: "home".to_owned(),
            snapshot: snapshot.to_owned(),
            names: vec![name.to_owned()],
            exports: Vec::new(),
            guarantee: None,
        };
        node.wait(|done| node.engine.create_clones(clone, done)).unwrap();
    };
    clone_of("with", "copy");
    let list = node.quotas_of("copy", Listed::One(user(1000)));
    assert_eq!((list.quotas[0].used_blocks, list.quotas[0].limits), (50, blocks(50)));
    clone_of("before", "bare");
    assert!(!node.quotas_of("bare", Listed::One(user(1000))).is_counting);
    let file = node.make_as(&caller(1000, 100), node.root("bare"), "a").unwrap();
    node.put(file, 0, 200).unwrap();
}

/// Files of many owners are counted in several consistency points, while they change.
#[test]
fn counting_goes_on_beside_changes_and_after_a_power_cut() {
    for cut_after in [None, Some(0), Some(2)] {
        let (mut node, root) = start(307);
        let mut made = Vec::new();
        for number in 0..200 {
            let name = number.to_string();
            let file = node.make_as(&caller(64 * number, 7), root, &name).unwrap();
            node.put(file, 0, 1).unwrap();
            made.push((file, name));
        }
        node.consistency_point();
        let changes =
            vec![QuotaChange { target: QuotaTarget::One(group(7)), limits: Some(blocks(1000)) }];
        let begun = promise(|done| node.engine.set_quotas("home", changes, done));
        for (number, (file, name)) in made.iter().enumerate() {
            match number % 4 {
                0 => node.drop_file(root, name),
                1 => node.give(*file, Some(5000), None).unwrap(),
                2 => node.put(*file, 1, 1).unwrap(),
                _ => {}
            }
            if number % 20 == 0 {
                node.consistency_point();
            }
            if cut_after.is_some_and(|rounds| number == rounds * 20 + 1) {
                node = Node::open(&node.power_cut()).0;
            }
        }
        drop(begun);
        node.consistency_point();
        node.limit_one(group(8), blocks(1));
        for _ in 0..20 {
            node.consistency_point();
        }
        let list = node.quotas_of("home", Listed::One(group(7)));
        assert!(list.are_all_counted, "{cut_after:?}");
        assert_eq!(node.used(group(7)), (200, 150), "{cut_after:?}");
        assert_eq!(node.used(user(5000)), (50, 50), "{cut_after:?}");
        assert_eq!(node.used(user(64)), (0, 0), "{cut_after:?}");
        assert_eq!(node.used(user(128)), (2, 1), "{cut_after:?}");
    }
}

#[test]
fn a_traditional_volume_has_quotas_too() {
    let node = Node::create(&SimulatedWorld::new(308), RaidKind::Raid4, true);
    let root = node.root("a1");
    let file = node.create_file(root, "a").unwrap();
    node.put(file, 0, 10).unwrap();
    node.give(file, Some(1000), None).unwrap();
    let target = QuotaTarget::One(user(1000));
    let changes = vec![QuotaChange { target, limits: Some(blocks(30)) }];
    node.wait(|done| node.engine.set_quotas("a1", changes, done)).unwrap();
    assert!(node.quotas_of("a1", Listed::One(user(1000))).are_all_counted);
    node.put(file, 10, 20).unwrap();
    assert_eq!(node.put(file, 30, 1), Err(FsError::OverQuota));
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(node.put(file, 30, 1), Err(FsError::OverQuota));
    assert_eq!(node.quotas_of("a1", Listed::One(user(1000))).quotas[0].used_blocks, 30);
}

#[test]
fn what_is_attached_to_a_file_counts_as_its_owners() {
    let (node, root) = start(309);
    node.limit_one(user(1000), blocks(20));
    let file = node.make_as(&caller(1000, 100), root, "a").unwrap();
    let attach = |name: &str, bytes: usize| {
        let (name, value) = (format!("user.{name}").into_bytes(), vec![7; bytes]);
        let mode = file_service::XattrSetMode::Either;
        node.ask(calls::SetXattr { file, name, value, mode, drops_setgid: false })
    };
    attach("a", 10 * BLOCK).unwrap();
    assert_eq!(node.used(user(1000)), (11, 1));
    assert_eq!(attach("b", 10 * BLOCK), Err(FsError::OverQuota));
    node.give(file, Some(1001), None).unwrap();
    assert_eq!((node.used(user(1000)), node.used(user(1001))), ((0, 0), (11, 1)));
}

/// Users that own nothing yet, and numbers far apart, whose records make the quota file deep.
#[test]
fn any_number_has_a_quota() {
    let (node, root) = start(310);
    let ids = [1, 65_534, 1 << 20, 1 << 30, u32::MAX - 1];
    for id in ids {
        node.limit_one(user(id), blocks(8));
        let file = node.make_as(&caller(id, id), root, &id.to_string()).unwrap();
        node.put(file, 0, 8).unwrap();
        assert_eq!(node.put(file, 8, 1), Err(FsError::OverQuota), "user {id}");
    }
    let (node, _) = Node::open(&node.power_cut());
    for id in ids {
        assert_eq!((node.used(user(id)), node.used(group(id))), ((8, 1), (8, 1)), "user {id}");
    }
}

#[test]
fn a_soft_limit_is_told_and_refuses_nothing() {
    let (node, root) = start(311);
    let soft = Limits { soft_blocks: 10, hard_files: 1, ..Limits::default() };
    node.limit_one(user(1000), soft);
    let ledger = || node.engine.volume_named("home").unwrap();
    let file = node.make_as(&caller(1000, 100), root, "a").unwrap();
    node.put(file, 0, 10).unwrap();
    node.consistency_point();
    assert_eq!(ledger().quota_ledger().take_passed(), []);
    node.put(file, 10, 10).unwrap();
    node.consistency_point();
    node.put(file, 20, 10).unwrap();
    node.consistency_point();
    let passed = ledger().quota_ledger().take_passed();
    let told: Vec<_> = passed.iter().map(|one| (one.key, one.limits, one.used)).collect();
    assert_eq!(told, [(user(1000), soft, (20, 1))], "once");
    // A new limit below what is used.
    node.limit_one(user(1000), Limits { soft_blocks: 40, ..soft });
    assert_eq!(ledger().quota_ledger().take_passed(), []);
    node.limit_one(user(1000), soft);
    assert_eq!(ledger().quota_ledger().take_passed().len(), 1);
    assert_eq!(node.make_as(&caller(1000, 100), root, "b"), Err(FsError::OverQuota));
    assert_eq!(node.make_as(&caller(1000, 100), root, "b"), Err(FsError::OverQuota));
    let refusals = ledger().quota_ledger().take_refusals();
    assert_eq!(
        refusals.iter().map(|one| (one.key, one.more)).collect::<Vec<_>>(),
        [(user(1000), (0, 1))]
    );
}

/// A user who waits for what he frees does not wait where a group's limit refuses him anyway.
#[test]
fn regression_the_refusal_of_one_owner_does_not_wait_for_another() {
    let (node, root) = start(316);
    node.limit_one(user(1000), blocks(10));
    node.limit_one(group(100), blocks(20));
    let full = node.make_as(&caller(1001, 100), root, "full").unwrap();
    node.put(full, 0, 20).unwrap();
    let own = node.make_as(&caller(1000, 200), root, "own").unwrap();
    node.put(own, 0, 10).unwrap();
    let file = node.make_as(&caller(1000, 100), root, "a").unwrap();
    node.consistency_point();
    node.drop_file(root, "own");
    let committed = || node.engine.aggregate_summaries()[0].consistency_points;
    let before = committed();
    assert_eq!(node.put(file, 0, 1), Err(FsError::OverQuota));
    assert_eq!(committed(), before, "nothing was waited for");
    let ledger = node.engine.volume_named("home").unwrap();
    let refused: Vec<_> = ledger.quota_ledger().take_refusals().iter().map(|one| one.key).collect();
    assert_eq!(refused, [group(100)]);
}

/// The content of a tiny file takes no block until the file grows, whichever block is written then.
#[test]
fn regression_content_that_leaves_the_inode_is_charged() {
    let (node, root) = start(312);
    node.limit_one(user(1000), blocks(11));
    let alice = caller(1000, 100);
    let put = |file, offset: u64, byte: u8| {
        let (data, stability) = (Bytes::from(vec![byte]), Stability::FileSync);
        node.ask(calls::Write { file, offset, data, stability }).map(drop)
    };
    let full = node.make_as(&alice, root, "full").unwrap();
    node.put(full, 0, 10).unwrap();
    let tiny = node.make_as(&alice, root, "tiny").unwrap();
    put(tiny, 5, 1).unwrap();
    let other = node.make_as(&alice, root, "other").unwrap();
    put(other, 5, 1).unwrap();
    node.put(full, 10, 1).unwrap();
    assert_eq!(node.used(user(1000)), (11, 3));
    // In its inode it may change.
    put(tiny, 7, 2).unwrap();
    for (file, offset) in [(tiny, 4096), (other, 200), (other, 1 << 20)] {
        assert_eq!(put(file, offset, 3), Err(FsError::OverQuota), "at {offset}");
    }
    let set = SetAttributes { size: Some(50_000), ..SetAttributes::default() };
    let grow = calls::SetFileAttributes { file: other, set };
    assert_eq!(node.ask(grow).map(drop), Err(FsError::OverQuota));
    assert_eq!(node.used(user(1000)), (11, 3));
}

/// What is written over counts twice until the next image.
#[test]
fn regression_a_file_that_was_written_over_is_given_away_if_it_fits() {
    let (node, root) = start(313);
    node.limit_one(user(1001), blocks(60));
    let file = node.make_as(&caller(1000, 100), root, "a").unwrap();
    node.put(file, 0, 40).unwrap();
    node.consistency_point();
    node.put(file, 0, 40).unwrap();
    node.give(file, Some(1001), None).unwrap();
    assert_eq!(node.used(user(1001)), (40, 1));
}

/// Content that leaves the inode has no dirty block by which it could be charged.
#[test]
fn regression_content_on_its_way_out_of_the_inode_is_charged_to_a_new_group() {
    let (node, root) = start(314);
    node.limit_one(group(200), blocks(2));
    let mut files = Vec::new();
    for name in ["a", "b", "c"] {
        let file = node.make_as(&caller(1000, 100), root, name).unwrap();
        let (data, stability) = (Bytes::from(vec![7; 100]), Stability::FileSync);
        node.ask(calls::Write { file, offset: 0, data, stability }).unwrap();
        files.push(file);
    }
    node.consistency_point();
    for file in &files {
        let set = SetAttributes { size: Some(1 << 20), ..SetAttributes::default() };
        node.ask(calls::SetFileAttributes { file: *file, set }).unwrap();
    }
    let given: Vec<_> = files.iter().map(|file| node.give(*file, None, Some(200))).collect();
    assert_eq!(given, [Ok(()), Ok(()), Err(FsError::OverQuota)]);
    assert_eq!(node.used(group(200)), (2, 2));
}

/// A member of the group that frees nothing, again and again, has nobody wait for ever.
#[test]
fn regression_who_frees_nothing_keeps_nobody_waiting() {
    let (node, root) = start(315);
    node.limit_one(group(100), blocks(10));
    let full = node.make_as(&caller(1000, 100), root, "full").unwrap();
    node.put(full, 0, 10).unwrap();
    let sparse = node.make_as(&caller(1001, 100), root, "sparse").unwrap();
    let set = SetAttributes { size: Some(1 << 20), ..SetAttributes::default() };
    node.ask(calls::SetFileAttributes { file: sparse, set }).unwrap();
    let data = Bytes::from(content(1, BLOCK));
    let stability = Stability::FileSync;
    let write = calls::Write { file: full, offset: 1 << 20, data, stability };
    let waiting = promise(|done| write.send(&node.service, &Caller::root(), done));
    for _ in 0..40 {
        let allocation = file_service::Allocation::PunchHole;
        let (offset, length) = (8192, 4096);
        node.ask(calls::Allocate { file: sparse, allocation, offset, length }).unwrap();
        node.consistency_point();
        if let Some(answer) = waiting.lock().take() {
            assert_eq!(answer.map(drop), Err(FsError::OverQuota));
            return;
        }
    }
    panic!("it waits still");
}

//! The media that the engine writes, looked at by the independent reader: after work of every kind,
//! after power cuts, with snapshots that are made, deleted and restored.
//!
//! The engine is a dependency of this test alone.

#![allow(clippy::unwrap_used, reason = "a test's helpers")]

mod logs;
mod node;

use bytes::Bytes;
use dblade::EngineError;
use file_service::{Caller, CreateMode, Done, FileService, SetAttributes, Stability, calls};
use inspect::{ContentHasher, Finding, InspectError, Inspector};
use model_fs::{Image, Mix, Numbers};
use node::{DISKS, Node};
use ondisk::label::RaidKind;
use std::collections::BTreeMap;
use volume::SnapshotRequest;

impl Node {
    /// A restored image's map has the blocks of the snapshot table and the summary map as they were
    /// when the snapshot was made; the restore writes both anew and does not know which the old
    /// ones are. They are lost, a few at each restore; nothing else may be wrong.
    #[track_caller]
    fn expect_clean_but_lost(&self, when: &str) {
        let mut report = self.check();
        report.findings.retain(|finding| !matches!(finding, Finding::MapExtra { .. }));
        assert!(report.is_clean(), "{when}: {report}");
    }

    /// Everything that clients see, and everything that is on media, is the same.
    #[track_caller]
    fn expect_same_tree(&self) {
        let mut drive = || {
            self.run();
        };
        let seen = Image::capture(&*self.service, self.root(), &mut drive).unwrap();
        self.consistency_point();
        let files = self.inspect(|inspector| inspector.tree(self.volume, None).unwrap());
        let found: BTreeMap<Vec<u8>, _> = files
            .into_iter()
            .map(|file| (file.path.get(1..).unwrap_or_default().to_vec(), file))
            .collect();
        let paths: Vec<_> = found.keys().collect();
        assert_eq!(paths, seen.nodes.keys().collect::<Vec<_>>());
        for (path, node) in &seen.nodes {
            let file = &found[path];
            let expected = (node.mode, node.links, node.uid, node.gid);
            assert_eq!((file.mode.into(), file.links, file.uid, file.gid), expected, "{path:?}");
            assert_eq!(file.device, node.device, "{path:?}");
            assert_eq!(file.target, node.text, "{path:?}");
            assert_eq!(file.xattrs, node.xattrs, "{path:?}");
            if file.kind == ondisk::inode::KIND_REGULAR {
                let mut hasher = ContentHasher::new();
                node.blocks.iter().for_each(|(fbn, block)| hasher.block(*fbn, block));
                assert_eq!((file.size, file.content), (node.size, hasher.finish(node.size)));
            }
        }
    }
}

/// Work of every kind, a check now and then.
fn work(seed: u64, kind: RaidKind, traditional: bool) {
    let mut node = Node::create(seed, kind, traditional);
    node.settle();
    node.expect_clean("new");
    let world = node.world.clone();
    let mut numbers = || world.choose(u64::MAX);
    for round in 0..8 {
        let mut executor = node.executor();
        for _ in 0..80 {
            let operation = Mix::EVERYTHING.operation(&mut Numbers(&mut numbers));
            executor.run(&operation, &mut || {
                node.run();
            });
        }
        if round % 2 == 0 {
            node.consistency_point();
        }
        node.settle();
        node.expect_clean(&format!("seed {seed} round {round}"));
        if round % 3 == 2 {
            node = node.power_cut();
            node.expect_clean(&format!("seed {seed} round {round}, after a power cut"));
        }
    }
    node.expect_same_tree();
    node.expect_clean(&format!("seed {seed}, at the end"));
}

#[test]
fn flexible_volumes() {
    (0..6).for_each(|seed| work(seed, RaidKind::Raid4, false));
    (6..9).for_each(|seed| work(seed, RaidKind::None, false));
}

#[test]
fn traditional_volumes() {
    (20..26).for_each(|seed| work(seed, RaidKind::Raid4, true));
}

/// Snapshots made and deleted amid work; what they hold never changes.
fn snapshots(seed: u64, traditional: bool, restores: bool) {
    let node = Node::create(seed, RaidKind::Raid4, traditional);
    let world = node.world.clone();
    let mut numbers = || world.choose(u64::MAX);
    let mut digests: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..24 {
        let mut executor = node.executor();
        for _ in 0..40 {
            let operation = Mix::EVERYTHING.operation(&mut Numbers(&mut numbers));
            executor.run(&operation, &mut || {
                node.run();
            });
        }
        let old = digests.keys().nth(world.choose(4) as usize).cloned();
        let what = match (world.choose(4), old) {
            (0, Some(old)) => {
                node.snapshot(SnapshotRequest::Delete(old.clone())).unwrap();
                digests.remove(&old);
                format!("delete {old}")
            }
            (1, Some(old)) if restores => {
                node.snapshot(SnapshotRequest::Restore(old.clone())).unwrap();
                digests.retain(|name, _| *name <= old);
                format!("restore {old}")
            }
            _ => {
                let name = format!("s{round:02}");
                node.snapshot(SnapshotRequest::Create(name.clone())).unwrap();
                node.settle();
                let digest = node.inspect(|i| i.snapshot_digest(node.volume, &name).unwrap());
                digests.insert(name.clone(), digest);
                format!("create {name}")
            }
        };
        node.settle();
        let when = format!("seed {seed} round {round}: {what}");
        if restores {
            node.expect_clean_but_lost(&when);
        } else {
            node.expect_clean(&when);
        }
        for (name, digest) in &digests {
            let found = node.inspect(|inspector| inspector.snapshot_digest(node.volume, name));
            assert_eq!(found, Ok(*digest), "seed {seed} round {round}: {what}: {name}");
        }
    }
    node.expect_same_tree();
}

#[test]
fn snapshots_of_flexible_volumes() {
    (40..46).for_each(|seed| snapshots(seed, false, false));
}

#[test]
fn snapshots_of_traditional_volumes() {
    (50..54).for_each(|seed| snapshots(seed, true, false));
}

#[test]
fn restored_volumes() {
    (60..66).for_each(|seed| snapshots(seed, false, true));
}

#[test]
fn volumes_come_and_go() {
    let node = Node::create(80, RaidKind::Raid4, false);
    node.create_volume("other").unwrap();
    let mut executor = node.executor();
    let world = node.world.clone();
    let mut numbers = || world.choose(u64::MAX);
    for _ in 0..60 {
        let operation = Mix::DATA.operation(&mut Numbers(&mut numbers));
        executor.run(&operation, &mut || {
            node.run();
        });
    }
    node.consistency_point();
    assert_eq!(node.check().totals.volumes, 2);
    node.expect_clean("two volumes");
    node.wait(|done| node.engine.delete_volume("home", done)).unwrap();
    node.settle();
    let report = node.check();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.totals.volumes, 1);
}

/// Rot of any block in use of a raid4 aggregate is told as what it is.
#[test]
fn rot_is_told() {
    let node = Node::create(90, RaidKind::Raid4, false);
    let mut executor = node.executor();
    let world = node.world.clone();
    let mut numbers = || world.choose(u64::MAX);
    for _ in 0..200 {
        let operation = Mix::DATA.operation(&mut Numbers(&mut numbers));
        executor.run(&operation, &mut || {
            node.run();
        });
    }
    node.consistency_point();
    node.expect_clean("before");
    let image = world.snapshot();
    let mut told = BTreeMap::new();
    for round in 0..300 {
        let disk = format!("disk{}", world.choose(DISKS as u64));
        // The first regions: where most blocks in use are. Every fourth time their last blocks,
        // which hold the identities.
        let block = match round % 4 {
            0 => 16 + 63 + 64 * world.choose(2),
            _ => 16 + world.choose(64 * 2),
        };
        world.flip_bit(&disk, block, world.choose(32_768) as usize);
        let report = node.check();
        let kind = match report.findings.as_slice() {
            [] => "none",
            [Finding::Damaged { repairable: true, .. }] => "damaged",
            [Finding::Parity { .. }] => "parity",
            [Finding::Identity { .. }] => "identity",
            _ => panic!("{disk} block {block}: {report}"),
        };
        *told.entry(kind).or_insert(0) += 1;
        world.restore(&image);
    }
    assert!(
        told["damaged"] > 5
            && told.contains_key("identity")
            && told["parity"] > 5
            && told.contains_key("none"),
        "{told:?}"
    );
}

/// Number 0 of a traditional volume is in use and is no block: a snapshot's map has it, and what is
/// beside it on the disk is nobody's.
#[test]
fn what_is_beside_number_0_is_nobodys() {
    let node = Node::create(92, RaidKind::Raid4, true);
    node.snapshot(SnapshotRequest::Create("one".to_owned())).unwrap();
    node.consistency_point();
    node.expect_clean("before");
    node.world.fail_block("disk1", 16 + 63);
    node.expect_clean("no identity of the first stripes can be read");
}

/// More snapshots than one consistency point releases, deleted in two batches: the second begins
/// while the first is under way, in the middle of a snapshot. Each snapshot is the last that holds
/// some block, and all before it hold it, too.
fn delete_many_snapshots(extra: usize) {
    let node = Node::create(95, RaidKind::Raid4, false);
    let caller = Caller::root();
    let root = node.root();
    let names: Vec<String> = (0..150).map(|number| format!("s{number:03}")).collect();
    for name in &names {
        let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
        let create = |done: Done<_>| {
            node.service.create(
                &caller,
                calls::Create { directory: root, name: name.as_bytes().to_vec(), mode, set },
                done,
            );
        };
        let (entry, _) = node.wait(create).unwrap();
        let data = Bytes::from(vec![7; 1000]);
        let write = |done: Done<_>| {
            node.service.write(
                &caller,
                calls::Write {
                    file: entry.handle,
                    offset: 0,
                    data,
                    stability: Stability::FileSync,
                },
                done,
            );
        };
        node.wait(write).unwrap();
    }
    for name in &names {
        node.snapshot(SnapshotRequest::Create(name.clone())).unwrap();
        let remove = |done: Done<_>| {
            node.service.remove(
                &caller,
                calls::Remove { directory: root, name: name.as_bytes().to_vec() },
                done,
            )
        };
        node.wait(remove).unwrap();
    }
    node.consistency_point();
    node.expect_clean("150 snapshots");
    let ask = |request: SnapshotRequest| {
        let done = Box::new(|outcome: Result<(), EngineError>| outcome.unwrap());
        node.engine.request_snapshot("home", request, done);
    };
    for number in 0..extra {
        ask(SnapshotRequest::Create(format!("extra{number}")));
    }
    node.consistency_point_only();
    names[20..].iter().for_each(|name| ask(SnapshotRequest::Delete(name.clone())));
    node.consistency_point_only();
    names[..20].iter().for_each(|name| ask(SnapshotRequest::Delete(name.clone())));
    node.settle();
    node.expect_clean(&format!("deleted, {extra} merged beside it"));
}

#[test]
fn many_snapshots_are_deleted_at_once() {
    (0..4).for_each(delete_many_snapshots);
}

/// Overwrites, appends and frees in many consistency points.
fn churn(node: &Node, points: usize) {
    let world = node.world.clone();
    let mut numbers = || world.choose(u64::MAX);
    for _ in 0..points {
        let mut executor = node.executor();
        for _ in 0..40 {
            let operation = Mix::EVERYTHING.operation(&mut Numbers(&mut numbers));
            executor.run(&operation, &mut || {
                node.run();
            });
        }
        node.consistency_point();
    }
    node.settle();
}

fn pin(node: &Node) -> Result<aggregate::ImagePin, aggregate::PinError> {
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    node.wait(|done| aggregate.pin_image(1 << 20, done))
}

/// A pinned image is whole however much is written beside it; what was kept for it is given again
/// when the pin ends.
fn pinned(seed: u64, kind: RaidKind, traditional: bool) {
    let node = Node::create(seed, kind, traditional);
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    let unpin = |number| node.wait(|done| aggregate.unpin_image(number, done));
    churn(&node, 6);
    let free = |node: &Node| {
        node.consistency_point();
        node.settle();
        aggregate.parts.shared.budget.free_blocks() + aggregate.used_blocks()
    };
    let all = free(&node);
    let first = pin(&node).unwrap();
    assert!(matches!(pin(&node), Err(aggregate::PinError::UnderWay)));
    churn(&node, 8);
    let held = aggregate.pinned_blocks(first.number).unwrap();
    assert!(held > 5, "seed {seed}: {held}");
    assert_eq!(all - free(&node), aggregate.pinned_blocks(first.number).unwrap(), "seed {seed}");
    let scope = inspect::Scope::ONLINE;
    let report = node.inspect(|inspector| {
        assert!(inspector.superblock().cp() > first.cp);
        inspector.pin(&first.superblock).unwrap();
        inspector.check_scope(scope, None).unwrap()
    });
    assert!(report.is_clean(), "seed {seed}: {report}");
    assert_eq!(report.totals.stripes, 0);
    unpin(first.number).unwrap();
    assert!(matches!(unpin(first.number), Err(aggregate::PinError::Over)));
    assert_eq!(free(&node), all, "seed {seed}: what was kept is free again");
    churn(&node, 4);
    node.expect_clean(&format!("seed {seed}, at the end"));
}

#[test]
fn a_pinned_image_is_whole_until_the_pin_ends() {
    (200..204).for_each(|seed| pinned(seed, RaidKind::Raid4, false));
    pinned(204, RaidKind::Dp, false);
    pinned(205, RaidKind::None, true);
}

/// Pieces of 64 KiB in a large file: a quarter of what is free.
const PIECES: u64 = 380;

fn big_file(node: &Node) -> file_service::FileHandle {
    let (caller, root) = (Caller::root(), node.root());
    let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
    let made = node.wait(|done: Done<_>| {
        node.service.create(
            &caller,
            calls::Create { directory: root, name: b"big".to_vec(), mode, set },
            done,
        );
    });
    made.unwrap().0.handle
}

fn write_piece(
    node: &Node,
    file: file_service::FileHandle,
    piece: u64,
) -> Result<(), file_service::FsError> {
    let data = Bytes::from(vec![node.world.choose(250) as u8 + 1; 64 << 10]);
    let written = node.wait(|done: Done<_>| {
        let caller = Caller::root();
        node.service.write(
            &caller,
            calls::Write { file, offset: piece << 16, data, stability: Stability::Unstable },
            done,
        );
    });
    written.map(drop)
}

/// Writes all of a large file, with a consistency point after it.
fn write_pieces(node: &Node, file: file_service::FileHandle) {
    (0..PIECES).for_each(|piece| write_piece(node, file, piece).unwrap());
    node.consistency_point();
}

/// Writers get the room that a pin keeps, and the reader learns it.
#[test]
fn a_pin_is_given_up_when_writers_need_the_room() {
    let node = Node::create(210, RaidKind::Raid4, false);
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    let file = big_file(&node);
    write_pieces(&node, file);
    let first = pin(&node).unwrap();
    // All of it is written over: more than is free beside it.
    write_pieces(&node, file);
    let given_up = aggregate.pinned_blocks(first.number);
    assert!(matches!(given_up, Err(aggregate::PinError::Room { .. })), "{given_up:?}");
    write_pieces(&node, file);
    let ended = node.wait(|done| aggregate.unpin_image(first.number, done));
    assert!(matches!(ended, Err(aggregate::PinError::Room { .. })), "{ended:?}");
    node.settle();
    node.expect_clean("at the end");
    let second = pin(&node).unwrap();
    assert!(second.number > first.number);
}

/// A start opens the newest image, though a bit of its number has rotted, and the check looked at
/// the one before. Where more has rotted the start is refused, and the check says nothing of the
/// image before either.
#[test]
fn regression_a_check_reads_the_image_that_a_start_opens() {
    let mut node = Node::create(7, RaidKind::Raid4, false);
    node.settle();
    churn(&node, 6);
    let newest = node.inspect(|inspector| inspector.superblock().cp());
    let is_newest = |slot: &u64| {
        let block = node.world.read_block("disk0", 8 + slot).unwrap();
        ondisk::root::Superblock::from_block(&block).is_ok_and(|found| found.cp() == newest)
    };
    let slot = (0..2).find(is_newest).unwrap();
    let rot = |bit: usize| {
        for disk in 0..DISKS {
            node.world.flip_bit(&format!("disk{disk}"), 8 + slot, bit);
        }
    };
    rot(48 * 8 + 1);
    assert_eq!(node.inspect(|inspector| inspector.superblock().cp()), newest);
    rot(48 * 8 + 1);
    rot(300 * 8);
    let world = node.world.clone();
    let mut drive = move || {
        world.run_until_idle();
    };
    let opened = Inspector::open(node.disks(), &mut drive).map(drop);
    assert!(matches!(opened, Err(InspectError::SuperblockRotten { .. })), "{opened:?}");
    rot(300 * 8);
    node = node.power_cut();
    node.expect_clean("opened");
}

//! Aggregates that leave service for good, and those that could not be made.

use super::*;
use crate::LogRemoval;
use media::LABEL_BLOCK;
use units::VolumeUuid;

/// Takes steps until the engine answers; false if it does not.
fn answers(
    node: &Node,
    start: impl FnOnce(Box<dyn FnOnce(Result<(), crate::EngineError>) + Send>),
) -> bool {
    let promise = completion::promise(start);
    node.settle();
    promise.lock().take().is_some()
}

/// A last consistency point would wait for the log, and the caller with it.
#[test]
fn regression_a_log_that_hangs_keeps_no_aggregate_in_service() {
    let world = SimulatedWorld::new(3);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let root = node.root("home");
    node.write_file(root, "file", content(1, 50_000));
    let identity = node.engine.aggregate_named("a1").unwrap().parts.identity.aggregate;
    world.set_hung("log", true);
    // A write waits for the log.
    let write = completion::promise(|done| {
        let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
        let create = calls::Create { directory: root, name: b"more".to_vec(), mode, set };
        create.send(&node.service, &Caller::root(), done);
    });
    node.settle();
    assert!(write.lock().is_none());
    assert!(answers(&node, |done| node.engine.retire_aggregate("a1", done)));
    assert!(node.engine.aggregates().is_empty() && node.engine.volumes().is_empty());
    assert_eq!(node.read_file(root, "file"), Err(FsError::Stale));
    assert!(!node.engine.is_closed(&identity), "its log has a request");
    assert!(answers(&node, |done| node.engine.stop(done)), "others stop without it");
    world.set_hung("log", false);
    node.settle();
    assert!(node.engine.is_closed(&identity), "something is left");
    assert_eq!(node.engine.memory_blocks().1, 0, "dirty memory was not given back");
}

/// While nobody knows the volumes of one aggregate, those of a deleted one are gone all the same.
#[test]
fn regression_volumes_of_a_deleted_aggregate_are_gone_though_another_is_away() {
    let world = SimulatedWorld::new(4);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let (root, unknown) = (node.root("home"), AggregateUuid([9; 16]));
    node.engine.expect_aggregate(unknown);
    for disk in [1, 2] {
        world.set_gone(&format!("disk{disk}"), true);
    }
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    let identity = aggregate.parts.identity.aggregate;
    let names = || node.engine.volumes_of(&identity).map(|all| all.into_iter().map(|one| one.1));
    assert_eq!(names().unwrap().collect::<Vec<_>>(), ["home"]);
    aggregate.force();
    node.wait(|done| aggregate.request_consistency_point(Some(done))).unwrap_err();
    drop(aggregate);
    node.engine.tick();
    node.settle();
    assert_eq!(names().unwrap().collect::<Vec<_>>(), ["home"]);
    assert!(!node.engine.is_gone(root.volume));
    node.engine.forget_deleted(identity);
    assert!(node.engine.is_gone(root.volume));
    assert_eq!(node.read_file(root, "file"), Err(FsError::Stale));
    let of_the_other = FileHandle { volume: VolumeUuid([1; 16]), ..root };
    assert_eq!(node.read_file(of_the_other, "file"), Err(FsError::Offline));
    assert!(names().is_none() && node.engine.volumes_of(&unknown).is_none());
}

/// A device of logs may be gone, or have the log of another aggregate.
#[test]
fn a_log_that_cannot_be_looked_at_is_told_as_left() {
    let world = SimulatedWorld::new(5);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let identity = node.engine.aggregate_named("a1").unwrap().parts.identity.aggregate;
    let remove = |identity| {
        let mut copies = node.engine.log_copies_outside(identity);
        node.wait(|done| copies.pop().unwrap().remove(done))
    };
    assert!(answers(&node, |done| node.engine.retire_aggregate("a1", done)));
    let before = world.read_block("log", 0);
    assert_eq!(remove(AggregateUuid([9; 16])).unwrap(), LogRemoval::Removed);
    assert!(before == world.read_block("log", 0), "it is the log of another aggregate");
    world.set_gone("log", true);
    assert!(!matches!(remove(identity), Ok(LogRemoval::Removed)));
    world.set_gone("log", false);
    assert_eq!(remove(identity).unwrap(), LogRemoval::Removed);
    assert!(world.read_block("log", 0).unwrap().is_zero());
}

/// The labels stayed, and another aggregate of the same name could not be told from it later.
#[test]
fn regression_an_aggregate_that_cannot_be_made_leaves_its_disks_free() {
    for lost in ["log", "disk2", "image"] {
        let world = SimulatedWorld::new(6);
        world.add_disk("log", 1412);
        for disk in 0..DISKS {
            world.add_disk(&format!("disk{disk}"), DISK_BLOCKS);
        }
        let node = Node::start(&world);
        let create = |disks| CreateAggregate::new("a1", RaidKind::Raid4, disks);
        let make = |disks| {
            let made =
                completion::promise(|done| node.engine.create_aggregate(create(disks), done));
            // It is answered when nothing is left of what could not be made.
            for _ in 0..2 {
                node.settle();
                node.engine.tick();
            }
            made.lock().take().unwrap()
        };
        let set_lost = |is_lost| match lost {
            "log" => world.set_gone(lost, is_lost),
            // Labels are written, and the first consistency point is not.
            "image" => node.disks().iter().for_each(|disk| {
                let blocks = 64..DISK_BLOCKS - 64;
                blocks.for_each(|block| world.fail_writes(disk.name(), block, is_lost));
            }),
            _ => world.fail_writes(lost, LABEL_BLOCK, is_lost),
        };
        set_lost(true);
        make(node.disks()).unwrap_err();
        node.settle();
        set_lost(false);
        // What was written of the label of the disk that failed is not looked for.
        for disk in node.disks().into_iter().filter(|disk| disk.name() != lost) {
            let label = node.wait(|done| media::read_label(&disk, done));
            assert!(label.is_err(), "{lost}: {label:?}");
        }
        let sound = node.disks().into_iter().filter(|disk| disk.name() != lost);
        make(sound.collect()).unwrap();
    }
}

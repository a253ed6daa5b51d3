//! Putting aggregates together, and refusing to.

use super::model::*;
use crate::*;
use ondisk::label::RaidKind::{None as Unprotected, Raid4};
use platform::Disk;
use platform::simulated::SimulatedWorld;
use std::sync::Arc;
use units::{Block, DiskUuid, Pvbn, Timestamp};

fn refusal(world: &SimulatedWorld, disks: Vec<Arc<dyn Disk>>) -> String {
    let journal = Arc::new(NoPartialParityLog);
    let result = world.wait(|done| assemble(disks, journal, Timestamp(0), done));
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

fn named(world: &SimulatedWorld, names: &[&str]) -> Vec<Arc<dyn Disk>> {
    names.iter().map(|name| world.disk(name).unwrap() as Arc<dyn Disk>).collect()
}

fn create_on(
    world: &SimulatedWorld,
    kind: ondisk::label::RaidKind,
    names: &[&str],
) -> Result<Store, RaidError> {
    let request = CreateRequest {
        name: names.concat(),
        groups: vec![GroupRequest { kind, disks: named(world, names) }],
        created: Timestamp(0),
        force: false,
        media: None,
        log_regions: 0,
    };
    world.wait(|done| create(request, world, Arc::new(NoPartialParityLog), done))
}

#[test]
fn disks_are_labelled_as_what_they_tell_or_as_is_given() {
    let world = SimulatedWorld::new(1);
    for name in ["a", "b", "c"] {
        world.add_disk(name, DISK_BLOCKS);
    }
    let given = media::Profile::Smr { zone_bytes: 64 << 20 };
    for (media, shown) in [(None, "ssd:4MiB"), (Some(given), "smr:64MiB")] {
        let request = CreateRequest {
            name: "pool".to_owned(),
            groups: vec![GroupRequest { kind: Raid4, disks: named(&world, &["a", "b"]) }],
            created: Timestamp(0),
            force: true,
            media,
            log_regions: 0,
        };
        let created =
            world.wait(|done| create(request, &world, Arc::new(NoPartialParityLog), done));
        let opened = world.wait(|done| {
            let disks = named(&world, &["a", "b"]);
            assemble(disks, Arc::new(NoPartialParityLog), Timestamp(1), done);
        });
        for store in [created.unwrap(), opened.unwrap()] {
            let status = store.status();
            let members = status.groups.iter().flat_map(|group| &group.members);
            let found: Vec<_> =
                members.map(|member| member.media.map(|media| media.to_string())).collect();
            assert_eq!(found, [Some(shown.to_owned()), Some(shown.to_owned())]);
        }
        // One that is not there is not known.
        let store = world.wait(|done| {
            assemble(named(&world, &["b"]), Arc::new(NoPartialParityLog), Timestamp(2), done);
        });
        let store = store.unwrap();
        assert_eq!(store.status().groups[0].members[0].media, None);
        // What takes its place is labelled like the others of its group.
        let (place, disk) = (DiskPlace { group: 0, member: 0 }, world.disk("c").unwrap());
        world.wait(|done| store.replace_disk(place, disk, DiskUuid([7; 16]), None, done)).unwrap();
        let replaced = store.status().groups[0].members[0].media;
        assert_eq!(replaced.map(|media| media.to_string()).as_deref(), Some(shown));
    }
}

#[test]
fn wrong_disks_are_refused_by_name() {
    let world = SimulatedWorld::new(1);
    for name in ["a", "b", "c", "d", "e", "f"] {
        world.add_disk(name, DISK_BLOCKS);
    }
    create_on(&world, Raid4, &["a", "b", "c"]).unwrap();
    create_on(&world, Unprotected, &["d"]).unwrap();
    let refused = |names: &[&str]| refusal(&world, named(&world, names));
    assert_eq!(refused(&[]), "no disk of the aggregate was found");
    assert_eq!(refused(&["a", "b", "e"]), "disk e is not a Stroop disk: it has no label");
    assert_eq!(refused(&["a", "b", "d"]), "disk d is of aggregate 'd', disk a of aggregate 'abc'");
    assert!(refused(&["a"]).starts_with("group 0 is short of 2 of its 3 disks and can do without"));
    assert_eq!(refused(&["a", "b", "a"]), "a and a are the same disk, or a copy of it");
    assert_eq!(refused(&["c", "a", "b"]), "");
    assert_eq!(refused(&["c", "b"]), "");
    let taken = create_on(&world, Raid4, &["e", "a"]).err().unwrap().to_string();
    assert!(taken.contains("disk a holds a part of the Stroop aggregate 'abc'"), "{taken}");
    assert_eq!(refused(&["e"]), "disk e is not a Stroop disk: it has no label", "not touched");
    let few = create_on(&world, Raid4, &["e"]).err().unwrap().to_string();
    assert_eq!(few, "a raid4 group takes 2 to 32 disks, not 1");
    let twice = create_on(&world, Raid4, &["e", "e"]).err().unwrap().to_string();
    assert_eq!(twice, "e and e are the same disk, or a copy of it");
}

/// The disk that was replaced long ago was blamed, and the missing ones were not named.
#[test]
fn regression_a_replaced_disk_is_not_blamed_for_disks_that_are_missing() {
    let world = SimulatedWorld::new(1);
    for name in ["a", "b", "c", "d"] {
        world.add_disk(name, DISK_BLOCKS);
    }
    create_on(&world, Raid4, &["a", "b", "c"]).unwrap();
    let store = world.wait(|done| {
        assemble(named(&world, &["a", "b"]), Arc::new(NoPartialParityLog), Timestamp(1), done);
    });
    let (place, disk) = (DiskPlace { group: 0, member: 2 }, world.disk("d").unwrap());
    let store = store.unwrap();
    world.wait(|done| store.replace_disk(place, disk, DiskUuid([7; 16]), None, done)).unwrap();
    let found = refusal(&world, named(&world, &["a", "c"]));
    assert!(found.starts_with("group 0 is short of 2 of its 3 disks"), "{found}");
    assert!(found.contains("attach disk 1 (") && found.contains(", disk 2 ("), "{found}");
    assert!(found.ends_with("; disk c was replaced, and does not count"), "{found}");
}

#[test]
fn a_missing_disk_may_return_if_nothing_was_written() {
    let mut model = Model::new(1, &[(Raid4, 3)]);
    model.write(Pvbn(5));
    assert_eq!(model.sync(), Ok(()));
    model.world.set_gone("g0d0", true);
    model.reassemble().unwrap();
    assert!(model.store.status().is_degraded());
    model.check();
    model.world.set_gone("g0d0", false);
    model.reassemble().unwrap();
    assert!(!model.store.status().is_degraded());
    model.world.set_gone("g0d0", true);
    model.reassemble().unwrap();
    model.write(Pvbn(6));
    assert_eq!(model.sync(), Ok(()));
    model.world.set_gone("g0d0", false);
    model.reassemble().unwrap();
    let status = model.store.status();
    assert_eq!(status.groups[0].members[0].state, MemberState::Missing);
    assert_eq!(status.groups[0].members[0].name.as_deref(), Some("g0d0"));
    model.check();
}

#[test]
fn superblocks_are_on_every_disk() {
    let mut model = Model::new(1, &[(Raid4, 3), (Unprotected, 1)]);
    let one = Arc::new(Block::from_prefix(b"one"));
    let two = Arc::new(Block::from_prefix(b"two"));
    let write = |model: &Model, slot, block: &Arc<Block>| {
        model.world.wait(|done| model.store.write_superblock(slot, Arc::clone(block), done))
    };
    let read = |model: &Model| model.world.wait(|done| model.store.read_superblocks(done));
    assert_eq!(write(&model, 0, &one), Ok(()));
    assert_eq!(write(&model, 1, &two), Ok(()));
    model.reassemble().unwrap();
    let copies = read(&model);
    assert_eq!(copies.len(), 8);
    for copy in copies {
        assert_eq!(copy.block, Some(if copy.slot == 0 { one.clone() } else { two.clone() }));
    }
    // A disk that is gone while one is written does not speak later.
    model.world.set_gone("g0d1", true);
    assert_eq!(write(&model, 0, &two), Ok(()));
    model.world.power_cut();
    model.world.set_gone("g0d1", false);
    model.reassemble().unwrap();
    let copies = read(&model);
    assert_eq!(copies.len(), 6);
    assert!(copies.iter().all(|copy| copy.block.as_ref() == Some(&two)));
}

/// A disk that came back offered a superblock of a time before it went, which had been on its way
/// then and is on no other disk.
#[test]
fn regression_superblocks_of_a_disk_that_came_back_do_not_vote() {
    let mut model = Model::new(2, &[(Raid4, 3)]);
    let blocks: Vec<_> = (0..4_u8).map(|byte| Arc::new(Block::from_prefix(&[byte]))).collect();
    let write = |model: &Model, slot, block: usize| {
        model.world.wait(|done| {
            model.store.write_superblock(slot, Arc::clone(&blocks[block]), done);
        })
    };
    let read = |model: &Model| model.world.wait(|done| model.store.read_superblocks(done));
    assert_eq!(write(&model, 0, 1), Ok(()));
    assert_eq!(write(&model, 1, 2), Ok(()));
    // Slot 0 of one disk has what never came to the others.
    model.world.write_block("g0d1", media::SUPERBLOCK_BLOCK, &blocks[3]);
    model.world.set_gone("g0d1", true);
    model.reassemble().unwrap();
    model.write(Pvbn(6));
    assert_eq!(model.sync(), Ok(()));
    assert_eq!(write(&model, 0, 1), Ok(()));
    model.world.set_gone("g0d1", false);
    model.reassemble().unwrap();
    model.store.resume();
    model.world.run_until_idle();
    let is_old = |copy: &SuperblockCopy| copy.block.as_ref() == Some(&blocks[3]);
    assert!(read(&model).iter().all(|copy| copy.disk != "g0d1"), "it is not whole");
    assert_eq!(write(&model, 1, 2), Ok(()));
    model.world.run_until_idle();
    assert!(!model.store.status().is_degraded());
    model.reassemble().unwrap();
    let copies = read(&model);
    assert_eq!(copies.len(), 6);
    assert!(!copies.iter().any(is_old), "the old superblock speaks");
}

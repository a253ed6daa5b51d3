//! Aggregates that lose groups: beside writes, with cuts at every step, and disks that come back
//! when their group is no more.

use super::growth::{Growing, new_disk};
use super::model::*;
use crate::*;
use media::{MediaError, Profile};
use ondisk::label::RaidKind::{self, Dp, None as Unprotected, Raid4, Tp};
use ondisk::scrub::ScrubPhase;
use platform::simulated::{Fate, SimulatedWorld};
use platform::{Clock, Disk};
use std::sync::Arc;
use units::{Dbn, Pvbn, Timestamp};

const SHAPES: [(RaidKind, usize); 3] = [(Raid4, 3), (Dp, 4), (Raid4, 3)];

/// The groups that there are.
fn left(model: &Model) -> Vec<u32> {
    let geometry = model.store.geometry();
    let groups = (0..).zip(geometry.groups());
    groups.filter(|(_, group)| !group.is_removed()).map(|(index, _)| index).collect()
}

/// One of some.
fn one_of<T: Copy>(model: &Model, some: &[T]) -> T {
    some[model.choose(some.len() as u64) as usize]
}

/// Writes to places of some groups that hold nothing, in the first regions of any data disk.
fn write_some(model: &mut Model, groups: &[u32], count: u64) {
    let geometry = model.store.geometry();
    for _ in 0..count {
        let group = one_of(model, groups);
        let disk = model.choose(geometry.group(group).data_disks() as u64) as usize;
        let location = Location { group, disk, stripe: Dbn(1 + model.choose(63 * 3)) };
        let pvbn = geometry.pvbn(location).unwrap();
        if !model.blocks.contains_key(&pvbn) {
            model.write(pvbn);
        }
    }
}

/// Begins to remove a group.
fn begin(model: &Model, group: u32) -> Growing {
    let answer: Growing = Arc::default();
    let told = Arc::clone(&answer);
    model.store.remove_group(group, Box::new(move |result| *told.lock() = Some(result)));
    answer
}

fn remove(model: &mut Model, group: u32) -> Result<(), RaidError> {
    let answer = begin(model, group);
    model.world.run_until_idle();
    let answer = answer.lock().take().expect("answered");
    forget_removed(model);
    answer
}

/// What was in groups that are no more is nobody's.
fn forget_removed(model: &mut Model) {
    let geometry = model.store.geometry();
    model.blocks.retain(|pvbn, _| geometry.locate(*pvbn).is_some());
}

/// A consistency point, by which notes are forgotten.
fn commit(model: &mut Model) {
    model.commit();
    model.notes.lock().clear();
}

/// A start with the disks that are there.
fn start(model: &mut Model) {
    model.reassemble().unwrap();
    let notes = model.noted();
    let recovered = model.world.wait(|done| model.store.recover_stripes(notes, done));
    assert_eq!(recovered, Ok(()));
    model.store.resume();
}

fn cut(model: &mut Model) {
    model.store.abandon();
    model.world.power_cut();
}

/// Whether a disk has a label.
fn is_labelled(world: &SimulatedWorld, name: &str) -> bool {
    let disk: Arc<dyn Disk> = world.disk(name).unwrap();
    let label = world.wait(|done| media::read_label(&disk, done));
    // Torn when it was erased, it is none either.
    !matches!(label, Err(MediaError::NoLabel { .. } | MediaError::DamagedLabel { .. }))
}

fn add_group(model: &Model, kind: RaidKind, disks: usize) {
    let group = model.store.geometry().groups().len();
    let disks = (0..disks).map(|disk| new_disk(model, group, disk)).collect();
    let groups = vec![NewGroup { kind, disks }];
    assert_eq!(model.world.wait(|done| model.store.add_groups(groups, done)), Ok(()));
}

fn add_disk(model: &Model, group: u32) {
    let disks = model.store.geometry().group(group).disks();
    let disks = vec![new_disk(model, group as usize, disks)];
    let add = |done| model.store.add_disks(group, disks, &Arc::default(), done);
    assert_eq!(model.world.wait(add), Ok(()));
}

/// Removes a group beside writes to the others.
fn remove_beside_writes(model: &mut Model, group: u32) {
    let others: Vec<u32> = left(model).into_iter().filter(|other| *other != group).collect();
    let removing = begin(model, group);
    while removing.lock().is_none() {
        if model.choose(8) == 0 {
            write_some(model, &others, 5);
            model.store.sync(Box::new(|result| assert_eq!(result, Ok(()))));
        }
        model.world.step();
    }
    assert_eq!(removing.lock().take(), Some(Ok(())));
    forget_removed(model);
    assert_eq!(left(model), others);
}

/// Groups and disks come and groups go: what stays is where it was, and no number is given twice.
fn run(seed: u64) {
    let kinds = [(Raid4, 3), (Dp, 4), (Tp, 5), (Unprotected, 1)];
    let mut model = Model::new(seed, &SHAPES[..2 + (seed % 2) as usize]);
    for _ in 0..7 {
        let groups = left(&model);
        write_some(&mut model, &groups, 60);
        commit(&mut model);
        let before = model.store.geometry();
        match model.choose(5) {
            0..3 if groups.len() > 1 => {
                let group = one_of(&model, &groups);
                remove_beside_writes(&mut model, group);
                let after = model.store.geometry();
                assert_eq!(after.end(), before.end());
                let members = 0..before.group(group).disks();
                let mut names = members.map(|disk| disk_name(group as usize, disk));
                assert!(!names.any(|name| is_labelled(&model.world, &name)));
            }
            3 if before.group(groups[0]).kind != Unprotected => add_disk(&model, groups[0]),
            _ => {
                let (kind, disks) = one_of(&model, &kinds);
                add_group(&model, kind, disks);
            }
        }
        let after = model.store.geometry();
        for (old, new) in before.groups().iter().zip(after.groups()) {
            assert!(new.is_removed() || new.bases.starts_with(&old.bases));
        }
        let bases = after.groups().iter().flat_map(|group| &group.bases);
        let known = |base: &&Pvbn| before.groups().iter().any(|group| group.bases.contains(base));
        assert!(bases.filter(|base| !known(base)).all(|base| *base >= before.end()));
        assert!(!model.store.status().is_degraded());
        model.check();
        model.check_parity();
        if model.choose(2) == 0 {
            commit(&mut model);
            start(&mut model);
            assert_eq!(model.store.geometry(), after);
            assert!(!model.store.status().is_degraded());
            model.check();
        }
    }
}

#[test]
fn groups_come_and_go_and_no_number_is_given_twice() {
    (0..12).for_each(run);
}

/// Cut after so many steps of a removal: the aggregate is as before or without the group, and it
/// stays so whichever disk the next start does without.
fn cut_after(seed: u64, steps: u64) -> (bool, bool) {
    let mut model = Model::new(seed, &SHAPES);
    write_some(&mut model, &[0, 1, 2], 90);
    commit(&mut model);
    let group = model.choose(3) as u32;
    let members = SHAPES[group as usize].1;
    let removing = begin(&model, group);
    (0..steps).for_each(|_| {
        model.world.step();
    });
    let was_answered = removing.lock().is_some();
    cut(&mut model);
    let other = (group as usize + 1 + model.choose(2) as usize) % 3;
    let away = disk_name(other, model.choose(SHAPES[other].1 as u64) as usize);
    model.world.set_gone(&away, true);
    start(&mut model);
    let found = model.store.geometry();
    let is_removed = found.group(group).is_removed();
    assert!(is_removed || !was_answered, "what was answered is kept");
    forget_removed(&mut model);
    // Another cut while the disks are let go of.
    for _ in 0..model.choose(30) {
        model.world.step();
    }
    cut(&mut model);
    start(&mut model);
    assert_eq!(model.store.geometry(), found);
    model.check();
    let groups = left(&model);
    write_some(&mut model, &groups, 60);
    commit(&mut model);
    // With the disk that may have been the only one to know.
    cut(&mut model);
    model.world.set_gone(&away, false);
    start(&mut model);
    assert_eq!(model.store.geometry(), found);
    model.check();
    model.rest();
    if !is_removed {
        assert_eq!(remove(&mut model, group), Ok(()));
    }
    let names: Vec<String> = (0..members).map(|disk| disk_name(group as usize, disk)).collect();
    assert!(!names.iter().any(|name| is_labelled(&model.world, name)), "let go of");
    start(&mut model);
    model.world.run_until_idle();
    let status = model.store.status();
    assert!(!status.is_degraded() && status.leaving_disks.is_empty());
    model.check();
    (was_answered, is_removed)
}

#[test]
fn a_cut_in_the_middle_leaves_the_aggregate_with_the_group_or_without() {
    let (mut answered, mut undone, mut found) = (0, 0, 0);
    for (seed, steps) in (0..4).flat_map(|seed| (0..64).map(move |steps| (seed, steps))) {
        let (was_answered, is_removed) = cut_after(64 * seed + steps, steps);
        answered += u32::from(was_answered);
        undone += u32::from(!is_removed);
        found += u32::from(is_removed && !was_answered);
    }
    assert!(answered > 0 && undone > 0 && found > 0, "{answered} {undone} {found}");
}

/// The power goes when one disk alone says that group 1 was removed.
fn with_one_that_knows(seed: u64, knowing: &str) -> Model {
    let mut model = Model::new(seed, &SHAPES);
    write_some(&mut model, &[0, 1, 2], 60);
    commit(&mut model);
    let names = model.world.disk_names();
    let others: Vec<_> = names.iter().filter(|name| ***name != *knowing).collect();
    others.iter().for_each(|name| model.world.set_hung(name, true));
    let removing = begin(&model, 1);
    model.world.run_until_idle();
    assert!(removing.lock().is_none());
    model.store.abandon();
    model.world.power_cut_with(Fate::AllLost);
    others.iter().for_each(|name| model.world.set_hung(name, false));
    model
}

#[test]
fn one_disk_that_knows_is_enough_and_tells_the_others() {
    for (seed, knowing) in (0..).zip(["g0d0", "g0d2", "g2d0", "g2d1"]) {
        let mut model = with_one_that_knows(seed, knowing);
        start(&mut model);
        assert_eq!(left(&model), [0, 2]);
        forget_removed(&mut model);
        let geometry = model.store.geometry();
        model.check();
        model.world.set_gone(knowing, true);
        start(&mut model);
        assert_eq!(model.store.geometry(), geometry);
        model.check();
    }
}

#[test]
fn a_disk_that_alone_knew_and_was_not_there_is_believed_no_more() {
    for (seed, knowing) in (0..).zip(["g0d0", "g0d2", "g2d0", "g2d1"]) {
        let mut model = with_one_that_knows(seed, knowing);
        model.world.set_gone(knowing, true);
        start(&mut model);
        assert_eq!(left(&model), [0, 1, 2]);
        // What is in use there now would be lost.
        write_some(&mut model, &[1], 30);
        commit(&mut model);
        model.world.set_gone(knowing, false);
        start(&mut model);
        assert_eq!(left(&model), [0, 1, 2]);
        model.rest();
        assert!(!model.store.status().is_degraded());
        model.check();
        assert_eq!(remove(&mut model, 1), Ok(()));
        start(&mut model);
        model.check();
    }
}

/// A disk that was away while its group was removed is of no group when it is back, and what its
/// superblock says does not count.
#[test]
fn a_disk_of_a_removed_group_that_comes_back_is_nobodys() {
    for group in 0..3 {
        let mut model = Model::new(group, &SHAPES);
        write_some(&mut model, &[0, 1, 2], 60);
        model.commit();
        let stale = disk_name(group as usize, model.choose(3) as usize);
        model.world.set_gone(&stale, true);
        write_some(&mut model, &[0, 1, 2], 60);
        model.commit();
        assert!(model.store.status().is_degraded());
        assert_eq!(remove(&mut model, group as u32), Ok(()));
        assert!(!model.store.status().is_degraded(), "what is not there lacks no disk");
        model.commit();
        model.world.set_gone(&stale, false);
        let disk: Arc<dyn Disk> = model.world.disk(&stale).unwrap();
        let returned = model.world.wait(|done| model.store.return_disk(disk, None, done));
        assert_eq!(returned, Err(RaidError::NotMissed { disk: stale.clone() }));
        assert!(is_labelled(&model.world, &stale));
        // Another group goes meanwhile: the stale label knows of neither.
        if model.choose(2) == 0 {
            let other = left(&model)[0];
            assert_eq!(remove(&mut model, other), Ok(()));
        }
        let geometry = model.store.geometry();
        model.reassemble().unwrap();
        assert_eq!(model.store.geometry(), geometry);
        let status = model.store.status();
        assert!(!status.is_degraded());
        assert_eq!(status.leaving_disks, [stale.as_str()]);
        let copies = model.world.wait(|done| model.store.read_superblocks(done));
        assert!(!copies.is_empty() && copies.iter().all(|copy| copy.disk != stale));
        model.check();
        model.store.resume();
        model.world.run_until_idle();
        assert!(!is_labelled(&model.world, &stale));
        assert!(model.store.status().leaving_disks.is_empty());
    }
}

#[test]
fn disks_of_a_removed_group_become_another_aggregate() {
    let mut model = Model::new(1, &SHAPES);
    assert_eq!(remove(&mut model, 0), Ok(()));
    let disks = (0..3).map(|at| model.world.disk(&disk_name(0, at)).unwrap() as Arc<dyn Disk>);
    let request = CreateRequest {
        name: "other".to_owned(),
        groups: vec![GroupRequest { kind: Raid4, disks: disks.collect() }],
        created: Timestamp(1),
        // As those of a spare that was removed: they hold what they held.
        force: true,
        media: None,
        log_regions: 0,
    };
    let world = &model.world;
    let other =
        world.wait(|done| create(request, world, Arc::new(NoPartialParityLog), done)).unwrap();
    write_some(&mut model, &[1, 2], 60);
    model.commit();
    model.check();
    assert!(!other.status().is_degraded());
    drop(other);
    let disks = (0..3).map(|at| model.world.disk(&disk_name(0, at)).unwrap() as Arc<dyn Disk>);
    let disks = disks.collect();
    let now = model.world.wall();
    let world = &model.world;
    let opened =
        world.wait(|done| assemble(disks, Arc::new(NoPartialParityLog), now, done)).unwrap();
    assert_eq!(opened.aggregate().1, "other");
}

/// The labels of the group that is the first then were not written yet, and the others did not say
/// where the log is: it counted as lost.
#[test]
fn regression_the_copies_of_the_log_are_known_when_the_first_group_is_half_gone() {
    // What each step leaves, if only one of the other groups writes its labels.
    for (silent, steps) in [1, 2].into_iter().flat_map(|group| (0..60).map(move |at| (group, at))) {
        let mut model = Model::new(1, &SHAPES);
        model.world.wait(|done| model.store.set_log_copies(&[42], done)).unwrap();
        let disks = 0..SHAPES[silent].1;
        disks.for_each(|at| model.world.set_hung(&disk_name(silent, at), true));
        let removing = begin(&model, 0);
        for _ in 0..steps {
            model.world.step();
        }
        assert!(removing.lock().is_none(), "not all labels say it");
        model.store.abandon();
        model.world.kill();
        (0..SHAPES[silent].1).for_each(|at| model.world.set_hung(&disk_name(silent, at), false));
        start(&mut model);
        assert_eq!(model.store.log_copies().whole(), [42], "{silent}, {steps}");
    }
}

/// The record of scrubs is in the labels of the first group that is left.
#[test]
fn the_last_scrub_is_remembered_when_the_first_group_goes() {
    let mut model = Model::new(1, &SHAPES);
    let start_scrub = |model: &Model| {
        let order = ScrubOrder::Start { rate: None };
        model.world.wait(|done| model.store.scrub(order, Timestamp(7), done))
    };
    assert_eq!(start_scrub(&model), Ok(()));
    assert_eq!(model.store.status().scrub.phase, ScrubPhase::Finished);
    assert_eq!(remove(&mut model, 0), Ok(()));
    start(&mut model);
    let scrub = model.store.status().scrub;
    assert_eq!((scrub.phase, scrub.started), (ScrubPhase::Finished, Timestamp(7)));
    let regions = model.store.geometry().groups().iter().map(|group| group.regions).sum::<u64>();
    assert_eq!(scrub.tetrises, regions);
    assert_eq!(start_scrub(&model), Ok(()));
    start(&mut model);
    let status = model.store.status();
    assert_eq!((status.scrub.phase, status.scrub.damaged), (ScrubPhase::Finished, 0));
}

#[test]
fn what_cannot_be_removed_is_refused() {
    let mut model = Model::new(1, &SHAPES[..2]);
    assert_eq!(remove(&mut model, 2), Err(RaidError::NoSuchGroup { group: 2, count: 2 }));
    // What is queued has not been freed by a consistency point.
    write_some(&mut model, &[0], 1);
    assert_eq!(remove(&mut model, 0), Err(RaidError::Written { group: 0 }));
    model.commit();
    // A superblock is on its way to all disks.
    let block = units::zero_block();
    model.store.write_superblock(0, block, Box::new(|result| assert_eq!(result, Ok(()))));
    assert_eq!(begin(&model, 1).lock().take(), Some(Err(RaidError::Written { group: 1 })));
    model.world.run_until_idle();
    let order = |order| model.world.wait(|done| model.store.scrub(order, Timestamp(1), done));
    assert_eq!(order(ScrubOrder::Start { rate: Some(1) }), Ok(()));
    assert_eq!(order(ScrubOrder::Pause), Ok(()));
    assert_eq!(remove(&mut model, 1), Err(RaidError::ScrubUnderWay));
    model.world.wait(|done| model.store.scrub(ScrubOrder::Stop, Timestamp(1), done)).unwrap();
    // Being filled.
    let place = DiskPlace { group: 1, member: 2 };
    let spare = new_disk(&model, 7, 0);
    let replace = |done| model.store.replace_disk(place, spare.disk, spare.identity, None, done);
    assert_eq!(model.world.wait(replace), Ok(()));
    let disk = "g7d0".to_owned();
    assert_eq!(remove(&mut model, 1), Err(RaidError::Filling { group: 1, disk }));
    model.rest();
    // One change at a time.
    let (first, second) = (begin(&model, 1), begin(&model, 0));
    assert_eq!(second.lock().take(), Some(Err(RaidError::Growing)));
    model.world.run_until_idle();
    assert_eq!(first.lock().take(), Some(Ok(())));
    assert!(!is_labelled(&model.world, "g7d0"));
    forget_removed(&mut model);
    assert_eq!(remove(&mut model, 1), Err(RaidError::RemovedGroup { group: 1 }));
    let disk = new_disk(&model, 8, 0);
    let join = |done| model.store.add_disks(1, vec![disk], &Arc::default(), done);
    assert_eq!(model.world.wait(join), Err(RaidError::RemovedGroup { group: 1 }));
    assert_eq!(remove(&mut model, 0), Err(RaidError::LastGroup { group: 0 }));
    // An object store is not opened from.
    let object = NewDisk { profile: Profile::Object, ..new_disk(&model, 2, 0) };
    let groups = vec![NewGroup { kind: Unprotected, disks: vec![object] }];
    assert_eq!(model.world.wait(|done| model.store.add_groups(groups, done)), Ok(()));
    assert_eq!(remove(&mut model, 0), Err(RaidError::LastGroup { group: 0 }));
    assert_eq!(remove(&mut model, 2), Ok(()));
    start(&mut model);
    assert_eq!(left(&model), [0]);
    model.check();
}

/// A disk that was to have a place in the group comes too late.
#[test]
fn no_disk_gets_a_place_in_a_group_that_goes() {
    let mut late = 0;
    for (steps, is_missing) in (0..60).flat_map(|steps| [(steps, false), (steps, true)]) {
        let mut model = Model::new(steps, &SHAPES);
        let place = DiskPlace { group: 1, member: 2 };
        if is_missing {
            assert_eq!(model.world.wait(|done| model.store.fail_disk(place, done)), Ok(()));
        }
        let NewDisk { disk, identity, .. } = new_disk(&model, 7, 0);
        let answer = Growing::default();
        let told = Arc::clone(&answer);
        let done = Box::new(move |result| *told.lock() = Some(result));
        model.store.replace_disk(place, disk, identity, None, done);
        (0..steps).for_each(|_| {
            model.world.step();
        });
        let removed = remove(&mut model, 1);
        let replaced = answer.lock().take().unwrap();
        match &removed {
            Ok(()) => assert_eq!(replaced, Err(RaidError::NoSuchPlace { group: 1, member: 2 })),
            Err(error) => {
                assert!(matches!(error, RaidError::Filling { .. }), "{error}");
                assert_eq!(replaced, Ok(()));
            }
        }
        late += u32::from(removed.is_ok());
        start(&mut model);
        model.rest();
        let status = model.store.status();
        assert!(!status.is_degraded());
        // One that was labelled as a spare is one; what the other was labelled as is no place.
        let is_spare = removed.is_ok() && !is_missing;
        assert_eq!(status.spares.len(), usize::from(is_spare));
        assert_eq!(is_labelled(&model.world, "g7d0"), removed.is_err() || is_spare);
    }
    assert!((1..120).contains(&late));
}

/// Readers of blocks that nobody uses any more, and disks that fail as they leave: all are
/// answered, and the store goes on.
#[test]
fn what_is_under_way_when_a_group_goes_comes_to_its_end() {
    for steps in 0..40 {
        let mut model = Model::new(steps, &SHAPES);
        write_some(&mut model, &[0, 1, 2], 120);
        model.commit();
        let geometry = model.store.geometry();
        let is_leaving = |pvbn: &Pvbn| geometry.locate(*pvbn).is_some_and(|at| at.group == 1);
        let leaving = model.blocks.clone().into_iter().filter(|(pvbn, _)| is_leaving(pvbn));
        let leaving: Vec<_> = leaving.collect();
        // All of its disks, and so more than it can do without.
        let is_gone = steps % 2 == 1;
        let run_of = model.blocks.clone();
        let answered = Arc::new(platform::sync::Mutex::new(0));
        let runs = Arc::new(platform::sync::Mutex::new(0));
        let read = |count: usize| {
            for (pvbn, block) in leaving.iter().take(count) {
                let (pvbn, answered) = (*pvbn, Arc::clone(&answered));
                let (block, proof) = (Arc::clone(block), proof_of(pvbn, block, false));
                let done = move |result: Result<_, ReadFailure>| {
                    assert!(result.is_err() || result == Ok(block), "{pvbn}");
                    *answered.lock() += 1;
                };
                model.store.read(BlockRead { pvbn, proof }, Box::new(done));
                let (answered, proof) = (Arc::clone(&runs), proof_of(pvbn, &run_of[&pvbn], true));
                let done = move |_: Result<_, ReadFailure>| *answered.lock() += 1;
                model.store.read_run(pvbn, vec![Some(proof)], Box::new(done));
            }
        };
        read(8);
        let removing = begin(&model, 1);
        read(8);
        (0..steps).for_each(|_| {
            model.world.step();
        });
        read(8);
        model.store.sync(Box::new(|_| ()));
        if is_gone && left(&model) == [0, 2] {
            (0..4).for_each(|disk| model.world.set_gone(&disk_name(1, disk), true));
        }
        model.world.run_until_idle();
        assert_eq!((*answered.lock(), *runs.lock()), (24, 24));
        assert_eq!(removing.lock().take(), Some(Ok(())));
        forget_removed(&mut model);
        assert!(!model.store.status().is_degraded());
        assert_eq!(model.sync(), Ok(()));
        model.check();
    }
}

//! Disks that are filled beside those whose places they take, and spares.

use super::model::*;
use super::rebuild::{
    KINDS, begin_replacing, check_without_next, run_but_reads, states, write_some, written_by_seed,
};
use crate::*;
use ondisk::label::RaidKind::{Dp, None as Unprotected};
use platform::{Disk, completion};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use units::{DiskUuid, Pvbn};

/// Not to its end.
fn start(model: &Model, call: impl FnOnce(ReplaceDone)) -> Result<(), RaidError> {
    completion::wait(call, || model.world.step())
}

fn copy(model: &Model, member: usize, name: &str) -> Result<(), RaidError> {
    let disk: Arc<dyn Disk> = match model.world.disk(name) {
        Some(disk) => disk,
        None => model.world.add_disk(name, DISK_BLOCKS + 64),
    };
    let place = DiskPlace { group: 0, member };
    let identity = DiskUuid([77 + model.choose(99) as u8; 16]);
    start(model, |done| model.store.replace_disk(place, disk, identity, None, done))
}

fn names(model: &Model) -> Vec<String> {
    let status = model.store.status();
    status.groups[0].members.iter().filter_map(|member| member.name.clone()).collect()
}

fn check_without_another(model: &mut Model, place: usize, name: &str, disks: usize) {
    model.check();
    model.check_disks_of_parity(&[(place, name)]);
    assert_eq!(names(model)[place], name);
    check_without_next(model, place, disks);
}

/// A group that was written to, of which a disk is being copied to "gnew".
fn copying(seed: u64, writes: u64) -> (Model, usize, usize) {
    let (mut model, place, disks) = written_by_seed(seed, writes);
    model.commit();
    copy(&model, place, "gnew").unwrap();
    (model, place, disks)
}

#[test]
fn a_disk_in_use_is_replaced_without_the_group_being_degraded() {
    for (kind, disks) in KINDS {
        for place in 0..disks {
            let mut model = Model::new(place as u64, &[(kind, disks)]);
            write_some(&mut model, 200);
            model.commit();
            copy(&model, place, "gnew").unwrap();
            let refused = copy(&model, (place + 1) % disks, "gnext").unwrap_err().to_string();
            assert!(refused.contains("is being copied to gnew"), "{refused}");
            for _ in 0..12 {
                for _ in 0..model.choose(80) {
                    model.world.step();
                }
                write_some(&mut model, 10);
                assert!(!model.store.status().is_degraded());
                model.commit();
            }
            model.world.run_until_idle();
            // What it replaced is nobody's.
            let old = disk_name(0, place);
            for end in [0, DISK_BLOCKS - 1] {
                assert_eq!(model.world.read_block(&old, end), Some(units::zero_block()));
            }
            model.world.set_gone(&old, true);
            model.reassemble().unwrap();
            assert!(!model.store.status().is_degraded());
            check_without_another(&mut model, place, "gnew", disks);
        }
    }
}

#[test]
fn a_copy_goes_on_through_cuts() {
    for seed in 0..45 {
        let (mut model, place, disks) = copying(seed, 100);
        let mut rounds = 0;
        while names(&model)[place] != "gnew" {
            model.notes.lock().clear();
            let committed = model.blocks.clone();
            write_some(&mut model, 30);
            let steps = model.choose(900);
            model.cut_and_recover(steps, committed);
            model.check();
            model.commit();
            model.store.resume();
            assert!(!model.store.status().is_degraded());
            rounds += 1;
            if rounds > 6 {
                model.world.run_until_idle();
            }
            assert!(rounds < 9, "{:?}", model.store.status());
        }
        model.world.run_until_idle();
        let old = disk_name(0, place);
        if model.world.read_block(&old, 0) == Some(units::zero_block()) {
            model.world.set_gone(&old, true);
        }
        model.reassemble().unwrap();
        check_without_another(&mut model, place, "gnew", disks);
    }
}

#[test]
fn a_copy_whose_source_fails_goes_on_as_a_rebuild() {
    for seed in 0..30 {
        let (mut model, place, disks) = copying(seed, 150);
        model.commit();
        for _ in 0..model.choose(800) {
            model.world.step();
        }
        model.world.set_gone(&disk_name(0, place), true);
        write_some(&mut model, 40);
        let committed = model.blocks.clone();
        model.commit();
        if seed % 2 == 0 {
            model.notes.lock().clear();
            model.cut_and_recover(0, committed);
            model.store.resume();
        }
        model.world.run_until_idle();
        assert!(!model.store.status().is_degraded(), "{seed} {:?}", model.store.status());
        model.world.set_gone(&disk_name(0, place), false);
        check_without_another(&mut model, place, "gnew", disks);
    }
}

/// That a copy waits costs nothing; that a rebuild does, redundancy. A copy that an operator had
/// wait became a rebuild that waits, and nothing was told of it.
#[test]
fn regression_a_held_copy_whose_source_fails_goes_on() {
    for seed in 0..6 {
        let (mut model, place, _) = copying(seed, 150);
        for _ in 0..model.choose(800) {
            model.world.step();
        }
        let of = DiskPlace { group: 0, member: place };
        assert!(model.store.hold_filling(of, true) && model.store.limit_filling(of, Some(1)));
        model.world.run_until_idle();
        assert!(model.store.status().fillings.iter().any(|filling| filling.is_held));
        model.world.set_gone(&disk_name(0, place), true);
        write_some(&mut model, 40);
        model.commit();
        model.world.run_until_idle();
        assert!(!model.store.status().is_degraded(), "{seed} {:?}", model.store.status());
    }
}

/// Two who want one spare at the same moment, as an administrator and the node itself may, both
/// found it before one of them took it away: one disk was labelled for two places.
#[test]
fn regression_a_spare_is_taken_by_one() {
    let identity = DiskUuid([99; 16]);
    for round in 0..20 {
        let model = Model::new(round, &[(Dp, 4), (Dp, 4)]);
        let spare: Arc<dyn Disk> = model.world.add_disk("gspare", DISK_BLOCKS);
        model.world.wait(|done| model.store.add_spare(spare, identity, done)).unwrap();
        let (refused, both) = (Arc::new(AtomicU32::new(0)), Barrier::new(2));
        std::thread::scope(|scope| {
            for group in [0, 1] {
                let (store, both, refused) = (&model.store, &both, Arc::clone(&refused));
                scope.spawn(move || {
                    let taken = move |outcome| {
                        let is_refused = matches!(outcome, Err(RaidError::NoSuchSpare { .. }));
                        refused.fetch_add(u32::from(is_refused), Ordering::Relaxed);
                    };
                    both.wait();
                    let place = DiskPlace { group, member: 1 };
                    store.take_spare(place, identity, None, Box::new(taken));
                });
            }
        });
        model.world.run_until_idle();
        assert_eq!(refused.load(Ordering::Relaxed), 1, "round {round}");
    }
}

/// Work is under way when the disk that it reads from goes and the copy takes its place. In a
/// region that was copied the new disk must be written by it; in another it has nothing to be read.
#[test]
fn work_uses_a_copy_that_took_a_place_only_where_it_had_been_made() {
    for ((kind, disks), is_copied) in KINDS.into_iter().flat_map(|of| [(of, false), (of, true)]) {
        let (parity, per_disk) = (kind.parity_disks(), 63 * 63);
        let (gone, held) = (disk_name(0, parity + 1), disk_name(0, parity + 2));
        let mut model = Model::new(disks as u64, &[(kind, disks)]);
        for stripe in 70..80 {
            model.write(Pvbn(per_disk + stripe));
            model.write(Pvbn(2 * per_disk + stripe));
        }
        assert_eq!(model.sync(), Ok(()));
        model.reassemble().unwrap();
        let begin_work = |model: &mut Model| {
            model.write(Pvbn(75));
            model.write(Pvbn(per_disk + 85));
            model.store.sync(Box::new(|result| assert_eq!(result, Ok(()))));
            run_but_reads(model, 1, &[&gone, &held]);
        };
        let answer = if is_copied {
            // It waits for a superblock.
            let answer = begin_replacing(&model, parity + 1, "gnew");
            model.world.run_until_idle();
            begin_work(&mut model);
            answer
        } else {
            begin_work(&mut model);
            begin_replacing(&model, parity + 1, "gnew")
        };
        run_but_reads(&model, 1, &[&gone, &held]);
        assert_eq!(answer.lock().take(), Some(Ok(())));
        assert!(!model.store.status().is_degraded());
        model.world.set_gone(&gone, true);
        run_but_reads(&model, 1, &[&held]);
        assert_eq!(names(&model)[parity + 1], "gnew");
        model.rest();
        assert!(!model.store.status().is_degraded(), "{kind} {:?}", states(&model));
        // Before anything is read and repaired.
        model.check_disks_of_parity(&[(parity + 1, "gnew")]);
        model.check();
    }
}

/// The label of a disk that is being filled names those that joined meanwhile.
#[test]
fn a_group_grows_while_a_disk_is_copied() {
    for seed in 0..24 {
        let (mut model, place, disks) = copying(seed, 100);
        model.commit();
        for _ in 0..model.choose(400) {
            model.world.step();
        }
        let joining = disk_name(0, disks);
        let new = NewDisk {
            disk: model.world.add_disk(&joining, DISK_BLOCKS),
            identity: DiskUuid([3; 16]),
            profile: media::Profile::Hdd,
        };
        start(&model, |done| model.store.add_disks(0, vec![new], &Arc::default(), done)).unwrap();
        let source_fails = seed % 2 == 0;
        if source_fails {
            model.world.set_gone(&disk_name(0, place), true);
        }
        let geometry = model.store.geometry();
        let parity = KINDS[seed as usize % 3].0.parity_disks();
        let first = geometry.group(0).bases[disks - parity];
        (0..100).for_each(|block| model.write(first.offset(block)));
        model.commit();
        if seed % 4 < 2 {
            model.notes.lock().clear();
            let committed = model.blocks.clone();
            model.cut_and_recover(0, committed);
            model.store.resume();
            model.commit();
        }
        model.world.run_until_idle();
        assert!(!model.store.status().is_degraded(), "{seed} {:?}", model.store.status());
        model.world.set_gone(&disk_name(0, place), false);
        model.reassemble().unwrap();
        assert!(!model.store.status().is_degraded(), "{seed} {:?}", model.store.status());
        assert_eq!(*model.store.geometry(), *geometry);
        check_without_another(&mut model, place, "gnew", disks + 1);
    }
}

/// It counts for nothing, now and at the next start, and the other disk for all.
#[test]
fn a_copy_that_fails_leaves_all_as_it_was() {
    for seed in 0..20 {
        let (mut model, place, disks) = copying(seed, 150);
        for _ in 0..model.choose(300) {
            model.world.step();
        }
        model.world.set_gone("gnew", true);
        write_some(&mut model, 40);
        model.commit();
        model.world.run_until_idle();
        model.world.set_gone("gnew", false);
        model.reassemble().unwrap();
        model.store.resume();
        model.world.run_until_idle();
        let status = model.store.status();
        assert!(!status.is_degraded());
        assert_eq!(names(&model)[place], disk_name(0, place));
        assert_eq!(status.spares.len(), 1, "it is a spare again");
        let old = disk_name(0, place);
        check_without_another(&mut model, place, &old, disks);
    }
}

#[test]
fn even_the_only_disk_is_replaced() {
    let mut model = Model::new(1, &[(Unprotected, 1)]);
    let write = |model: &mut Model, range: std::ops::Range<u64>| {
        range.for_each(|pvbn| model.write(Pvbn(pvbn)));
        model.commit();
    };
    write(&mut model, 1..200);
    copy(&model, 0, "gnew").unwrap();
    model.world.run_until_idle();
    assert_eq!(names(&model), ["g0d0"], "no superblock yet");
    write(&mut model, 200..300);
    model.world.run_until_idle();
    assert_eq!(names(&model), ["gnew"]);
    write(&mut model, 300..310);
    model.world.set_gone("g0d0", true);
    model.world.power_cut();
    model.reassemble().unwrap();
    model.check();
    let copies = model.world.wait(|done| model.store.read_superblocks(done));
    assert!(copies.iter().any(|copy| copy.block.as_ref().is_some_and(|block| block[0] == 3)));
}

#[test]
fn spares_are_kept_and_take_places() {
    let mut model = Model::new(5, &[(Dp, 5)]);
    write_some(&mut model, 100);
    model.commit();
    let add = |model: &Model, name: &str, blocks: u64, identity: u8| {
        let disk: Arc<dyn Disk> = model.world.add_disk(name, blocks);
        model.world.wait(|done| model.store.add_spare(disk, DiskUuid([identity; 16]), done))
    };
    let refused = add(&model, "gsmall", DISK_BLOCKS - 64, 1).unwrap_err().to_string();
    assert!(refused.starts_with("disk gsmall has "), "{refused}");
    model.world.set_gone("gsmall", true);
    add(&model, "gspare1", DISK_BLOCKS, 2).unwrap();
    add(&model, "gspare2", DISK_BLOCKS * 2, 3).unwrap();
    add(&model, "gspare3", DISK_BLOCKS * 2, 4).unwrap();
    model.world.wait(|done| model.store.remove_spare(DiskUuid([4; 16]), done)).unwrap();
    let gone = model.world.wait(|done| model.store.remove_spare(DiskUuid([4; 16]), done));
    assert_eq!(gone, Err(RaidError::NoSuchSpare { identity: DiskUuid([4; 16]) }));
    model.world.set_gone("gspare3", true);
    model.reassemble().unwrap();
    let spares = model.store.status().spares;
    let found: Vec<_> = spares.iter().map(|spare| (spare.name.as_str(), spare.regions)).collect();
    assert_eq!(found, [("gspare1", 63), ("gspare2", 127)]);
    assert!(!model.store.status().is_degraded());
    model.world.set_gone(&disk_name(0, 1), true);
    write_some(&mut model, 20);
    model.commit();
    let take = |model: &Model, member, identity: u8| {
        let place = DiskPlace { group: 0, member };
        start(model, |done| model.store.take_spare(place, DiskUuid([identity; 16]), None, done))
    };
    take(&model, 1, 2).unwrap();
    // One in use is copied to the other.
    take(&model, 3, 3).unwrap();
    model.commit();
    model.world.run_until_idle();
    model.world.set_gone(&disk_name(0, 1), false);
    model.reassemble().unwrap();
    assert!(model.store.status().spares.is_empty());
    assert_eq!(names(&model)[1], "gspare1");
    assert_eq!(names(&model)[3], "gspare2");
    assert!(states(&model).iter().all(|state| *state == MemberState::Online));
    model.check();
    model.check_disks_of_parity(&[(1, "gspare1"), (3, "gspare2")]);
}

#[test]
fn a_spare_that_comes_too_late_stays_a_spare() {
    let mut late = 0;
    for seed in 0..20 {
        let mut model = Model::new(seed, &[(Dp, 5)]);
        write_some(&mut model, 20);
        model.commit();
        let disk = |name: &str| -> Arc<dyn Disk> { model.world.add_disk(name, DISK_BLOCKS) };
        let (spare, new) = (disk("gspare"), disk("gnew"));
        model.world.wait(|done| model.store.add_spare(spare, DiskUuid([2; 16]), done)).unwrap();
        model.world.set_gone(&disk_name(0, 1), true);
        write_some(&mut model, 20);
        model.commit();
        let place = DiskPlace { group: 0, member: 1 };
        let outcome = Arc::new(platform::sync::Mutex::new(None));
        let told = Arc::clone(&outcome);
        model.store.take_spare(
            place,
            DiskUuid([2; 16]),
            None,
            Box::new(move |end| *told.lock() = Some(end)),
        );
        let placed = start(&model, |done| {
            model.store.replace_disk(place, new, DiskUuid([9; 16]), None, done)
        });
        model.world.run_until_idle();
        let taken = outcome.lock().take().expect("answered");
        assert_ne!(taken.is_ok(), placed.is_ok(), "{taken:?}, {placed:?}");
        model.commit();
        model.world.run_until_idle();
        let expected = if taken.is_ok() { vec![] } else { vec!["gspare".to_owned()] };
        late += expected.len();
        for _ in 0..2 {
            let spares = model.store.status().spares.into_iter();
            assert_eq!(spares.map(|spare| spare.name).collect::<Vec<_>>(), expected, "seed {seed}");
            model.reassemble().unwrap();
        }
        model.check();
    }
    assert!((1..20).contains(&late), "{late} of 20");
}

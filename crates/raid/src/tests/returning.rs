//! Disks that go and come back: what they missed is written and hardly more, through cuts.

use super::model::*;
use super::rebuild::{Answer, KINDS, begin_replacing, states, write_some};
use crate::*;
use platform::simulated::{IoKind, PendingIo};
use std::sync::Arc;
use units::DiskUuid;

/// A disk goes under load, unnoticed blocks and all, and the others go on without it.
fn go(model: &mut Model, lost: usize) {
    model.sync_in_background();
    let steps = model.choose(300);
    for _ in 0..steps {
        model.world.step();
    }
    // What it had not flushed is lost with it.
    model.world.lose_unflushed(&disk_name(0, lost));
    model.world.set_gone(&disk_name(0, lost), true);
    model.commit();
}

fn begin_coming_back(model: &Model, lost: usize) -> Answer {
    let name = disk_name(0, lost);
    model.world.set_gone(&name, false);
    let disk = model.world.disk(&name).unwrap();
    let answer = Answer::default();
    let told = Arc::clone(&answer);
    model.store.return_disk(disk, None, Box::new(move |result| *told.lock() = Some(result)));
    answer
}

fn come_back(model: &Model, lost: usize) -> Result<(), RaidError> {
    let answer = begin_coming_back(model, lost);
    while answer.lock().is_none() && model.world.step() {}
    let answer = answer.lock().take();
    answer.expect("answered")
}

fn is_whole(model: &Model) -> bool {
    states(model).iter().all(|state| *state == MemberState::Online)
}

/// All of it without another disk.
fn check_without_another(model: &mut Model, lost: usize, disks: usize) {
    model.check();
    model.check_parity();
    model.world.set_gone(&disk_name(0, (lost + 1) % disks), true);
    model.reassemble().unwrap();
    model.check();
}

#[test]
fn a_disk_that_returns_is_brought_up_to_date_beside_writes() {
    for (kind, disks) in KINDS {
        for lost in 0..disks {
            for seed in 0..3 {
                let mut model = Model::new(seed * 100 + lost as u64, &[(kind, disks)]);
                write_some(&mut model, 200);
                model.commit();
                write_some(&mut model, 40);
                go(&mut model, lost);
                for _ in 0..3 {
                    write_some(&mut model, 20);
                    model.commit();
                }
                assert!(!is_whole(&model));
                come_back(&model, lost).unwrap();
                for _ in 0..5 {
                    for _ in 0..model.choose(60) {
                        model.world.step();
                    }
                    write_some(&mut model, 10);
                    model.commit();
                }
                model.world.run_until_idle();
                assert!(is_whole(&model), "{kind} {lost} {:?}", states(&model));
                check_without_another(&mut model, lost, disks);
            }
        }
    }
}

#[test]
fn hardly_more_is_written_than_has_changed() {
    for (kind, disks) in KINDS {
        for lost in 0..disks {
            let mut model = Model::new(lost as u64, &[(kind, disks)]);
            write_some(&mut model, 400);
            model.commit();
            write_some(&mut model, 1);
            go(&mut model, lost);
            write_some(&mut model, 5);
            model.commit();
            let before = model.store.status().counters.device_blocks;
            come_back(&model, lost).unwrap();
            model.rest();
            assert!(is_whole(&model), "{kind} {lost} {:?}", states(&model));
            let written = model.store.status().counters.device_blocks - before;
            // Six rows and their checksum blocks, of a parity disk a few whole regions.
            let most = if lost < kind.parity_disks() { 7 * 64 } else { 12 };
            assert!((1..=most).contains(&written), "{kind} {lost}: {written}");
            check_without_another(&mut model, lost, disks);
        }
    }
}

/// It was away at a clean start already, and the next start finds it.
#[test]
fn a_disk_that_returns_at_a_start_is_brought_up_to_date() {
    for (kind, disks) in KINDS {
        for lost in 0..disks {
            let mut model = Model::new(lost as u64, &[(kind, disks)]);
            write_some(&mut model, 300);
            model.commit();
            model.world.set_gone(&disk_name(0, lost), true);
            model.reassemble().unwrap();
            model.store.resume();
            write_some(&mut model, 20);
            model.commit();
            model.reassemble().unwrap();
            write_some(&mut model, 20);
            model.commit();
            model.world.set_gone(&disk_name(0, lost), false);
            model.reassemble().unwrap();
            model.store.resume();
            model.rest();
            assert!(is_whole(&model), "{kind} {lost} {:?}", states(&model));
            let written = model.store.status().counters.device_blocks;
            assert!(written < 24 * 64, "{kind} {lost}: {written}");
            check_without_another(&mut model, lost, disks);
        }
    }
}

#[test]
fn cuts_do_not_harm_a_disk_that_comes_back() {
    for seed in 0..60 {
        let (kind, disks) = KINDS[seed as usize % 3];
        let lost = seed as usize / 3 % disks;
        let mut model = Model::new(seed, &[(kind, disks)]);
        write_some(&mut model, 150);
        model.commit();
        write_some(&mut model, 30);
        go(&mut model, lost);
        write_some(&mut model, 30);
        model.commit();
        // Cuts while it is away, or while it is written, or both.
        let returns = model.choose(3);
        for round in 0..3 {
            if round >= returns && !is_whole(&model) {
                let _ = come_back(&model, lost);
            }
            model.notes.lock().clear();
            let committed = model.blocks.clone();
            write_some(&mut model, 30);
            let steps = model.choose(600);
            model.cut_and_recover(steps, committed);
            model.commit();
            model.store.resume();
            write_some(&mut model, 10);
            model.commit();
            model.check();
        }
        model.world.run_until_idle();
        if !is_whole(&model) {
            come_back(&model, lost).unwrap();
            model.world.run_until_idle();
        }
        assert!(is_whole(&model), "{seed} {:?}", states(&model));
        check_without_another(&mut model, lost, disks);
    }
}

/// With one disk too many gone nothing takes a place: the disk that had it may be needed.
#[test]
fn no_place_changes_hands_after_the_store_has_failed() {
    let mut model = Model::new(1, &[KINDS[0]]);
    write_some(&mut model, 100);
    model.commit();
    [1, 2].iter().for_each(|disk| model.world.set_gone(&disk_name(0, *disk), true));
    write_some(&mut model, 10);
    assert!(model.sync().is_err());
    let place = DiskPlace { group: 0, member: 1 };
    let disk: Arc<dyn platform::Disk> = model.world.add_disk("spare", 4096);
    let before = model.world.read_block("spare", 0);
    let again = Arc::clone(&disk);
    let refused = model
        .world
        .wait(|done| model.store.replace_disk(place, again, DiskUuid([9; 16]), None, done));
    assert!(matches!(refused, Err(RaidError::Store(_))), "{refused:?}");
    assert_eq!(model.world.read_block("spare", 0), before);
    model.world.set_gone(&disk_name(0, 1), false);
    let refused = come_back(&model, 1);
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn only_a_member_that_went_is_taken_back() {
    let (kind, disks) = KINDS[1];
    let mut model = Model::new(3, &[(kind, disks)]);
    write_some(&mut model, 100);
    model.commit();
    let disk = model.world.disk(&disk_name(0, 2)).unwrap();
    let refused = model.world.wait(|done| model.store.return_disk(disk, None, done)).unwrap_err();
    assert_eq!(refused.to_string(), "disk g0d2 is not a disk that the aggregate misses");
    model.world.set_gone(&disk_name(0, 2), true);
    write_some(&mut model, 10);
    assert_eq!(model.sync(), Ok(()));
    let refused = come_back(&model, 2).unwrap_err().to_string();
    assert!(refused.starts_with("disk g0d2 went offline a moment ago"), "{refused}");
    // One that was failed stays so at a start, until someone asks.
    model.commit();
    let place = DiskPlace { group: 0, member: 4 };
    model.world.wait(|done| model.store.fail_disk(place, done)).unwrap();
    model.reassemble().unwrap();
    model.store.resume();
    model.rest();
    assert_eq!(states(&model)[2], MemberState::Online);
    assert_eq!(states(&model)[4], MemberState::Missing);
    come_back(&model, 4).unwrap();
    model.rest();
    assert!(is_whole(&model));
    check_without_another(&mut model, 4, disks);
}

/// Others may be gone when the aggregate is opened next: a disk that has everything but the last
/// superblock would tell of an older time.
#[test]
fn a_disk_is_not_whole_before_it_has_a_superblock() {
    for (kind, disks) in KINDS {
        let mut model = Model::new(disks as u64, &[(kind, disks)]);
        write_some(&mut model, 60);
        model.commit();
        model.world.set_gone(&disk_name(0, 0), true);
        write_some(&mut model, 60);
        model.commit();
        model.world.set_gone(&disk_name(0, 0), false);
        model.reassemble().unwrap();
        model.store.resume();
        model.world.run_until_idle();
        assert!(!is_whole(&model) && model.store.status().waits_for_superblock, "{kind}");
        model.commit();
        model.world.run_until_idle();
        assert!(is_whole(&model) && !model.store.status().waits_for_superblock, "{kind}");
        let block = media::SUPERBLOCK_BLOCK + (model.cp - 1) % 2;
        let newest = |disk: usize| model.world.read_block(&disk_name(0, disk), block).unwrap();
        assert_eq!(newest(0), newest(1), "{kind}");
    }
}

/// It was the member's disk when it began to return; another has had the place since, and failed.
#[test]
fn a_disk_that_returns_slowly_does_not_take_the_place_of_its_successor() {
    for (kind, disks) in KINDS {
        let lost = 1;
        let mut model = Model::new(disks as u64, &[(kind, disks)]);
        write_some(&mut model, 100);
        model.commit();
        go(&mut model, lost);
        model.commit();
        let returning = begin_coming_back(&model, lost);
        let is_label = |io: &PendingIo| *io.disk == disk_name(0, lost) && io.kind == IoKind::Write;
        while !model.world.pending().iter().any(is_label) {
            assert!(model.world.step(), "its label is written first");
        }
        model.world.set_hung(&disk_name(0, lost), true);
        let replaced = begin_replacing(&model, lost, "successor");
        while replaced.lock().is_none() && model.world.step() {}
        assert_eq!(replaced.lock().take(), Some(Ok(())), "{kind}");
        model.world.set_gone("successor", true);
        write_some(&mut model, 30);
        model.commit();
        model.world.set_hung(&disk_name(0, lost), false);
        while returning.lock().is_none() && model.world.step() {}
        let disk = disk_name(0, lost);
        assert_eq!(returning.lock().take(), Some(Err(RaidError::NotMissed { disk })), "{kind}");
        assert!(matches!(states(&model)[lost], MemberState::Failed { .. }), "{kind}");
        model.check();
    }
}

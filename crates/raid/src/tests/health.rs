//! Errors are counted of the disk that had them, are kept, and make it sick if they are too many.

use super::model::*;
use super::rebuild::write_some;
use crate::*;
use ondisk::label::RaidKind::{self, Dp, Raid4, Tp};
use ondisk::label::Sickness;
use ondisk::scrub::ScrubPhase;
use platform::Disk;
use std::sync::Arc;
use units::{DiskUuid, Pvbn};

const KINDS: [(RaidKind, usize); 3] = [(Raid4, 4), (Dp, 5), (Tp, 6)];
const SECOND: u64 = 1_000_000_000;

/// What the status tells of the disks of the first group.
fn errors(model: &Model) -> Vec<(ErrorCounts, Option<Sickness>)> {
    let members = model.store.status().groups.swap_remove(0).members;
    members.into_iter().map(|member| (member.errors, member.sickness)).collect()
}

fn counts(read_errors: u32, checksum_errors: u32) -> ErrorCounts {
    ErrorCounts { read_errors, write_errors: 0, checksum_errors }
}

fn save(model: &Model) {
    assert_eq!(model.world.wait(|done| model.store.save_errors(done)), Ok(()));
}

fn scrub(model: &Model) {
    let wall = platform::Clock::wall(&model.world);
    let order = ScrubOrder::Start { rate: None };
    let started = model.world.wait(|done| model.store.scrub(order, wall, done));
    assert_eq!(started.map_err(|error| error.to_string()), Ok(()));
    model.world.run_until_idle();
    assert_eq!(model.store.status().scrub.phase, ScrubPhase::Finished);
}

fn member_of(model: &Model, name: &str) -> usize {
    let members = model.store.status().groups.swap_remove(0).members;
    members.iter().position(|member| member.name.as_deref() == Some(name)).unwrap()
}

/// So many blocks of the first data disk, each in a row of its own.
fn harm(model: &Model, count: u64, harm: impl Fn(&Model, (String, u64))) -> usize {
    (1..=count).for_each(|number| harm(model, model.place(Pvbn(number))));
    member_of(model, &model.place(Pvbn(1)).0)
}

fn rot(model: &Model, (disk, block): (String, u64)) {
    model.world.flip_bit(&disk, block, model.choose(32768) as usize);
}

#[test]
fn errors_are_those_of_the_disk_that_had_them() {
    for (seed, kind) in (0..).zip(KINDS) {
        for by_scrub in [false, true] {
            let mut model = Model::with_blocks(seed, kind);
            model.reassemble().unwrap();
            let member = harm(&model, 3, |model, (disk, block)| {
                model.world.fail_block(&disk, block);
            });
            (10..15).for_each(|number| rot(&model, model.place(Pvbn(number))));
            if by_scrub {
                scrub(&model)
            } else {
                model.check()
            }
            let mut expected = vec![(ErrorCounts::default(), None); kind.1];
            expected[member].0 = counts(3, 5);
            assert_eq!(errors(&model), expected, "{kind:?} {by_scrub}");
            // What was repaired is no error any more.
            model.check();
            assert_eq!(errors(&model), expected);
        }
    }
}

/// Rot in identities and on parity disks, which a scrub finds.
#[test]
fn rot_of_parity_and_of_identities_is_counted() {
    for (seed, kind) in (0..).zip(KINDS) {
        let mut model = Model::with_blocks(seed, kind);
        model.reassemble().unwrap();
        let (disk, block) = model.checksum_place(Pvbn(5));
        let row = model.store.geometry().locate(Pvbn(5)).unwrap().row();
        model.world.flip_bit(&disk, block, row * 512 + 9);
        let (_, parity_block) = model.place(Pvbn(7));
        model.world.flip_bit(&disk_name(0, 0), parity_block, 77);
        scrub(&model);
        let found = errors(&model);
        assert_eq!(found[0], (counts(0, 1), None), "{kind:?}");
        assert_eq!(found[member_of(&model, &disk)], (counts(0, 1), None), "{kind:?}");
        let all: u32 = found.iter().map(|(errors, _)| errors.checksum_errors).sum();
        assert_eq!(all, 2);
    }
}

#[test]
fn counts_survive_a_stop_and_what_is_cleared_is_gone() {
    for (seed, kind) in (0..).zip(KINDS) {
        let mut model = Model::with_blocks(seed, kind);
        model.reassemble().unwrap();
        let member = harm(&model, 4, rot);
        model.check();
        let before = errors(&model);
        assert_eq!(before[member], (counts(0, 4), None));
        save(&model);
        model.reassemble().unwrap();
        assert_eq!(errors(&model), before);
        // Counting goes on from there.
        harm(&model, 2, |model, (disk, block)| model.world.fail_block(&disk, block));
        model.check();
        assert_eq!(errors(&model)[member], (counts(2, 4), None));
        // Without a stop a tick does it.
        model.store.tick(SECOND, platform::Clock::wall(&model.world));
        model.world.run_until_idle();
        model.reassemble().unwrap();
        assert_eq!(errors(&model)[member], (counts(2, 4), None));
        let place = DiskPlace { group: 0, member };
        let cleared = model.world.wait(|done| model.store.clear_errors(place, done));
        assert_eq!(cleared.map_err(|error| error.to_string()), Ok(()));
        for _ in 0..2 {
            assert_eq!(errors(&model), vec![(ErrorCounts::default(), None); kind.1]);
            model.reassemble().unwrap();
        }
        model.check();
        model.check_parity();
    }
}

#[test]
fn a_little_rot_is_no_sick_disk_and_much_is() {
    for (seed, kind) in (0..).zip(KINDS) {
        let mut model = Model::new(seed, &[kind]);
        (1..120).for_each(|number| model.write(Pvbn(number)));
        assert_eq!(model.sync(), Ok(()));
        model.reassemble().unwrap();
        let most = ROTTEN_BLOCKS_MAX as u64;
        let member = harm(&model, most - 1, rot);
        model.check();
        assert_eq!(errors(&model)[member], (counts(0, most as u32 - 1), None));
        // The same blocks again are the same blocks.
        harm(&model, most - 1, rot);
        model.check();
        assert_eq!(errors(&model)[member].1, None);
        rot(&model, model.place(Pvbn(most + 20)));
        model.check();
        assert_eq!(errors(&model)[member].1, Some(Sickness::Rotten));
        save(&model);
        model.reassemble().unwrap();
        assert_eq!(errors(&model)[member].1, Some(Sickness::Rotten));
        assert!(!model.store.status().is_degraded(), "it stays in use");
    }
}

/// The first disk has an error, too: labels of others are made from its.
fn harm_first_disk(model: &Model) -> Vec<(ErrorCounts, Option<Sickness>)> {
    model.world.fail_block(&disk_name(0, 0), model.place(Pvbn(30)).1);
    scrub(model);
    let expected = errors(model);
    assert_eq!(expected[0], (counts(1, 0), None));
    assert!(expected.iter().skip(1).all(|known| *known == (ErrorCounts::default(), None)));
    expected
}

#[test]
fn a_sick_disk_that_was_copied_is_remembered_and_its_replacement_is_well() {
    for (seed, (kind, disks)) in (0..).zip(KINDS) {
        for is_restarted in [false, true] {
            let mut model = Model::new(seed, &[(kind, disks)]);
            (1..60).for_each(|number| model.write(Pvbn(number)));
            model.commit();
            model.reassemble().unwrap();
            let well = harm_first_disk(&model);
            let most = UNREADABLE_BLOCKS_MAX as u64;
            let member = harm(&model, most, |model, (disk, block)| {
                model.world.fail_block(&disk, block);
            });
            model.check();
            let before = errors(&model)[member];
            assert_eq!(before, (counts(most as u32, 0), Some(Sickness::Unreadable)));
            save(&model);
            let spare: Arc<dyn Disk> = model.world.add_disk("gspare", DISK_BLOCKS);
            let added =
                model.world.wait(|done| model.store.add_spare(spare, DiskUuid([99; 16]), done));
            assert!(added.is_ok());
            let place = DiskPlace { group: 0, member };
            let taken = model
                .world
                .wait(|done| model.store.take_spare(place, DiskUuid([99; 16]), None, done));
            assert!(taken.is_ok());
            if is_restarted {
                model.reassemble().unwrap();
                assert_eq!(errors(&model)[member], before, "it is not whole yet");
                model.store.resume();
            }
            model.rest();
            let status = model.store.status();
            let retired = RetiredDisk {
                name: disk_name(0, member),
                sickness: Sickness::Unreadable,
                errors: before.0,
                replacement: "gspare".to_owned(),
            };
            assert_eq!(status.retired, [retired]);
            assert!(!status.is_degraded());
            assert_eq!(errors(&model), well);
            save(&model);
            model.reassemble().unwrap();
            assert_eq!(errors(&model), well);
            assert_eq!(model.store.status().retired, [], "it is nobody's");
            model.check();
            model.check_disks_of_parity(&[(member, "gspare")]);
        }
    }
}

/// A start finds that it is sick, and another has the place later: that one is not.
#[test]
fn sickness_does_not_pass_to_whom_has_the_place() {
    let (kind, disks) = KINDS[1];
    let mut model = Model::new(5, &[(kind, disks)]);
    (1..60).for_each(|number| model.write(Pvbn(number)));
    model.commit();
    model.reassemble().unwrap();
    let well = harm_first_disk(&model);
    let member = harm(&model, UNREADABLE_BLOCKS_MAX as u64, |model, (disk, block)| {
        model.world.fail_block(&disk, block);
    });
    model.check();
    save(&model);
    model.reassemble().unwrap();
    let place = DiskPlace { group: 0, member };
    let failed = model.world.wait(|done| model.store.fail_disk(place, done));
    assert!(failed.is_ok());
    model.commit();
    let new = model.world.add_disk("gnew", DISK_BLOCKS);
    let replaced = model
        .world
        .wait(|done| model.store.replace_disk(place, new, DiskUuid([9; 16]), None, done));
    assert!(replaced.is_ok());
    assert_eq!(errors(&model), well);
    model.rest();
    model.reassemble().unwrap();
    assert_eq!(errors(&model), well);
}

#[test]
fn a_write_that_fails_is_counted_once_and_a_disk_that_is_gone_is_not() {
    for is_gone in [false, true] {
        let mut model = Model::with_blocks(3, (Dp, 5));
        let (disk, block) = model.place(Pvbn(50));
        let member = member_of(&model, &disk);
        if is_gone {
            model.world.set_gone(&disk, true);
        } else {
            (0..64).for_each(|row| model.world.fail_writes(&disk, block - block % 64 + row, true));
        }
        (41..60).for_each(|number| model.write(Pvbn(number)));
        assert_eq!(model.sync(), Ok(()));
        assert!(model.store.status().is_degraded());
        let expected = u32::from(!is_gone);
        assert_eq!(errors(&model)[member].0.write_errors, expected);
        let place = DiskPlace { group: 0, member };
        let cleared = model.world.wait(|done| model.store.clear_errors(place, done));
        assert!(matches!(cleared, Err(RaidError::NotInUse { .. })));
    }
}

/// Rows that were being written when the power went contradict themselves on disks that did nothing
/// wrong. What cannot be told from rot is seldom: a block of which the new content arrived, and on
/// no disk of the row the new identity.
#[test]
fn power_cuts_blame_hardly_anybody() {
    let mut blamed = 0;
    for seed in 0..150 {
        let kind = KINDS[seed as usize % KINDS.len()];
        let mut model = Model::new(seed, &[kind]);
        write_some(&mut model, 150);
        model.commit();
        for _ in 0..3 {
            model.notes.lock().clear();
            let committed = model.blocks.clone();
            write_some(&mut model, 120);
            let steps = model.choose(700);
            model.cut_and_recover(steps, committed);
            write_some(&mut model, 30);
            model.check();
            model.commit();
            scrub(&model);
            model.check();
            for (errors, sickness) in errors(&model) {
                assert_eq!((errors.read_errors, errors.write_errors, sickness), (0, 0, None));
                blamed += errors.checksum_errors;
            }
        }
    }
    assert!(blamed <= 6, "{blamed} blocks");
}

/// A parity disk wrote what the others had not when the power went.
#[test]
fn a_parity_disk_that_was_ahead_is_not_blamed() {
    for (seed, kind) in (0..).zip(KINDS) {
        let parity_disks = kind.0.parity_disks();
        let mut model = Model::new(seed, &[kind]);
        let per_disk = model.store.geometry().group(0).blocks_per_disk();
        let tetris = (0..3).flat_map(|disk| (63..126).map(move |at| Pvbn(disk * per_disk + at)));
        let tetris: Vec<Pvbn> = tetris.collect();
        tetris.iter().for_each(|pvbn| model.write(*pvbn));
        model.commit();
        let first = model.store.geometry().device_block(TetrisId { group: 0, region: 1 }, 0);
        let region = |model: &Model, disk: usize| -> Vec<_> {
            let blocks = first..first + 64;
            blocks.map(|at| model.world.read_block(&disk_name(0, disk), at).unwrap()).collect()
        };
        let before: Vec<_> = (0..kind.1).map(|disk| region(&model, disk)).collect();
        tetris.iter().for_each(|pvbn| model.write(*pvbn));
        assert_eq!(model.sync(), Ok(()));
        let after: Vec<_> = (0..kind.1).map(|disk| region(&model, disk)).collect();
        for ahead in 0..parity_disks {
            for disk in 0..kind.1 {
                let blocks = if disk == ahead { &after } else { &before };
                for (at, block) in (first..).zip(&blocks[disk]) {
                    model.world.write_block(&disk_name(0, disk), at, block);
                }
            }
            model.reassemble().unwrap();
            scrub(&model);
            let found: Vec<u32> =
                errors(&model).iter().map(|(errors, _)| errors.checksum_errors).collect();
            assert!(found.iter().all(|errors| *errors == 0), "{kind:?} {ahead} {found:?}");
        }
    }
}

/// Disks that hold anything, never written: a scrub repairs what looks wrong, and blames nobody.
#[test]
fn garbage_is_nobodys_error() {
    for (seed, kind) in (0..).zip(KINDS) {
        for is_alike in [false, true] {
            let mut model = Model::with_garbage(seed, &[kind], true);
            for (disk, block) in (0..kind.1).flat_map(|disk| (16..300).map(move |at| (disk, at))) {
                if is_alike {
                    let garbage = units::Block::from_prefix(&[block as u8 | 1; 64]);
                    model.world.write_block(&disk_name(0, disk), block, &garbage);
                }
            }
            (1..70).for_each(|number| model.write(Pvbn(number)));
            model.commit();
            model.reassemble().unwrap();
            scrub(&model);
            model.check();
            assert_eq!(errors(&model), vec![(ErrorCounts::default(), None); kind.1], "{kind:?}");
            rot(&model, model.place(Pvbn(33)));
            scrub(&model);
            let all: u32 = errors(&model).iter().map(|(errors, _)| errors.checksum_errors).sum();
            assert_eq!(all, 1, "what was written counts");
        }
    }
}

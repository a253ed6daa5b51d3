//! Disks that are replaced: rebuilt beside writes, through cuts and failures, and whole after it.

use super::model::*;
use crate::*;
use ondisk::label::RaidKind::{self, Dp, Raid4, Tp};
use platform::Disk;
use platform::simulated::{IoKind, PendingIo};
use std::sync::Arc;
use units::{DiskUuid, Pvbn, Timestamp};

pub const KINDS: [(RaidKind, usize); 3] = [(Raid4, 4), (Dp, 5), (Tp, 6)];
/// Stripes that are written: the first regions, which are rebuilt first, and the last ones.
const STRIPES: [std::ops::Range<u64>; 2] = [1..150, 63 * 60..63 * 62];

pub fn write_some(model: &mut Model, count: u64) {
    let per_disk = model.store.geometry().group(0).blocks_per_disk();
    for _ in 0..count {
        let stripes = &STRIPES[model.choose(2) as usize];
        let stripe = stripes.start + model.choose(stripes.end - stripes.start);
        let pvbn = Pvbn(model.choose(3) * per_disk + stripe);
        if !model.blocks.contains_key(&pvbn) {
            model.write(pvbn);
        }
    }
}

pub fn states(model: &Model) -> Vec<MemberState> {
    let members = model.store.status().groups.into_iter().flat_map(|group| group.members);
    members.map(|member| member.state).collect()
}

/// Loses a disk and lets it be noticed.
pub fn lose(model: &mut Model, disk: usize) {
    model.world.set_gone(&disk_name(0, disk), true);
    write_some(model, 30);
    assert_eq!(model.sync(), Ok(()));
}

pub type Answer = Arc<platform::sync::Mutex<Option<Result<(), RaidError>>>>;

pub fn begin_replacing(model: &Model, member: usize, name: &str) -> Answer {
    let disk: Arc<dyn Disk> = model.world.add_disk(name, DISK_BLOCKS);
    let place = DiskPlace { group: 0, member };
    let identity = DiskUuid([1 + model.choose(250) as u8; 16]);
    let answer = Answer::default();
    let told = Arc::clone(&answer);
    let done = Box::new(move |result| *told.lock() = Some(result));
    model.store.replace_disk(place, disk, identity, None, done);
    answer
}

fn replace(model: &Model, member: usize, name: &str) -> Result<(), RaidError> {
    let answer = begin_replacing(model, member, name);
    // Not to its end: the rebuild itself goes on for long.
    while answer.lock().is_none() && model.world.step() {}
    let answer = answer.lock().take();
    answer.expect("answered")
}

/// The group does without the disk behind the one at `place`.
pub fn check_without_next(model: &mut Model, place: usize, disks: usize) {
    model.world.set_gone(&disk_name(0, (place + 1) % disks), true);
    model.reassemble().unwrap();
    model.check();
}

/// The group that a seed chooses, the disk of it that something happens to, and how many it has.
pub fn written_by_seed(seed: u64, writes: u64) -> (Model, usize, usize) {
    let (kind, disks) = KINDS[seed as usize % 3];
    let mut model = Model::new(seed, &[(kind, disks)]);
    write_some(&mut model, writes);
    (model, seed as usize / 3 % disks, disks)
}

#[test]
fn a_replaced_disk_is_rebuilt_beside_writes() {
    for (kind, disks) in KINDS {
        for lost in 0..disks {
            let mut model = Model::new(lost as u64, &[(kind, disks)]);
            write_some(&mut model, 200);
            assert_eq!(model.sync(), Ok(()));
            lose(&mut model, lost);
            replace(&model, lost, &format!("gnew{lost}")).unwrap();
            assert!(matches!(states(&model)[lost], MemberState::Rebuilding { .. }));
            for _ in 0..20 {
                for _ in 0..model.choose(80) {
                    model.world.step();
                }
                write_some(&mut model, 10);
                assert_eq!(model.sync(), Ok(()));
            }
            model.rest();
            assert!(states(&model).iter().all(|state| *state == MemberState::Online));
            model.check();
            // The one it replaced comes back and is not taken up; another may go now.
            model.world.set_gone(&disk_name(0, lost), false);
            model.reassemble().unwrap();
            assert!(!model.store.status().is_degraded());
            model.check();
            check_without_next(&mut model, lost, disks);
        }
    }
}

/// However far it is, whatever is written meanwhile: it stands, and ends when it is let go.
#[test]
fn a_disk_that_is_held_is_not_filled_until_it_is_let_go() {
    for seed in 0..24 {
        let (kind, disks) = KINDS[seed as usize % 3];
        let lost = seed as usize / 3 % disks;
        let mut model = Model::new(seed, &[(kind, disks)]);
        let place = DiskPlace { group: 0, member: lost };
        assert!(!model.store.hold_filling(place, true), "nothing is filled");
        assert!(!model.store.hold_filling(DiskPlace { group: 9, member: 9 }, true));
        write_some(&mut model, 100);
        model.commit();
        let is_copy = seed % 2 == 0;
        if !is_copy {
            lose(&mut model, lost);
        }
        replace(&model, lost, "gnew").unwrap();
        for _ in 0..model.choose(100) {
            model.world.step();
        }
        let filling = |model: &Model| model.store.status().fillings.first().cloned();
        assert!(model.store.hold_filling(place, true));
        model.world.run_until_idle();
        let held = filling(&model).expect("it is not whole");
        assert_eq!((held.place, held.is_held, held.disk.as_str()), (place, true, "gnew"));
        assert!(held.done_regions < held.regions);
        write_some(&mut model, 30);
        model.commit();
        model.check();
        model.world.run_until_idle();
        assert_eq!(filling(&model), Some(held));
        assert!(model.store.hold_filling(place, false));
        model.rest();
        assert_eq!(filling(&model), None);
        assert!(!model.store.status().is_degraded(), "{:?}", states(&model));
        model.check();
        assert!(!model.store.hold_filling(place, false), "it is whole");
    }
}

/// From the first region on, and through a pause; as fast as it can be when the limit is gone.
#[test]
fn a_disk_is_filled_at_the_rate_that_was_asked_for() {
    const SECOND: u64 = 1_000_000_000;
    for is_copy in [false, true] {
        let mut model = Model::new(3, &[(Raid4, 4)]);
        write_some(&mut model, 100);
        model.commit();
        if !is_copy {
            lose(&mut model, 1);
        }
        let place = DiskPlace { group: 0, member: 1 };
        assert!(!model.store.limit_filling(place, None), "nothing is filled");
        let disk: Arc<dyn Disk> = model.world.add_disk("gnew", DISK_BLOCKS);
        // A region is 256 KiB: four of them in each second.
        let rate = Some(1 << 20);
        let identity = DiskUuid([9; 16]);
        model
            .world
            .wait(|done| model.store.replace_disk(place, disk, identity, rate, done))
            .unwrap();
        let filling = |model: &Model| model.store.status().fillings.first().cloned();
        let mut seen = Vec::new();
        for tenth in 0..50 {
            model.store.tick(tenth * SECOND / 10, Timestamp(0));
            model.world.run_until_idle();
            let found = filling(&model).expect("it is not whole");
            assert_eq!(found.rate, rate);
            seen.push(found.done_regions);
        }
        assert!((19..=22).contains(&seen[49]), "{seen:?}");
        assert!(seen.windows(2).all(|pair| pair[1] - pair[0] <= 2), "{seen:?}");
        assert!(model.store.hold_filling(place, true));
        model.store.tick(6 * SECOND, Timestamp(0));
        model.world.run_until_idle();
        assert_eq!(filling(&model).map(|one| one.done_regions), Some(seen[49]));
        assert!(model.store.hold_filling(place, false));
        assert!(model.store.limit_filling(place, None));
        model.commit();
        model.rest();
        assert_eq!(filling(&model), None);
        assert!(!model.store.status().is_degraded(), "{:?}", states(&model));
        model.check();
    }
}

/// It may be held before the labels name it, and be let go before they do.
#[test]
fn a_disk_may_be_held_before_it_is_begun() {
    for lets_go_first in [false, true] {
        let mut model = Model::new(7, &[(Dp, 5)]);
        write_some(&mut model, 100);
        model.commit();
        lose(&mut model, 1);
        let answer = begin_replacing(&model, 1, "gnew");
        let place = DiskPlace { group: 0, member: 1 };
        while !model.store.hold_filling(place, true) {
            assert!(model.world.step());
        }
        assert!(answer.lock().is_none(), "the labels do not name it");
        if lets_go_first {
            assert!(model.store.hold_filling(place, false));
        }
        model.world.run_until_idle();
        assert!(answer.lock().as_ref().is_some_and(Result::is_ok));
        assert_eq!(model.store.status().fillings.first().is_some_and(|one| one.is_held), {
            !lets_go_first
        });
        model.store.hold_filling(place, false);
        model.rest();
        assert!(!model.store.status().is_degraded());
        model.check();
    }
}

#[test]
fn a_rebuild_goes_on_after_a_cut() {
    for seed in 0..60 {
        let (mut model, lost, disks) = written_by_seed(seed, 100);
        assert_eq!(model.sync(), Ok(()));
        lose(&mut model, lost);
        replace(&model, lost, "gnew").unwrap();
        for _ in 0..4 {
            model.notes.lock().clear();
            let committed = model.blocks.clone();
            write_some(&mut model, 30);
            let steps = model.choose(600);
            model.cut_and_recover(steps, committed);
            model.check();
            model.store.resume();
        }
        model.rest();
        assert!(!model.store.status().is_degraded(), "{:?}", states(&model));
        model.check();
        check_without_next(&mut model, lost, disks);
    }
}

/// A group that lacks its parity writes without it; parity is rebuilt, and durable, before what it
/// was computed from, which a cut takes.
#[test]
fn regression_parity_is_rebuilt_from_blocks_that_are_lost() {
    for seed in 0..40 {
        let mut model = Model::new(seed, &[(Raid4, 4)]);
        let bases = model.store.geometry().group(0).bases.clone();
        // Rows of regions that the rebuild comes to after a while.
        let rows = 63 * 10..63 * 12;
        rows.clone().for_each(|row| model.write(bases[0].offset(row)));
        assert_eq!(model.sync(), Ok(()));
        lose(&mut model, 0);
        model.notes.lock().clear();
        let committed = model.blocks.clone();
        replace(&model, 0, "gnew").unwrap();
        rows.for_each(|row| model.write(bases[1].offset(row)));
        for region in 10..12 {
            model.store.start_batch_of(TetrisId { group: 0, region });
        }
        for _ in 0..100 + model.choose(200) {
            model.world.step();
        }
        model.world.power_cut_with(platform::simulated::Fate::AllLost);
        model.store.abandon();
        model.blocks = committed;
        model.reassemble().unwrap();
        let notes = model.noted();
        let recovered = model.world.wait(|done| model.store.recover_stripes(notes, done));
        assert_eq!(recovered, Ok(()));
        model.store.resume();
        model.world.run_until_idle();
        model.check();
        model.check_disks_of_parity(&[(0, "gnew")]);
    }
}

#[test]
fn a_disk_that_fails_while_it_is_rebuilt_is_not_taken_up_again() {
    for seed in 0..40 {
        let (kind, disks) = KINDS[seed as usize % 3];
        let lost = seed as usize % disks;
        let mut model = Model::new(seed, &[(kind, disks)]);
        write_some(&mut model, 100);
        assert_eq!(model.sync(), Ok(()));
        lose(&mut model, lost);
        replace(&model, lost, "gnew").unwrap();
        for _ in 0..model.choose(700) {
            model.world.step();
        }
        if states(&model)[lost] == MemberState::Online {
            continue;
        }
        model.world.set_gone("gnew", true);
        write_some(&mut model, 60);
        assert_eq!(model.sync(), Ok(()));
        model.check();
        model.world.run_until_idle();
        let was_whole = !model.store.status().is_degraded();
        assert!(!was_whole, "a write to it was refused");
        model.world.set_gone("gnew", false);
        model.reassemble().unwrap();
        model.store.resume();
        model.world.run_until_idle();
        assert_eq!(states(&model)[lost], MemberState::Missing);
        model.check();
        replace(&model, lost, "gnext").unwrap();
        model.rest();
        assert!(!model.store.status().is_degraded());
        model.check();
        model.check_disks_of_parity(&[(lost, "gnext")]);
    }
}

/// Completes requests until no others are left than reads of a region of some disks.
pub fn run_but_reads(model: &Model, region: u64, held: &[&str]) {
    let first = model.store.geometry().device_block(TetrisId { group: 0, region }, 0);
    let blocks = first..first + 64;
    let is_held = |io: &PendingIo| {
        io.kind == IoKind::Read && held.contains(&&*io.disk) && blocks.contains(&io.block)
    };
    while let Some(other) = model.world.pending().iter().position(|io| !is_held(io)) {
        model.world.complete_one(other);
    }
}

/// A disk goes while a piece of work reads, and is replaced before the work reads again: what the
/// new one holds is not what the old one held.
#[test]
fn work_does_not_use_a_disk_that_took_a_place_after_it_began() {
    for ((kind, disks), by_rebuild) in KINDS.into_iter().flat_map(|of| [(of, false), (of, true)]) {
        let (parity, per_disk) = (kind.parity_disks(), 63 * 63);
        if by_rebuild && parity < 2 {
            continue;
        }
        let [written, gone, held] = [parity, parity + 1, parity + 2];
        let mut model = Model::new(disks as u64, &[(kind, disks)]);
        let stripes = 70..80;
        stripes.clone().for_each(|stripe| model.write(Pvbn(per_disk + stripe)));
        stripes.for_each(|stripe| model.write(Pvbn(2 * per_disk + stripe)));
        assert_eq!(model.sync(), Ok(()));
        model.reassemble().unwrap();
        let mut replaced = vec![(gone, "gsecond")];
        let held = disk_name(0, held);
        if by_rebuild {
            lose(&mut model, written);
            replaced.push((written, "gfirst"));
            begin_replacing(&model, written, "gfirst");
        } else {
            model.write(Pvbn(75));
            model.store.sync(Box::new(|result| assert_eq!(result, Ok(()))));
        }
        run_but_reads(&model, 1, &[&disk_name(0, gone), &held]);
        model.world.set_gone(&disk_name(0, gone), true);
        run_but_reads(&model, 1, &[&held]);
        assert!(matches!(states(&model)[gone], MemberState::Failed { .. }), "{kind}");
        let answer = begin_replacing(&model, gone, "gsecond");
        run_but_reads(&model, 1, &[&held]);
        assert_eq!(answer.lock().take(), Some(Ok(())));
        model.rest();
        assert!(!model.store.status().is_degraded(), "{kind} {:?}", states(&model));
        model.check();
        model.check_disks_of_parity(&replaced);
    }
}

/// What another disk cannot read now is not taken for lost, and nothing is written over it.
#[test]
fn a_rebuild_stops_where_another_disk_cannot_be_read() {
    for by_failure in [false, true] {
        let mut model = Model::new(7, &[(Raid4, 4)]);
        write_some(&mut model, 200);
        assert_eq!(model.sync(), Ok(()));
        lose(&mut model, 0);
        let per_disk = model.store.geometry().group(0).blocks_per_disk();
        let mut on_second = model.blocks.keys().copied().filter(|pvbn| pvbn.get() / per_disk == 1);
        let victim = on_second.next_back().unwrap();
        let (name, block) = model.place(victim);
        let before = model.world.read_block(&name, block).unwrap();
        model.world.fail_block(&name, block);
        replace(&model, 0, "gnew").unwrap();
        if by_failure {
            model.world.set_gone(&name, true);
        }
        model.world.run_until_idle();
        assert!(matches!(states(&model)[0], MemberState::Rebuilding { .. }));
        if !by_failure {
            assert!(model.store.status().fillings[0].is_stuck);
        }
        assert_eq!(model.world.read_block(&name, block).unwrap(), before);
        // It can be read again after a restart.
        model.world.set_gone(&name, false);
        let disk = model.world.disk(&name).unwrap();
        model.world.wait(|done| disk.write(block, vec![before], done)).unwrap();
        model.reassemble().unwrap();
        model.store.resume();
        model.rest();
        assert!(!model.store.status().is_degraded(), "{:?}", states(&model));
        model.check();
    }
}

#[test]
fn disks_are_replaced_by_large_ones() {
    let mut model = Model::new(1, &[(Dp, 5)]);
    lose(&mut model, 2);
    let refused = replace(&model, 9, "gnew2").unwrap_err().to_string();
    assert_eq!(refused, "group 0 has no disk 9");
    let small: Arc<dyn Disk> = model.world.add_disk("gsmall", DISK_BLOCKS - 64);
    let place = DiskPlace { group: 0, member: 2 };
    let refused = model.world.wait(|done| {
        model.store.replace_disk(place, small, DiskUuid([7; 16]), None, done);
    });
    let refused = refused.unwrap_err().to_string();
    assert!(refused.starts_with("disk gsmall has "), "{refused}");
    assert_eq!(states(&model)[2], MemberState::Failed { reason: reason_of(&model, 2) });
}

#[test]
fn disks_are_failed_by_order_as_long_as_the_group_can_do_without() {
    let mut model = Model::new(1, &[(Dp, 5)]);
    write_some(&mut model, 100);
    assert_eq!(model.sync(), Ok(()));
    let fail = |model: &Model, member| {
        let place = DiskPlace { group: 0, member };
        model.world.wait(|done| model.store.fail_disk(place, done))
    };
    assert_eq!(fail(&model, 4), Ok(()));
    assert_eq!(fail(&model, 4), Err(RaidError::NotInUse { disk: "g0d4".to_owned() }));
    assert_eq!(fail(&model, 0), Ok(()));
    let refused = fail(&model, 1).unwrap_err().to_string();
    assert!(refused.starts_with("group 0 cannot do without disk g0d1: a dp group"), "{refused}");
    assert_eq!(reason_of(&model, 0), "disk g0d0 was failed by an administrator");
    model.check();
    // They stay failed.
    model.reassemble().unwrap();
    assert_eq!(states(&model)[0], MemberState::Missing);
    model.check();
}

fn reason_of(model: &Model, member: usize) -> String {
    match &states(model)[member] {
        MemberState::Failed { reason } => reason.clone(),
        state => panic!("{state:?}"),
    }
}

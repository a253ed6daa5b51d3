//! Scrubs as a whole: beside writes, through cuts and lost disks, paused, resumed, slowed down.

use super::model::*;
use crate::*;
use ondisk::label::RaidKind::{self, Dp, Raid4, Tp};
use ondisk::scrub::ScrubPhase;
use units::{Pvbn, Timestamp};

const KINDS: [(RaidKind, usize); 3] = [(Raid4, 4), (Dp, 5), (Tp, 6)];
const SECOND: u64 = 1_000_000_000;

fn order(model: &Model, order: ScrubOrder) -> Result<(), RaidError> {
    let answer = std::sync::Arc::new(platform::sync::Mutex::new(None));
    let told = std::sync::Arc::clone(&answer);
    let wall = platform::Clock::wall(&model.world);
    model.store.scrub(order, wall, Box::new(move |result| *told.lock() = Some(result)));
    // Not to its end.
    while answer.lock().is_none() && model.world.step() {}
    let answer = answer.lock().take();
    answer.expect("answered")
}

const START: ScrubOrder = ScrubOrder::Start { rate: None };

fn status(model: &Model) -> ScrubStatus {
    model.store.status().scrub
}

fn write_some(model: &mut Model, count: u64) {
    let per_disk = model.store.geometry().group(0).blocks_per_disk();
    for _ in 0..count {
        let pvbn = Pvbn(model.choose(3) * per_disk + 1 + model.choose(63 * 6));
        if !model.blocks.contains_key(&pvbn) {
            model.write(pvbn);
        }
    }
}

/// One block of some rows rots: a row has a block of one disk at most that is wrong.
fn rot(model: &Model, disks: usize) -> usize {
    let mut rows: Vec<(TetrisId, usize)> = Vec::new();
    for pvbn in model.blocks.keys().step_by(5) {
        let location = model.store.geometry().locate(*pvbn).unwrap();
        rows.push((location.tetris(), location.row()));
    }
    rows.sort_unstable();
    rows.dedup();
    // With a checksum block as well all blocks beside it are in doubt.
    let disk = model.choose(disks as u64) as usize;
    for (tetris, row) in &rows {
        let block = model.store.geometry().device_block(*tetris, *row);
        model.world.flip_bit(&disk_name(0, disk), block, model.choose(32768) as usize);
    }
    rows.len()
}

#[test]
fn scrubs_and_writes_do_not_disturb_each_other() {
    for (seed, kind) in (0..).zip(KINDS) {
        let mut model = Model::new(seed, &[kind]);
        write_some(&mut model, 200);
        assert_eq!(model.sync(), Ok(()));
        model.reassemble().unwrap();
        order(&model, START).unwrap();
        while status(&model).phase == ScrubPhase::Running {
            for _ in 0..model.choose(60) {
                model.world.step();
            }
            write_some(&mut model, 10);
            model.store.sync(Box::new(|result| assert_eq!(result, Ok(()))));
        }
        assert_eq!(model.sync(), Ok(()));
        let found = status(&model);
        assert_eq!((found.repaired(), found.damaged), (0, 0), "{found:?}");
        assert_eq!(found.read_blocks, found.tetrises * 64 * kind.1 as u64);
        model.check();
        model.check_parity();
    }
}

/// Whatever a cut leaves of a repair: with the disks that parity makes good beside the rot gone,
/// everything is there; and the scrub goes on and repairs the rest.
#[test]
fn a_cut_in_the_middle_loses_nothing_and_the_scrub_goes_on() {
    for seed in 0..45 {
        let kind = KINDS[seed as usize % KINDS.len()];
        let mut model = Model::new(seed, &[kind]);
        write_some(&mut model, 150);
        assert_eq!(model.sync(), Ok(()));
        rot(&model, kind.1);
        model.reassemble().unwrap();
        order(&model, START).unwrap();
        for _ in 0..model.choose(300) {
            model.world.step();
        }
        model.store.abandon();
        model.world.power_cut();
        let image = model.world.snapshot();
        for gone in 0..if kind.0 == Raid4 { 0 } else { kind.1 } {
            model.world.set_gone(&disk_name(0, gone), true);
            model.reassemble().unwrap();
            model.check();
            model.world.restore(&image);
        }
        model.reassemble().unwrap();
        let before = status(&model);
        model.store.resume();
        model.world.run_until_idle();
        let found = status(&model);
        assert_eq!(found.phase, ScrubPhase::Finished, "{before:?}");
        assert_eq!(found.damaged, 0, "{found:?}");
        let counters = model.store.status().counters;
        model.check();
        model.check_parity();
        assert_eq!(model.store.status().counters, counters, "nothing is left to repair");
    }
}

/// In a group that lacks disks parity is all there is of what they held: a scrub that is cut in the
/// middle of a repair takes nothing of it.
#[test]
fn a_cut_in_a_degraded_group_loses_nothing() {
    for seed in 0..60 {
        let kind = KINDS[1 + seed as usize % 2];
        let mut model = Model::new(seed, &[kind]);
        write_some(&mut model, 150);
        assert_eq!(model.sync(), Ok(()));
        // So many disks may be gone beside the rot.
        for gone in 0..kind.0.parity_disks() - 1 {
            model.world.set_gone(&disk_name(0, (gone * 2 + seed as usize) % kind.1), true);
        }
        rot(&model, kind.1);
        model.reassemble().unwrap();
        order(&model, START).unwrap();
        for _ in 0..model.choose(200) {
            model.world.step();
        }
        model.store.abandon();
        model.world.power_cut();
        model.reassemble().unwrap();
        model.check();
        model.store.resume();
        model.world.run_until_idle();
        assert_eq!(status(&model).damaged, 0);
        model.check();
    }
}

#[test]
fn a_scrub_that_is_paused_stays_paused() {
    let mut model = Model::new(1, &[(Raid4, 4)]);
    write_some(&mut model, 100);
    assert_eq!(model.sync(), Ok(()));
    let refused = |model: &Model, what| order(model, what).unwrap_err().to_string();
    assert_eq!(status(&model).phase, ScrubPhase::Never);
    let slow = ScrubOrder::SetRate { rate: Some(1 << 20) };
    for what in [ScrubOrder::Pause, slow] {
        assert_eq!(refused(&model, what), "no scrub is under way: start one");
    }
    order(&model, START).unwrap();
    let under_way = "a scrub is under way: pause, resume or stop it";
    assert_eq!(refused(&model, START), under_way);
    assert_eq!(refused(&model, ScrubOrder::Resume { rate: None }), under_way);
    for _ in 0..60 {
        model.world.step();
    }
    order(&model, ScrubOrder::Pause).unwrap();
    model.world.run_until_idle();
    let paused = status(&model);
    assert_eq!(paused.phase, ScrubPhase::Paused);
    assert!((1..paused.tetrises).contains(&paused.done_tetrises), "{paused:?}");
    assert_eq!(refused(&model, START), under_way);
    assert!(refused(&model, ScrubOrder::Pause).starts_with("the scrub is paused already"));
    order(&model, slow).unwrap();
    model.store.abandon();
    model.world.power_cut();
    model.reassemble().unwrap();
    model.store.resume();
    model.world.run_until_idle();
    let after = status(&model);
    assert_eq!((after.phase, after.done_tetrises), (ScrubPhase::Paused, paused.done_tetrises));
    assert_eq!(after.rate, Some(1 << 20), "the labels say it");
    order(&model, ScrubOrder::Resume { rate: Some(1 << 30) }).unwrap();
    assert_eq!(status(&model).rate, Some(1 << 30));
    order(&model, ScrubOrder::SetRate { rate: None }).unwrap();
    assert_eq!((status(&model).phase, status(&model).rate), (ScrubPhase::Running, None));
    order(&model, ScrubOrder::Stop).unwrap();
    model.world.run_until_idle();
    assert_eq!(status(&model).phase, ScrubPhase::Stopped);
    order(&model, START).unwrap();
    model.world.run_until_idle();
    let finished = status(&model);
    assert_eq!((finished.phase, finished.rate), (ScrubPhase::Finished, None));
    assert!(finished.ended >= finished.started);
    // The labels know.
    model.reassemble().unwrap();
    assert_eq!(ScrubStatus { pace: Pace::default(), ..status(&model) }, finished);
}

#[test]
fn a_rate_is_kept_by_ticks() {
    let mut model = Model::new(1, &[(Raid4, 4)]);
    write_some(&mut model, 100);
    assert_eq!(model.sync(), Ok(()));
    // A tetris is a MiB: two of them in each second.
    order(&model, ScrubOrder::Start { rate: Some(2 << 20) }).unwrap();
    let mut seen = Vec::new();
    for tenth in 0..100 {
        model.store.tick(tenth * SECOND / 10, Timestamp(0));
        model.world.run_until_idle();
        seen.push(status(&model).done_tetrises);
    }
    assert!((19..=22).contains(&seen[99]), "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[1] - pair[0] <= 2), "{seen:?}");
    let found = status(&model);
    assert!((1_900_000..2_300_000).contains(&found.pace.bytes_per_second), "{found:?}");
    let left = found.pace.seconds_left.unwrap();
    assert!((18..=24).contains(&left), "{} of {}: {left}", found.done_tetrises, found.tetrises);
    assert_eq!(found.active_seconds, 9);
    order(&model, ScrubOrder::Resume { rate: Some(u64::MAX) }).unwrap();
    model.store.tick(20 * SECOND, Timestamp(0));
    model.world.run_until_idle();
    assert_eq!(status(&model).phase, ScrubPhase::Finished);
}

#[test]
fn a_disk_that_goes_in_the_middle_is_missed_and_the_scrub_ends() {
    for seed in 0..30 {
        let kind = KINDS[seed as usize % KINDS.len()];
        let mut model = Model::new(seed, &[kind]);
        write_some(&mut model, 150);
        assert_eq!(model.sync(), Ok(()));
        if kind.0 != Raid4 {
            rot(&model, kind.1);
        }
        model.reassemble().unwrap();
        order(&model, START).unwrap();
        for _ in 0..model.choose(200) {
            model.world.step();
        }
        model.world.set_gone(&disk_name(0, model.choose(kind.1 as u64) as usize), true);
        model.world.run_until_idle();
        let found = status(&model);
        assert_eq!((found.phase, found.damaged), (ScrubPhase::Finished, 0), "{found:?}");
        assert_eq!(model.sync(), Ok(()));
        model.check();
    }
}

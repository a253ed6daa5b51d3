//! Relocation beside the naive model, which knows nothing of places.
//!
//! The model ([`super::host`]) is a map from block numbers of volumes to blocks. Rules, beside
//! those of [`super::twin`], while areas are emptied and while a group of disks leaves:
//!
//! - A block that moves reads the same afterwards, and its container map entry names the new place.
//! - The old place is free when the move has committed.
//! - A block that clients change while it is on its way has what they wrote.
//! - Of a group that leaves nothing is left in use, and what was on it is elsewhere; a power cut on
//!   the way puts the removal off, and loses nothing.
//! - It leaves no faster than was asked, and holds up nothing else meanwhile.

use super::twin::Twin;
use crate::Tuning;
use ondisk::label::RaidKind;
use std::sync::atomic::Ordering;
use units::{BLOCK_SIZE_U64, Pvbn};

const GROUPS: [(RaidKind, usize); 3] =
    [(RaidKind::None, 1), (RaidKind::None, 1), (RaidKind::Raid4, 3)];
const LEAVING: u32 = 1;
const STEPS: usize = 30;
const SEEDS: u64 = 12;
const SECOND: u64 = 1_000_000_000;
/// Blocks of an area of the group that leaves: it has one disk.
const AREA_BLOCKS: u64 = 63;

/// Areas of one region, of which there is always one more to be emptied.
fn tuning() -> Tuning {
    Tuning { area_stripes: Some(63), empty_areas: 1000, ..Tuning::default() }
}

/// Blocks that were moved.
fn empty_areas(seed: u64) -> u64 {
    let mut twin = Twin::new(seed, &GROUPS, tuning());
    let mut moved = 0;
    for _ in 0..STEPS {
        match twin.choose(10) {
            0..5 => {
                twin.change();
                continue;
            }
            5..9 => {
                // One looks, the next one moves.
                for _ in 0..1 + twin.choose(4) {
                    twin.commit();
                    twin.check();
                }
                twin.commit();
            }
            _ => {
                let statistics = &twin.rig().aggregate.statistics;
                moved += statistics.emptying_moved_blocks.load(Ordering::Relaxed);
                let steps = twin.choose(200);
                twin.cut_after(steps);
            }
        }
        twin.check();
    }
    let statistics = &twin.rig().aggregate.statistics;
    moved + statistics.emptying_moved_blocks.load(Ordering::Relaxed)
}

#[test]
fn blocks_of_areas_that_are_emptied_read_the_same() {
    let moved: u64 = (0..SEEDS).map(empty_areas).sum();
    assert!(moved > 300, "{moved} blocks have moved");
}

/// Entries of container maps that name a block in the group.
fn left_in_group(twin: &mut Twin) -> usize {
    let geometry = twin.rig().aggregate.parts.store.geometry();
    let is_there = |pvbn: Pvbn| geometry.locate(pvbn).is_some_and(|at| at.group == LEAVING);
    twin.check().entries.values().filter(|one| is_there(one.pvbn)).count()
}

fn leave(seed: u64) {
    let mut twin = Twin::new(seed, &GROUPS, tuning());
    for _ in 0..8 {
        twin.change();
        twin.commit();
    }
    assert!(left_in_group(&mut twin) > 20, "it has blocks");
    let rig = twin.rig();
    let begun = rig.wait(|done| rig.aggregate.remove_group(LEAVING, None, done));
    begun.expect("there is room elsewhere");
    for _ in 0..3 {
        let steps = twin.choose(400);
        if twin.choose(2) == 0 {
            twin.cut_after(steps);
        } else {
            for _ in 0..steps {
                twin.rig().step();
            }
        }
        twin.change();
    }
    for _ in 0..30 {
        twin.commit();
    }
    assert_eq!(left_in_group(&mut twin), 0);
    let geometry = twin.rig().aggregate.parts.store.geometry();
    assert!(geometry.group(LEAVING).is_removed() && twin.rig().aggregate.evacuation().is_none());
    twin.cut_after(0);
    twin.check();
}

#[test]
fn a_group_that_leaves_takes_nothing_along() {
    (0..SEEDS).for_each(leave);
}

/// Nothing but ticks has it go on: it asks for consistency points itself, in which areas of the
/// others are emptied, too.
fn leave_slowly(seed: u64) -> u64 {
    const RATE: u64 = 10;
    let mut twin = Twin::new(seed, &GROUPS, tuning());
    for _ in 0..8 {
        twin.change();
        twin.commit();
    }
    let before = left_in_group(&mut twin) as u64;
    let rig = twin.rig();
    let rate = Some(RATE * BLOCK_SIZE_U64);
    let begun = rig.wait(|done| rig.aggregate.remove_group(LEAVING, rate, done));
    begun.expect("there is room elsewhere");
    assert_eq!(rig.aggregate.evacuation_rate(), rate);
    let moved_of_all =
        |twin: &Twin| twin.rig().aggregate.statistics.emptying_moved_blocks.load(Ordering::Relaxed);
    let moved_before = moved_of_all(&twin);
    let (mut second, mut left) = (0, before);
    while left > 0 {
        twin.rig().aggregate.tick(second * SECOND);
        twin.rig().settle();
        left = left_in_group(&mut twin) as u64;
        let moved = before - left;
        assert!(moved <= second * RATE + AREA_BLOCKS, "{moved} moved in {second} seconds");
        second += 1;
        assert!(second < 600, "it stands: {left} of {before} are left");
    }
    moved_of_all(&twin) - moved_before - before
}

#[test]
fn a_group_leaves_no_faster_than_was_asked() {
    let moved_of_others: u64 = (0..SEEDS).map(leave_slowly).sum();
    assert!(moved_of_others > 0, "the others' areas wait");
}

#[test]
fn the_rate_of_a_group_that_leaves_is_changed() {
    let mut twin = Twin::new(1, &GROUPS, tuning());
    for _ in 0..8 {
        twin.change();
        twin.commit();
    }
    let before = left_in_group(&mut twin);
    let rig = twin.rig();
    assert!(!rig.aggregate.limit_evacuation(Some(1)), "none leaves");
    let begun = rig.wait(|done| rig.aggregate.remove_group(LEAVING, Some(1), done));
    begun.expect("there is room elsewhere");
    (0..20).for_each(|_| twin.commit());
    twin.rig().aggregate.tick(0);
    let left = left_in_group(&mut twin);
    assert!(left > 0 && left + AREA_BLOCKS as usize >= before, "{left} of {before}");
    assert!(twin.rig().aggregate.limit_evacuation(None));
    twin.rig().aggregate.tick(1);
    twin.rig().settle();
    assert_eq!(left_in_group(&mut twin), 0, "it had only to be told");
    // A limit is of one removal.
    twin.rig().settle();
    let aggregate = &twin.rig().aggregate;
    assert!(aggregate.evacuation().is_none() && aggregate.evacuation_rate().is_none());
}

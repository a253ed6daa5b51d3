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

use super::twin::Twin;
use crate::Tuning;
use ondisk::label::RaidKind;
use std::sync::atomic::Ordering;
use units::Pvbn;

const GROUPS: [(RaidKind, usize); 3] =
    [(RaidKind::None, 1), (RaidKind::None, 1), (RaidKind::Raid4, 3)];
const LEAVING: u32 = 1;
const STEPS: usize = 30;
const SEEDS: u64 = 12;

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
    let begun = rig.wait(|done| rig.aggregate.remove_group(LEAVING, done));
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

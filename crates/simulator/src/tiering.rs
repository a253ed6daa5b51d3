//! Volumes whose blocks cool, move to the object store and come back, under load and through cuts,
//! while the clock of day leaps by hours.
//!
//! That a block is the same wherever it lies the trees of all images say; that the counts are those
//! of the container maps, the reader of the media ([`crate::media`]). Here it is about what may
//! move.
//!
//! Invariants: a volume that was never told to move everything has nothing moved before the least
//! number of days has passed since it was made; one that was told to move what only snapshots hold
//! has no more in objects than they hold.

use crate::finding::Finding;
use crate::growth::Growth;
use crate::machine::Machine;
use dblade::{ServedVolume, Tiering, TieringPolicy};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::VolumeId;

const HOUR_NANOSECONDS: u64 = 3600 * 1_000_000_000;
/// What a leap is at most: longer than a temperature scan's period, so that some are left out.
const LEAP_HOURS_MAX: u64 = 9;
/// Leaps while clients rest: more than it takes until a block is cold.
const QUIET_SCANS_MAX: u64 = 24;
/// Days until a block is cold, at least.
const COOLING_HOURS_MIN: u64 = 2 * 24;
/// As long as the aggregate was never fuller than this many parts in ten of its disks, nothing was
/// written to objects for want of room.
const FULL_TENTHS: u64 = 7;

/// What is known of volumes.
#[derive(Default)]
pub struct Tierings {
    /// The policies that a volume may ever have had, beside none.
    policies: BTreeMap<VolumeId, BTreeSet<&'static str>>,
    /// Volumes of which a snapshot was restored, by name.
    restored: BTreeSet<String>,
    used_blocks_max: u64,
}

const fn name_of(policy: TieringPolicy) -> &'static str {
    match policy {
        TieringPolicy::None => "none",
        TieringPolicy::SnapshotOnly => "snapshot-only",
        TieringPolicy::Auto => "auto",
        TieringPolicy::All => "all",
    }
}

impl Tierings {
    /// A snapshot of a volume is about to be restored: what only it held is active again.
    pub fn note_restore(&mut self, volume: &str) {
        self.restored.insert(volume.to_owned());
    }

    fn was(&self, volume: &ServedVolume, policy: TieringPolicy) -> bool {
        let had = self.policies.get(&volume.environment.volume);
        had.is_some_and(|had| had.contains(name_of(policy)))
    }
}

impl Machine<'_> {
    /// Some volume's blocks are to move to the object store in another way, or no longer.
    pub fn change_tiering(&mut self) {
        let volumes = self.engine.volumes();
        if self.plan.growth != Some(Growth::Objects) || volumes.is_empty() {
            return;
        }
        let volume = &volumes[self.choices.index(volumes.len())];
        // A volume that is to move everything soon has nothing left that could cool.
        let number = volume.environment.volume;
        let policies: &[TieringPolicy] = match number.get() % 3 {
            0 => &[TieringPolicy::All, TieringPolicy::Auto, TieringPolicy::None],
            1 => &[TieringPolicy::SnapshotOnly, TieringPolicy::SnapshotOnly, TieringPolicy::None],
            _ => &[TieringPolicy::Auto, TieringPolicy::SnapshotOnly, TieringPolicy::Auto],
        };
        let policy = self.choices.pick(policies);
        let is_cooling = matches!(policy, TieringPolicy::SnapshotOnly | TieringPolicy::Auto);
        let cooling_days = is_cooling.then_some(2);
        self.trace.note(format!("tiering of {}: {policy:?}", volume.name));
        self.tierings.policies.entry(number).or_default().insert(name_of(policy));
        // It may be gone by then, or be traditional, or the log fails.
        let tiering = Tiering { policy, cooling_days };
        self.engine.set_tiering(&volume.name, tiering, Box::new(|_| ()));
    }

    /// Days in which clients do nothing: blocks cool and move, though not always for long enough.
    ///
    /// # Errors
    /// As everything that drives the machine.
    pub fn rest_for_days(&mut self) -> Result<(), Finding> {
        if self.plan.growth != Some(Growth::Objects) || !self.choices.chance(60) {
            return Ok(());
        }
        for _ in 0..self.choices.below(QUIET_SCANS_MAX) {
            self.leap();
            self.consistency_point()?;
            self.settle()?;
        }
        Ok(())
    }

    /// The clock of day leaps, as after a sleep: blocks cool.
    pub fn leap(&mut self) {
        let nanoseconds = self.choices.below(LEAP_HOURS_MAX * HOUR_NANOSECONDS);
        self.trace.note(format!("the clock leaps by {} s", nanoseconds / 1_000_000_000));
        self.trace.fold(nanoseconds);
        self.trace.meet("tiering: the clock leaps");
        self.world.leap(nanoseconds);
        self.note_use();
    }

    fn note_use(&mut self) {
        let used = self.aggregate().map_or(0, |aggregate| aggregate.used_blocks());
        self.tierings.used_blocks_max = self.tierings.used_blocks_max.max(used);
    }

    /// Whether only what may lie in objects does; at rest.
    ///
    /// # Errors
    /// [`Finding::Media`].
    pub fn check_tiering(&mut self) -> Result<(), Finding> {
        self.note_use();
        if self.plan.growth != Some(Growth::Objects) {
            return Ok(());
        }
        for volume in self.engine.volumes() {
            self.check_tiering_of(&volume)?;
        }
        Ok(())
    }

    fn check_tiering_of(&mut self, volume: &Arc<ServedVolume>) -> Result<(), Finding> {
        let found = |text: String| Err(Finding::Media(format!("volume {}: {text}", volume.name)));
        let in_objects = volume.object_blocks();
        let was = |policy| self.tierings.was(volume, policy);
        let age = platform::Clock::wall(&self.world).get().saturating_sub(volume.created.get());
        let age_hours = u64::try_from(age).unwrap_or(0) / HOUR_NANOSECONDS;
        if in_objects > 0 && !was(TieringPolicy::All) {
            if age_hours < COOLING_HOURS_MIN && !self.clock.is_unsteady() {
                return found(format!("blocks have moved and it is {age_hours} hours old"));
            }
            self.trace.meet("tiering: cold blocks have moved");
        }
        let held = volume.used_blocks().saturating_sub(volume.active_blocks());
        // What they held until it was freed.
        let held = held + volume.delayed_blocks();
        let was_full = self.tierings.used_blocks_max * 10 > self.first_end().get() * FULL_TENTHS;
        let was = |policy| self.tierings.was(volume, policy);
        let may_have_active = was(TieringPolicy::All)
            || was(TieringPolicy::Auto)
            || self.tierings.restored.contains(&volume.name);
        if was_full || may_have_active || in_objects == 0 {
            return Ok(());
        }
        self.trace.meet("tiering: only what snapshots hold has moved");
        if in_objects > held {
            return found(format!("{in_objects} blocks are in objects, snapshots hold {held}"));
        }
        Ok(())
    }
}

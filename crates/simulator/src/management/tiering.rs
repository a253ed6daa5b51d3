//! Volumes whose blocks cool, move to the object store and come back, under load and through cuts,
//! while the clock of day leaps by hours.
//!
//! That a block is the same wherever it lies the trees of all images say; that the counts are those
//! of the container maps, the reader of the media ([`crate::checks::media`]). Here it is about what
//! may move.
//!
//! Invariants: a volume that was never told to move everything has nothing moved before the least
//! number of days has passed since it was made; one that was told to move what only snapshots hold
//! has no more in objects than they hold.

use crate::machine::Machine;
use crate::plan::Growth;
use crate::seed::finding::Finding;
use dblade::{ServedVolume, Tiering, TieringPolicy};
use std::collections::{BTreeMap, BTreeSet};
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
    /// Whether a volume may ever have had a policy. A clone begins with one of its parent's.
    fn was(&self, volume: &ServedVolume, policy: TieringPolicy) -> bool {
        let parent = volume.origin().map(|origin| origin.parent);
        let of = [Some(volume.environment.volume), parent].into_iter().flatten();
        let mut had = of.filter_map(|volume| self.policies.get(&volume));
        had.any(|had| had.contains(name_of(policy)))
    }

    /// A clone is split from its parent, whose policies it may have begun with.
    pub fn inherit(&mut self, clone: VolumeId, parent: VolumeId) {
        let had = self.policies.get(&parent).cloned().unwrap_or_default();
        self.policies.entry(clone).or_default().extend(had);
    }

    /// Some volume's blocks are to move to the object store in another way, or no longer.
    pub fn change(&mut self, machine: &mut Machine<'_>) {
        let volumes = machine.engine.volumes();
        if machine.plan.growth != Some(Growth::Objects) || volumes.is_empty() {
            return;
        }
        let volume = &volumes[machine.choices.index(volumes.len())];
        // A volume that is to move everything soon has nothing left that could cool.
        let number = volume.environment.volume;
        let policies: &[TieringPolicy] = match number.get() % 3 {
            0 => &[TieringPolicy::All, TieringPolicy::Auto, TieringPolicy::None],
            1 => &[TieringPolicy::SnapshotOnly, TieringPolicy::SnapshotOnly, TieringPolicy::None],
            _ => &[TieringPolicy::Auto, TieringPolicy::SnapshotOnly, TieringPolicy::Auto],
        };
        let policy = machine.choices.pick(policies);
        let is_cooling = matches!(policy, TieringPolicy::SnapshotOnly | TieringPolicy::Auto);
        let cooling_days = is_cooling.then_some(2);
        machine.trace.note(format!("tiering of {}: {policy:?}", volume.name()));
        self.policies.entry(number).or_default().insert(name_of(policy));
        // It may be gone by then, or be traditional, or the log fails.
        let tiering = Tiering { policy, cooling_days };
        machine.engine.set_tiering(&volume.name(), tiering, Box::new(|_| ()));
    }

    /// Days in which clients do nothing: blocks cool and move, though not always for long enough.
    ///
    /// # Errors
    /// As everything that drives the machine.
    pub fn rest_for_days(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        if machine.plan.growth != Some(Growth::Objects) || !machine.choices.chance(60) {
            return Ok(());
        }
        for _ in 0..machine.choices.below(QUIET_SCANS_MAX) {
            self.leap(machine);
            machine.consistency_point()?;
            machine.settle()?;
        }
        Ok(())
    }

    /// The clock of day leaps, as after a sleep: blocks cool.
    pub fn leap(&mut self, machine: &mut Machine<'_>) {
        let nanoseconds = machine.choices.below(LEAP_HOURS_MAX * HOUR_NANOSECONDS);
        machine.trace.note(format!("the clock leaps by {} s", nanoseconds / 1_000_000_000));
        machine.trace.fold(nanoseconds);
        machine.trace.meet("tiering: the clock leaps");
        machine.world.leap(nanoseconds);
        self.note_use(machine);
    }

    fn note_use(&mut self, machine: &Machine<'_>) {
        let used = machine.aggregate().map_or(0, |aggregate| aggregate.used_blocks());
        self.used_blocks_max = self.used_blocks_max.max(used);
    }

    /// Whether only what may lie in objects does; at rest. Of `restored` volumes a snapshot was
    /// restored: what only it held is active again.
    ///
    /// # Errors
    /// [`Finding::Media`].
    pub fn check(
        &mut self,
        machine: &mut Machine<'_>,
        restored: &BTreeSet<&str>,
    ) -> Result<(), Finding> {
        self.note_use(machine);
        if machine.plan.growth != Some(Growth::Objects) {
            return Ok(());
        }
        for volume in machine.engine.volumes() {
            let is_restored = restored.contains(volume.name().as_str());
            self.check_volume(machine, &volume, is_restored)?;
        }
        Ok(())
    }

    fn check_volume(
        &self,
        machine: &mut Machine<'_>,
        volume: &ServedVolume,
        is_restored: bool,
    ) -> Result<(), Finding> {
        let found = |text: String| Err(Finding::Media(format!("volume {}: {text}", volume.name())));
        let in_objects = volume.object_blocks();
        let was = |policy| self.was(volume, policy);
        let age = platform::Clock::wall(&machine.world).get().saturating_sub(volume.created.get());
        let age_hours = u64::try_from(age).unwrap_or(0) / HOUR_NANOSECONDS;
        // From full disks blocks are written to objects whatever the policy says.
        let was_full = self.used_blocks_max * 10 > machine.plan.first_end().get() * FULL_TENTHS;
        if in_objects > 0 && !was(TieringPolicy::All) && !was_full {
            if age_hours < COOLING_HOURS_MIN && !machine.clock.is_unsteady() {
                return found(format!("blocks have moved and it is {age_hours} hours old"));
            }
            machine.trace.meet("tiering: cold blocks have moved");
        }
        let held = volume.used_blocks().saturating_sub(volume.active_blocks());
        // What they held until it was freed.
        let held = held + volume.delayed_blocks();
        let was = |policy| self.was(volume, policy);
        let may_have_active = was(TieringPolicy::All) || was(TieringPolicy::Auto) || is_restored;
        if was_full || may_have_active || in_objects == 0 {
            return Ok(());
        }
        machine.trace.meet("tiering: only what snapshots hold has moved");
        if in_objects > held {
            return found(format!("{in_objects} blocks are in objects, snapshots hold {held}"));
        }
        Ok(())
    }
}

//! Snapshots that a volume deletes by itself where room is short.
//!
//! An administrator chooses which ([`SnapshotAutodelete`]): those of schedules, or those first and
//! then the others. A freeze deletes the oldest of them, one at a time: the next is looked at when
//! the last is gone, and clearing delayed frees gets no further. Whoever finds no room meanwhile
//! waits ([`cowfs::logical::Shared::ask_for_deletion`]), whether it is the volume's room that is
//! short or the aggregate's. Growth and what is being freed in the volume come first.
//!
//! Invariants: snapshots that are held, or that clones began with, stay. Those that somebody has
//! taken stay unless the administrator chose all, and then until no other may go. Nothing is
//! deleted while a restore is under way, nor at a freeze at which a restore or a hold is put off.
//!
//! Fails: a deletion for which the aggregate has no room is tried again at the next freeze. Where
//! no snapshot may go, or the work on a deleted one finds no room, nobody waits for one until the
//! freeze after that.

use crate::flexible::FlexibleVolume;
use crate::snapshots::{Birth, SnapshotRequest};
use affinity::Access;
use aggregate::{Acted, SnapshotAutodelete};
use cowfs::logical::Shared;
use cowfs::pointer::Pointer;
use cowfs::snapshot::Snapshot;
use cowfs::space::Space;
use platform::mutation::{self, Rule};
use std::sync::atomic::Ordering;
use units::{Schedule, SnapshotUuid, Timestamp};

/// Room is short when less than this part of the volume is free and not kept as a reserve. It is
/// half of what a volume grows at: growth comes first.
const SHORT_SHARE: u64 = 20;

/// Deletes the oldest snapshot that may go if somebody waits for it, or if room is short and the
/// volume is at its largest size; part of a freeze. `is_dirty`: the volume has changes. Where these
/// free something, whether the room is short is known later.
pub(crate) fn delete_if_short(volume: &FlexibleVolume, access: &mut Access<'_>, is_dirty: bool) {
    let shared = &volume.front.shared;
    let is_wanted = shared.wants_deletion.swap(false, Ordering::Relaxed);
    let is_needed = std::mem::take(&mut volume.vbn.write(access).is_snapshot_needed);
    let which = chosen(volume, access);
    shared.may_delete_snapshot.store(which != SnapshotAutodelete::Off, Ordering::Relaxed);
    let side = volume.vbn.read(access);
    let is_low = is_dirty
        && !shared.budget.has_frees()
        && shared.growth_blocks.load(Ordering::Relaxed) == 0
        && is_low(&side.space, shared.budget.unpromised_blocks(), volume.size_blocks());
    if which == SnapshotAutodelete::Off || !(is_wanted || is_low) {
        return;
    }
    let is_freeing = is_deleting(&side.space) || volume.goes_on_clearing(side);
    if is_freeing || is_needed || side.requests.restore.is_some() {
        return;
    }
    let Some(name) = oldest(volume, access, which) else {
        return shared.may_delete_snapshot.store(false, Ordering::Relaxed);
    };
    let birth = Birth { identity: SnapshotUuid([0; 16]), time: Timestamp(0) };
    let delete = SnapshotRequest::Delete(name.clone());
    match volume.accept(access, &delete, birth) {
        Ok(Acted::Done) => {
            volume.vbn.write(access).autodeleted.push(name);
            // Who waits is woken before the commit, and waits on for what goes.
            shared.reclaiming.store(true, Ordering::Relaxed);
        }
        Ok(Acted::PutOff(_)) => {}
        Err(_) => shared.may_delete_snapshot.store(false, Ordering::Relaxed),
    }
}

/// The work on snapshots has found no room at this freeze. If it is on one that was deleted, nobody
/// is to wait for more.
pub(crate) fn note_put_off<P: Pointer>(shared: &Shared, space: &Space<P>) {
    if is_deleting(space) {
        shared.may_delete_snapshot.store(false, Ordering::Relaxed);
    }
}

fn is_deleting<P: Pointer>(space: &Space<P>) -> bool {
    space.snapshots.iter().any(|snapshot| snapshot.deleting)
}

/// Whether less is free than should be, and all snapshots together hold as much as is missing.
const fn is_low<P: Pointer>(space: &Space<P>, free_blocks: u64, size_blocks: u64) -> bool {
    let missing = (size_blocks / SHORT_SHARE).saturating_sub(free_blocks);
    missing > 0 && space.used_blocks.saturating_sub(space.active_blocks) >= missing
}

/// What the volume's record says, also if this freeze has changed it. Of a volume whose record may
/// not be changed, because it is deleted and kept, nothing is deleted.
fn chosen(volume: &FlexibleVolume, access: &Access<'_>) -> SnapshotAutodelete {
    if volume.autodelete() == SnapshotAutodelete::Off {
        return SnapshotAutodelete::Off;
    }
    let Some(aggregate) = volume.aggregate.upgrade() else { return SnapshotAutodelete::Off };
    let side = aggregate.block_side.read(access);
    let record = |slot: usize| SnapshotAutodelete::of(&side.table[slot].record);
    side.changeable_slot_of(volume.front.id).map_or(SnapshotAutodelete::Off, record)
}

/// The snapshot that goes next. The newest of each schedule goes after the others of schedules: it
/// would be taken again.
fn oldest(
    volume: &FlexibleVolume,
    access: &Access<'_>,
    which: SnapshotAutodelete,
) -> Option<String> {
    let aggregate = volume.aggregate.upgrade()?;
    let blocks = aggregate.block_side.read(access);
    let snapshots = &volume.vbn.read(access).space.snapshots;
    let is_base = |one: &Snapshot<_>| blocks.check_no_base(volume.front.id, &[one.id]).is_err();
    let may_go = |one: &&Snapshot<_>| !one.deleting && !one.held && !is_base(one);
    let schedule_of = |one: &Snapshot<_>| Schedule::of_name(&one.name);
    let newest = Schedule::ALL.map(|schedule| {
        let of = snapshots.iter().rev().find(|one| schedule_of(one) == Some(schedule));
        of.map(|one| one.id)
    });
    let is_scheduled = |one: &&Snapshot<_>| {
        schedule_of(one).is_some() || mutation::broken(Rule::OwnSnapshotAutodeleted)
    };
    let scheduled = || snapshots.iter().filter(is_scheduled).filter(may_go);
    let found = scheduled().find(|one| !newest.contains(&Some(one.id)));
    let found = found.or_else(|| scheduled().next()).or_else(|| match which {
        SnapshotAutodelete::All => snapshots.iter().find(may_go),
        SnapshotAutodelete::Scheduled | SnapshotAutodelete::Off => None,
    });
    found.map(|one| one.name.clone())
}

//! Snapshots that a volume deletes by itself where room is short.
//!
//! An administrator chooses which ([`SnapshotAutodelete`]): those of schedules, or those first and
//! then the others. A freeze deletes the oldest of them, one at a time: the next is looked at when
//! the space of the last has come back. Whoever finds no room meanwhile waits
//! ([`cowfs::logical::Shared::ask_for_snapshot`]), whether it is the volume's room that is short or
//! the aggregate's. Growth and what is being freed come first.
//!
//! Invariants: snapshots that are held, or that clones began with, stay; so do the snapshots that
//! somebody has taken, while one of a schedule may go. Nothing is deleted while a restore is under
//! way.
//!
//! Fails: a deletion for which the aggregate has no room is tried again at the next freeze. Where
//! no snapshot may go nobody waits for one until the freeze after that.

use crate::flexible::FlexibleVolume;
use crate::snapshots::{Birth, SnapshotRequest};
use affinity::Access;
use aggregate::{Acted, SnapshotAutodelete};
use cowfs::snapshot::Snapshot;
use platform::mutation::{self, Rule};
use std::sync::atomic::Ordering;
use units::{Schedule, SnapshotUuid, Timestamp};

/// Room is short when less than this part of the volume could still be promised. It is half of what
/// a volume grows at: growth comes first.
const SHORT_SHARE: u64 = 20;

/// Deletes the oldest snapshot that may go if room is short and the volume does not grow; part of a
/// freeze. `is_dirty`: it has changes. Where the changes free something, whether the room is short
/// is known later.
pub(crate) fn delete_if_short(volume: &FlexibleVolume, access: &mut Access<'_>, is_dirty: bool) {
    let shared = &volume.front.shared;
    let is_wanted = shared.wants_snapshot.swap(false, Ordering::Relaxed);
    let which = chosen(volume, access);
    shared.gives_snapshots.store(which != SnapshotAutodelete::Off, Ordering::Relaxed);
    let is_low = is_dirty
        && !shared.budget.has_frees()
        && shared.growth_blocks.load(Ordering::Relaxed) == 0
        && shared.budget.free_blocks() < volume.size_blocks() / SHORT_SHARE;
    let side = volume.vbn.read(access);
    let is_busy = side.space.has_snapshot_work() || side.requests.restore.is_some();
    if which == SnapshotAutodelete::Off || !(is_wanted || is_low) || is_busy {
        return;
    }
    let Some(name) = oldest(volume, access, which) else {
        return shared.gives_snapshots.store(false, Ordering::Relaxed);
    };
    let birth = Birth { identity: SnapshotUuid([0; 16]), time: Timestamp(0) };
    let delete = SnapshotRequest::Delete(name.clone());
    match volume.accept(access, &delete, birth) {
        Ok(Acted::Done) => volume.vbn.write(access).autodeleted.push(name),
        Ok(Acted::PutOff(_)) => {}
        Err(_) => shared.gives_snapshots.store(false, Ordering::Relaxed),
    }
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

/// The snapshot that goes next.
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
    let is_scheduled = |one: &&Snapshot<_>| {
        Schedule::of_name(&one.name).is_some() || mutation::broken(Rule::OwnSnapshotAutodeleted)
    };
    let found = snapshots.iter().filter(is_scheduled).find(may_go);
    let found = found.or_else(|| match which {
        SnapshotAutodelete::All => snapshots.iter().find(may_go),
        SnapshotAutodelete::Scheduled | SnapshotAutodelete::Off => None,
    });
    found.map(|one| one.name.clone())
}

//! The end of an aggregate: it is deleted, through power cuts, and another is made of its disks.
//!
//! Invariants: after a cut there is the whole aggregate, or none and free disks: what was its
//! disks makes an aggregate again, without force.
//!
//! Fails: [`Finding::Operator`].

use super::calls::wrong;
use super::desk::Asked;
use super::life::OperatorLife;
use crate::machine::AGGREGATE;
use crate::machine::cut::Cut;
use crate::seed::finding::Finding;
use crate::seed::reduction::Calm;
use admin_api::{
    AggregateCreate, AggregateDelete, MountRemove, Reply, Request, SnapshotHold, VolumeDelete,
    VolumePurge,
};

/// Of 100 lives in which it is clear whose the disks are, those that end so.
const ENDING_PERCENT: u64 = 60;
/// Of 100 deletions, those that a cut may end.
const CUT_PERCENT: u64 = 60;

/// Deletes the aggregate, if all its disks are there, and makes another.
pub(super) fn end_aggregate(life: &mut OperatorLife<'_>) -> Result<(), Finding> {
    let disks = life.expected.disks.known().into_iter().map(str::to_owned);
    let disks: Vec<String> = disks.collect();
    let is_clear = life.expected.disks.is_clear() && life.machine.gone_disk().is_none();
    if !is_clear || life.machine.is_outage() || !life.events.chance(ENDING_PERCENT) {
        return Ok(());
    }
    empty_aggregate(life)?;
    let delete = |dry_run| {
        let (name, force) = (AGGREGATE.to_owned(), false);
        Request::AggregateDelete(AggregateDelete { name, force, dry_run, plan: None })
    };
    life.call(Asked::Request(Box::new(delete(true))))?;
    let step = life.machine.trace.step;
    let is_cut = life.events.chance(CUT_PERCENT) && !life.reduction.is_calm(Calm::EarlyCuts);
    life.machine.arm(is_cut.then(|| Cut::At(step + life.events.scaled(8))));
    let deleted = life.call(Asked::Request(Box::new(delete(false))));
    life.after(deleted)?;
    life.machine.arm(None);
    if life.expected.is_made {
        life.machine.trace.meet("operator: a cut kept an aggregate from being deleted");
        life.call(Asked::Request(Box::new(delete(false))))?;
    }
    let Reply::AggregateList(left) = life.read(Request::AggregateList)? else { return Ok(()) };
    if !left.is_empty() {
        let asked = Asked::Request(Box::new(delete(false)));
        return Err(wrong(&asked, &format!("it was deleted, and is shown: {left:?}")));
    }
    // What was asked of a slow disk before ends, and the disk is erased then.
    life.machine.settle()?;
    life.call(Asked::Watch)?;
    life.machine.trace.meet("operator: an aggregate is made of disks of a deleted one");
    let create = AggregateCreate::new(AGGREGATE, disks, life.expected.raid);
    life.call(Asked::Request(Box::new(Request::AggregateCreate(create))))?;
    let request = life.typist().volume_to_begin_with();
    life.call(Asked::Request(Box::new(request)))
}

/// Deletes all volumes; before that the aggregate is not deleted.
fn empty_aggregate(life: &mut OperatorLife<'_>) -> Result<(), Finding> {
    let mountpoints: Vec<String> = life.expected.mounts.keys().cloned().collect();
    for mountpoint in mountpoints {
        let unmount = Request::FuseUnmount(MountRemove { mountpoint });
        life.call(Asked::Request(Box::new(unmount)))?;
    }
    // A volume goes when its clones have gone, those that are kept included.
    loop {
        let going = life.expected.volume_to_delete();
        let Some(name) = going.clone().or_else(|| life.expected.deleted.keys().next().cloned())
        else {
            return Ok(());
        };
        let (force, dry_run, plan) = (true, false, None);
        let early = AggregateDelete { name: AGGREGATE.to_owned(), force, dry_run, plan };
        life.call(Asked::Request(Box::new(Request::AggregateDelete(early))))?;
        let held = life.expected.volumes.get(&name).and_then(|volume| volume.held.first().cloned());
        let plan = None;
        let end = match (&going, held) {
            (Some(_), Some(snapshot)) => {
                Request::SnapshotHold(SnapshotHold { volume: name, name: snapshot, held: false })
            }
            (Some(_), None) => {
                let queue_for_seconds = if life.typed.chance(70) { Some(0) } else { None };
                Request::VolumeDelete(VolumeDelete { name, queue_for_seconds, dry_run, plan })
            }
            (None, _) => Request::VolumePurge(VolumePurge { name, dry_run, plan }),
        };
        life.call(Asked::Request(Box::new(end)))?;
    }
}

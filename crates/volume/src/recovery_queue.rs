//! The recovery queue: volumes that an administrator deleted, and that are kept until they are
//! purged.
//!
//! A volume of the queue is as it was when it was deleted, with its snapshots, its export rules and
//! its blocks. Its record has the feature [`RECOVERY_QUEUE`], and the time from when on it is
//! purged. Its name is free: in the queue it is found as [`VolumeRecord::title`] says.
//!
//! Invariants: all that was answered before the deletion is in the consistency point that notes it.
//! A volume comes back as it went, under its own name or another; a split under way has ended.
//!
//! Fails: [`AggregateError`], with nothing changed.

use aggregate::{AggregateError, FreezeScope, guarantees};
use ondisk::features::RECOVERY_QUEUE;
use ondisk::records::{VolumeRecord, name_field};
use platform::mutation::{self, Rule};
use units::{Timestamp, VolumeId};
use zerocopy::little_endian::I64;

/// How long a deleted volume is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keeping {
    /// When it was deleted.
    pub deleted: Timestamp,
    /// From when on it is purged.
    pub purge_after: Timestamp,
}

/// How long a volume is kept, if it is in the queue.
#[must_use]
pub fn keeping_of(record: &VolumeRecord) -> Option<Keeping> {
    record.is_queued().then(|| Keeping {
        deleted: Timestamp(record.deleted.get()),
        purge_after: Timestamp(record.purge_after.get()),
    })
}

/// Moves a volume into the queue; part of a freeze's action. Whether it is offline: so it is again
/// when it is back.
///
/// # Errors
/// The volume is gone or in the queue, or this build lacks something of it.
pub fn enter(
    scope: &mut FreezeScope<'_, '_>,
    volume: VolumeId,
    keeping: Keeping,
) -> Result<bool, AggregateError> {
    let slot = scope.block_side().changeable_slot_of(volume)?;
    scope.end_split(volume);
    let side = scope.block_side();
    let record = &mut side.table[slot].record;
    let is_offline = record.is_offline();
    if mutation::broken(Rule::QueueingForgotten) {
        return Ok(is_offline);
    }
    record.features.set(&RECOVERY_QUEUE);
    record.deleted = I64::new(keeping.deleted.get());
    record.purge_after = I64::new(keeping.purge_after.get());
    side.dirty_slots.insert(slot);
    guarantees::settle(scope.aggregate, scope.access);
    Ok(is_offline)
}

/// Moves a volume out of the queue, and gives it this name; part of a freeze's action.
///
/// # Errors
/// It is not in the queue, or it cannot have the name.
pub fn leave(
    scope: &mut FreezeScope<'_, '_>,
    volume: VolumeId,
    name: &str,
) -> Result<(), AggregateError> {
    let side = scope.block_side();
    let slot = side.queued_slot_of(volume)?;
    let Ok((bytes, size)) = name_field(name) else {
        return Err(AggregateError::Refused("the name is too long".to_owned()));
    };
    if side.name_in_use([name]).is_some() {
        return Err(AggregateError::Refused(format!("volume '{name}' exists")));
    }
    if mutation::broken(Rule::UndeleteForgotten) {
        return Ok(());
    }
    let record = &mut side.table[slot].record;
    record.features.clear(&RECOVERY_QUEUE);
    (record.deleted, record.purge_after) = (I64::new(0), I64::new(0));
    (record.name, record.name_size) = (bytes, size);
    side.dirty_slots.insert(slot);
    Ok(())
}

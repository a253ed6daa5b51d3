//! How many blocks of each volume lie in object stores: a count in the volume's record, which each
//! consistency point brings up to date with the container map that it changes.
//!
//! Invariants: the count is that of the container map of the same consistency point. Aggregates
//! without object stores pay nothing.

use crate::allocation::refill::{Tier, is_near, tier_of};
use crate::block_side::side::BlockSide;
use crate::containers::{ContainerUpdate, MemberCleaned, container_lookup};
use cowfs::pointer::Pointer;
use cowfs::reader::{LoadRequest, Progress, Reader, Stop, Wait};
use ondisk::pointer::PhysicalPointer;
use platform::mutation::{self, Rule};
use raid::Geometry;
use std::collections::BTreeMap;
use units::{VolumeId, Vvbn};

/// Nodes of container maps that are loaded together at most.
const LOADS_MAX: usize = 256;

/// Brings the counts up to date with what is to be changed.
///
/// # Errors
/// What to wait for; nothing is changed then.
pub(crate) fn count_objects(
    geometry: &Geometry,
    side: &mut BlockSide,
    cleaned: &[MemberCleaned],
    reader: &Reader<'_>,
) -> Progress<()> {
    if geometry.groups().iter().all(|group| tier_of(group) == Tier::Near) {
        return Ok(());
    }
    let mut missing = Vec::new();
    let mut changes = Vec::new();
    for MemberCleaned { volume, updates, .. } in cleaned {
        let change = change_of(side, *volume, updates, geometry, reader, &mut missing)?;
        changes.push((*volume, change));
        if missing.len() >= LOADS_MAX {
            break;
        }
    }
    if !missing.is_empty() {
        return Err(Stop::Wait(Wait::Load(missing)));
    }
    for (volume, change) in changes {
        let Some(slot) = side.slot_of(volume).filter(|_| change != 0) else { continue };
        if mutation::broken(Rule::ObjectsMiscounted) {
            continue;
        }
        let count = &mut side.table[slot].record.object_blocks;
        count.set(count.get().saturating_add_signed(change));
        side.dirty_slots.insert(slot);
    }
    Ok(())
}

/// By how much a volume's count changes; what must be loaded to know goes to `missing`.
fn change_of(
    side: &BlockSide,
    volume: VolumeId,
    updates: &[ContainerUpdate],
    geometry: &Geometry,
    reader: &Reader<'_>,
    missing: &mut Vec<LoadRequest>,
) -> Progress<i64> {
    let Some(container) = side.containers.get(&volume).filter(|one| one.is_live()) else {
        return Ok(0);
    };
    let count = |pointer: PhysicalPointer| {
        i64::from(!pointer.is_hole() && !is_near(geometry, pointer.pvbn))
    };
    // The last change of a number counts.
    let latest: BTreeMap<Vvbn, Option<PhysicalPointer>> = updates.iter().copied().collect();
    let mut change = 0;
    for (vvbn, new) in latest {
        match container_lookup(volume, container, vvbn, reader) {
            Ok(old) => change += count(new.unwrap_or_default()) - count(old),
            Err(Stop::Wait(Wait::Load(requests))) => {
                if missing.last() != requests.last() {
                    missing.extend(requests);
                }
                if missing.len() >= LOADS_MAX {
                    return Ok(0);
                }
            }
            // The container will be given up for it, and nothing of it changes.
            Err(Stop::Damaged(_)) => {}
            Err(stop) => return Err(stop),
        }
    }
    Ok(change)
}

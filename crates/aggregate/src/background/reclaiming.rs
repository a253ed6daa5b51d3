//! Giving back the room of freed blocks to disks that take it.
//!
//! A message looks at each unit in which a commit has freed blocks: its regions that are free as a
//! whole are discarded ([`crate::allocation::reclaim`]).
//!
//! Fails: never. What was freed just before a crash is given back when something beside it is
//! freed, or written to.

use crate::allocation::reclaim::{Reclaim, Unit, blocks_of, is_free};
use crate::block_side::side::BlockSide;
use crate::service::aggregate::Aggregate;
use affinity::{Access, Outcome};
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop};
use raid::DiskRegion;
use std::sync::Arc;
use units::Pvbn;

/// Units that one message looks at: some milliseconds, for which nothing else is allocated.
const UNITS_PER_MESSAGE: usize = 64;

/// Looks where blocks were freed, if there are disks that want to know.
pub(crate) fn go_on(aggregate: &Arc<Aggregate>, side: &mut BlockSide, freed: &[Pvbn]) {
    if side.reclaim.note(&*aggregate.parts.store, freed) {
        send_reclaim(aggregate);
    }
}

fn send_reclaim(aggregate: &Arc<Aggregate>) {
    let this = Arc::clone(aggregate);
    let held = HeldBlocks::default();
    let message = move |access: &mut Access<'_>| match look(&this, access, &held) {
        Err(Stop::Wait(wait)) => this.suspend(wait, &held),
        Err(stop) => {
            // The allocator will come by, and has to say more.
            tracing::warn!(aggregate = %this.parts.identity.name, %stop, "delayed frees cannot be reclaimed");
            this.block_side.write(access).reclaim = Reclaim::default();
            Outcome::Done
        }
        Ok(true) => {
            send_reclaim(&this);
            Outcome::Done
        }
        Ok(false) => Outcome::Done,
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

/// Looks at some units; whether more wait.
fn look(aggregate: &Aggregate, access: &mut Access<'_>, held: &HeldBlocks) -> Progress<bool> {
    let geometry = aggregate.parts.store.geometry();
    let reader = Reader { cache: &aggregate.parts.cache, held };
    let side = aggregate.block_side.write(access);
    let units: Vec<Unit> = side.reclaim.waiting.iter().take(UNITS_PER_MESSAGE).copied().collect();
    let mut found = Vec::new();
    for unit in units {
        let mut free = Vec::new();
        for region in unit.disk_regions() {
            if is_free(region, &geometry, &mut side.space, &reader)? {
                free.push(region);
            }
        }
        found.push((unit, free));
    }
    let under_way = aggregate.loads.places();
    let is_read = |region: &DiskRegion| {
        let blocks = blocks_of(&geometry, *region).unwrap_or_default();
        let at = under_way.partition_point(|pvbn| *pvbn < blocks.start);
        under_way.get(at).is_some_and(|pvbn| *pvbn < blocks.end)
    };
    let mut discarded = Vec::new();
    for (unit, free) in found {
        side.reclaim.waiting.remove(&unit);
        if free.iter().any(is_read) {
            side.reclaim.put_off.insert(unit);
        } else {
            discarded.extend(free);
        }
    }
    let is_more = !side.reclaim.waiting.is_empty();
    side.reclaim.is_running = is_more;
    if !discarded.is_empty() {
        aggregate.parts.store.discard(&discarded);
    }
    Ok(is_more)
}

//! The node of a life with clients.

use crate::plan::{Filling, Plan, VolumePlan};
use crate::seed::choices::Choices;
use file_service::Durability;
use ondisk::label::RaidKind;

/// The volume that clients mount; of a traditional aggregate it is the aggregate itself.
pub(super) const VOLUME: &str = "v";
pub(super) const VOLUME_BLOCKS: u64 = 4096;
/// Of 100 lives on disks with parity, those in which more disks go than parity covers.
const OUTAGE_PERCENT: u64 = 40;
/// Of 100 lives, those with little memory, where writes wait for room.
const SMALL_MEMORY_PERCENT: u64 = 70;
const SMALL_MEMORY_BYTES: u64 = 1 << 20;

/// The node of a life with clients: small, on disks that damage nothing.
pub(super) fn plan_of(plan: Plan, choices: &mut Choices) -> Plan {
    let has_small_memory = choices.chance(SMALL_MEMORY_PERCENT);
    let has_outages = choices.chance(OUTAGE_PERCENT) && plan.kind != RaidKind::None;
    let volume = VolumePlan {
        size_blocks: VOLUME_BLOCKS,
        autogrow_max_blocks: 0,
        durability: Durability::Logged,
    };
    Plan {
        disk_blocks: plan.disk_blocks.max(4 * VOLUME_BLOCKS / plan.disks as u64),
        memory_bytes: if has_small_memory { SMALL_MEMORY_BYTES } else { plan.memory_bytes },
        is_traditional: false,
        volumes: vec![volume],
        filling: Filling::Nothing,
        fault: None,
        lost_disks: Vec::new(),
        growth: None,
        is_damaged: false,
        has_outages,
        ..plan
    }
}

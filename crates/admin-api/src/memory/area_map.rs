//! The allocation areas of the node in memory: as many of every share as there can be.

use super::DISK_BYTES;
use crate::area_map::{AggregateMap, AreaCell, GroupAreas};
use crate::replies::{AggregateInfo, DiskRole};

/// Areas of a group.
const AREAS: u64 = 256;
/// Of these the last, which were not counted yet.
const UNCOUNTED: u64 = 6;
/// Ranges of free shares, as the engine has them.
const RANGES: u64 = 32;

/// The areas of an aggregate, the first ones full and later ones emptier and emptier; all groups
/// but the first are left out.
pub(super) fn map(aggregate: &AggregateInfo, cells_max: u64) -> AggregateMap {
    let groups = (0..aggregate.groups).map(|group| map_group(aggregate, group, cells_max));
    AggregateMap { aggregate: aggregate.name.clone(), groups: groups.collect() }
}

fn map_group(aggregate: &AggregateInfo, group: u64, cells_max: u64) -> GroupAreas {
    let disks = aggregate.disks.iter().filter(|disk| disk.group.map(u64::from) == Some(group));
    let data = disks.filter(|disk| disk.role == Some(DiskRole::Data));
    let media = data.clone().find_map(|disk| disk.media.clone());
    let area_bytes = data.count() as u64 * DISK_BYTES / AREAS;
    let has_cells = media.as_deref() != Some("object");
    let areas_per_cell = AREAS.div_ceil(cells_max.max(1));
    let mut map = GroupAreas {
        group,
        media,
        areas: AREAS,
        area_bytes,
        filling: (group == 0).then_some(AREAS - UNCOUNTED - 1),
        left_out: group > 0,
        by_free_share: vec![0; RANGES as usize],
        ..GroupAreas::default()
    };
    let mut cells = vec![AreaCell::default(); AREAS.div_ceil(areas_per_cell) as usize];
    for area in 0..AREAS {
        let Some(cell) = cells.get_mut((area / areas_per_cell) as usize) else { continue };
        cell.areas += 1;
        if area >= AREAS - UNCOUNTED {
            continue;
        }
        cell.counted_bytes += area_bytes;
        cell.free_bytes += area_bytes / AREAS * area;
        match map.by_free_share.iter_mut().rev().nth((area * RANGES / AREAS) as usize) {
            Some(_) if area == 0 => map.full += 1,
            Some(range) => *range += 1,
            None => {}
        }
    }
    if has_cells {
        map.counted_bytes = cells.iter().map(|cell| cell.counted_bytes).sum();
        map.free_bytes = cells.iter().map(|cell| cell.free_bytes).sum();
        map.cells = cells;
    }
    map
}

//! How much of which allocation area is free, as administrators see it.
//!
//! Invariants: nothing is read from disks and nothing is kept; the aggregate is asked, and its
//! answer is waited for.
//!
//! Fails: `NotFound`; `Conflict` if the aggregate is out of service, as nothing moves in it then.

use crate::aggregates::room::Aggregates;
use admin_api::{
    AdminError, AggregateMap, AggregateState, AreaCell, Code, DiskInfo, DiskRole, GroupAreas,
    MapShow,
};
use aggregate::GroupMap;
use units::BLOCK_SIZE_U64;

const MAP: &str = "cannot show the areas of";

impl Aggregates {
    pub(crate) fn area_map(&self, wanted: &MapShow) -> Result<AggregateMap, AdminError> {
        let known = self.aggregate_list().into_iter().find(|known| known.name == wanted.name);
        let Some(known) = known else {
            return Err(AdminError::missing(MAP, "aggregate", &wanted.name));
        };
        let error = || AdminError::new(Code::Conflict, MAP, &wanted.name);
        let aggregate = self.node.engine.aggregate_named(&wanted.name);
        let (Some(aggregate), false) = (aggregate, known.state == AggregateState::Offline) else {
            return Err(error().because("it is out of service").try_next("stroop status"));
        };
        let Some(groups) = self.node.waits.wait_for(|done| aggregate.area_map(wanted.cells, done))
        else {
            return Err(AdminError::new(Code::Failed, MAP, &wanted.name)
                .because("the engine stopped before the request was done"));
        };
        // One that was removed has no areas.
        let groups = (0..).zip(&groups).filter(|(_, map)| map.areas > 0);
        let groups = groups.map(|(group, map)| shown(group, media_of(group, &known.disks), map));
        Ok(AggregateMap { aggregate: known.name.clone(), groups: groups.collect() })
    }
}

/// What the disks of a group are, if they are all the same.
fn media_of(group: u64, disks: &[DiskInfo]) -> Option<String> {
    let is_of_it = |disk: &&DiskInfo| {
        disk.group.map(u64::from) == Some(group) && disk.role != Some(DiskRole::Spare)
    };
    let mut media = disks.iter().filter(is_of_it).filter_map(|disk| disk.media.as_ref());
    let first = media.next()?;
    media.all(|other| other == first).then(|| first.clone())
}

fn shown(group: u64, media: Option<String>, map: &GroupMap) -> GroupAreas {
    let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_SIZE_U64);
    let cells: Vec<AreaCell> = map
        .cells
        .iter()
        .map(|cell| AreaCell {
            areas: cell.areas,
            counted_bytes: bytes(cell.counted_blocks),
            free_bytes: bytes(cell.free_blocks),
        })
        .collect();
    GroupAreas {
        group,
        media,
        areas: map.areas,
        area_bytes: bytes(map.area_blocks),
        filling: map.filling,
        left_out: map.is_left_out,
        counted_bytes: cells.iter().map(|cell| cell.counted_bytes).sum(),
        free_bytes: cells.iter().map(|cell| cell.free_bytes).sum(),
        cells,
        by_free_share: map.by_free_share.to_vec(),
        full: map.full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aggregate::AreaCell as Cell;

    #[test]
    fn blocks_are_shown_as_bytes() {
        let cell = Cell { areas: 2, counted_blocks: 300, free_blocks: 100 };
        let other = Cell { areas: 1, counted_blocks: 0, free_blocks: 0 };
        let mut by_free_share = [0; 32];
        by_free_share[20] = 2;
        let map = GroupMap {
            areas: 3,
            area_blocks: 200,
            filling: Some(1),
            is_left_out: true,
            cells: vec![cell, other],
            by_free_share,
            full: 0,
        };
        let areas = shown(7, Some("ssd:4MiB".to_owned()), &map);
        assert_eq!((areas.group, areas.area_bytes), (7, 200 * 4096));
        assert_eq!((areas.counted_bytes, areas.free_bytes), (300 * 4096, 100 * 4096));
        assert_eq!((areas.cells.len(), areas.uncounted()), (2, 1));
        assert_eq!((areas.filling, areas.left_out), (Some(1), true));
    }
}

//! The allocation areas of an aggregate, drawn: `stroop aggr show NAME --map`.
//!
//! Invariants: a character is one cell; rows are nothing but such characters, so that they survive
//! copying; no heading is wider than 100 columns.

use crate::quantities::count;
use crate::table::{Column, Table};
use admin_api::{AggregateMap, AreaCell, GroupAreas};
use units::ByteSize;

/// Cells of a group that are asked for: eight rows.
pub(super) const CELLS_MAX: u64 = 8 * CELLS_PER_ROW as u64;
/// Half as many as a screen has columns, and easy to count.
const CELLS_PER_ROW: usize = 64;
/// From full to empty, each for a fifth of the free share: the fuller, the more ink.
const SHADES: [char; 5] = ['#', '%', '+', '-', '.'];
const LEGEND: &str =
    "legend      free: # 0-19%, % 20-39%, + 40-59%, - 60-79%, . 80-100%, ? not counted yet";
/// Widest heading: what a mail or an issue shows without wrapping.
const WIDTH_COLUMNS_MAX: usize = 100;
/// Where the text of heads begins.
const INDENT_COLUMNS: usize = 12;

/// The lines of all groups.
pub(super) fn lines(map: &AggregateMap) -> Vec<String> {
    let mut lines = Vec::new();
    if map.groups.iter().any(|group| !group.cells.is_empty()) {
        lines.push(LEGEND.to_owned());
    }
    for group in &map.groups {
        lines.push(String::new());
        lines.extend(heading(group));
        match group.cells.is_empty() {
            true => lines.extend(histogram(group)),
            false => lines.extend(rows(&group.cells)),
        }
    }
    lines
}

/// What is to be known of a group, on a second line if the first one is too short for it.
fn heading(group: &GroupAreas) -> Vec<String> {
    let mut parts: Vec<String> = group.media.iter().cloned().collect();
    parts.push(format!("{} of {}", count(group.areas, "area"), ByteSize(group.area_bytes)));
    let together = group.cells.first().map_or(1, |cell| cell.areas);
    if together > 1 {
        parts.push(format!("{together} a character"));
    }
    if let Some(free) = percent_free(group.free_bytes, group.counted_bytes) {
        parts.push(format!("{free}% free"));
    }
    parts.extend(group.filling.map(|area| format!("filling area {area}")));
    if group.left_out {
        parts.push("left out".to_owned());
    }
    let mut lines = Vec::new();
    let mut line = format!("{:<INDENT_COLUMNS$}", format!("group {} ", group.group));
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            line.push(',');
            if line.len() + 1 + part.len() + 1 > WIDTH_COLUMNS_MAX {
                lines.push(std::mem::replace(&mut line, " ".repeat(INDENT_COLUMNS)));
            } else {
                line.push(' ');
            }
        }
        line.push_str(part);
    }
    lines.push(line);
    lines
}

fn rows(cells: &[AreaCell]) -> impl Iterator<Item = String> {
    cells.chunks(CELLS_PER_ROW).map(|row| row.iter().map(shade).collect())
}

fn shade(cell: &AreaCell) -> char {
    let Some(free) = percent_free(cell.free_bytes, cell.counted_bytes) else { return '?' };
    let shade = usize::try_from(free).unwrap_or(usize::MAX) * SHADES.len() / 100;
    *SHADES.get(shade).unwrap_or(&'.')
}

/// In whole percent, rounded down, so that 100 means that nothing is used; `None` if nothing was
/// counted.
fn percent_free(free_bytes: u64, counted_bytes: u64) -> Option<u64> {
    let percent = (u128::from(free_bytes) * 100).checked_div(counted_bytes.into())?;
    Some(u64::try_from(percent).unwrap_or(u64::MAX))
}

/// A group whose areas are not known one by one: how many there are of each free share.
fn histogram(group: &GroupAreas) -> Vec<String> {
    let mut table = Table::new(&[
        ("FREE 75-100%", Column::Number),
        ("50-75%", Column::Number),
        ("25-50%", Column::Number),
        ("0-25%", Column::Number),
        ("FULL", Column::Number),
        ("NOT COUNTED", Column::Number),
    ]);
    let ranges = &group.by_free_share;
    let quarter = |index: usize| {
        let (start, end) = (ranges.len() * index / 4, ranges.len() * (index + 1) / 4);
        ranges.get(start..end).unwrap_or_default().iter().sum::<u64>().to_string()
    };
    table.row([
        quarter(0),
        quarter(1),
        quarter(2),
        quarter(3),
        group.full.to_string(),
        group.uncounted().to_string(),
    ]);
    table.render(true, None).lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_fuller_the_darker() {
        let cell = |free_bytes, counted_bytes| AreaCell { areas: 1, counted_bytes, free_bytes };
        let shades = [(0, 10), (1, 10), (2, 10), (5, 10), (6, 10), (8, 10), (10, 10), (0, 0)];
        let row: Vec<_> = shades.into_iter().map(|(free, of)| cell(free, of)).collect();
        assert_eq!(rows(&row).collect::<Vec<_>>(), ["##%+-..?"]);
        assert_eq!(shade(&cell(1999, 10_000)), '#');
        assert_eq!(shade(&cell(u64::MAX, u64::MAX)), '.');
    }

    #[test]
    fn the_shares_of_a_group_in_objects_are_counted() {
        let mut by_free_share = vec![0; 32];
        for (range, areas) in [(0, 7), (7, 1), (8, 2), (16, 3), (24, 4), (31, 5)] {
            by_free_share[range] = areas;
        }
        let group = GroupAreas { areas: 30, by_free_share, full: 6, ..GroupAreas::default() };
        let lines = histogram(&group);
        let counts: Vec<_> = lines[1].split_whitespace().collect();
        assert_eq!(counts, ["8", "2", "3", "9", "6", "2"], "{lines:?}");
    }

    proptest! {
        #[test]
        fn headings_are_never_too_wide(
            (group, areas, area_bytes) in (0..1024_u64, 1..u64::from(u32::MAX), any::<u64>()),
            (filling, left_out) in (prop::option::of(any::<u32>()), any::<bool>()),
            cell_areas in any::<u32>(),
        ) {
            let group = GroupAreas {
                group,
                media: Some("smr:256MiB".to_owned()),
                areas,
                area_bytes,
                filling: filling.map(u64::from),
                left_out,
                counted_bytes: u64::MAX,
                free_bytes: u64::MAX,
                cells: vec![AreaCell { areas: cell_areas.into(), ..AreaCell::default() }],
                ..GroupAreas::default()
            };
            let lines = heading(&group);
            prop_assert!(lines.iter().all(|line| line.len() <= WIDTH_COLUMNS_MAX), "{lines:?}");
            prop_assert!(lines.len() <= 2 && lines.join(" ").contains(" areas of ") | (areas == 1));
        }
    }
}

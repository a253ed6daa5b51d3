//! `stroop volume show --space` and `stroop aggr show --space`: where blocks are, drawn.

use super::snapshot::bytes;
use crate::output::Output;
use crate::quantities::count;
use crate::table::{Column, Table};
use admin_api::{AdminError, Administration, AggregateSpace, Named, SnapshotInfo, VolumeSpace};
use units::ByteSize;

/// Columns of the longest bar.
const BAR_COLUMNS: u64 = 24;

/// Quantities in one bar, each drawn with its sign. The quantity `most` fills the bar. A quantity
/// that is not zero has a sign at least.
pub(super) fn bar(parts: &[(char, u64)], most: u64) -> String {
    let mut text = String::new();
    for (sign, quantity) in parts {
        let share = u128::from(*quantity) * u128::from(BAR_COLUMNS) / u128::from(most.max(1));
        let columns = if *quantity > 0 { share.max(1) } else { 0 };
        text.extend(std::iter::repeat_n(*sign, columns as usize));
    }
    text
}

pub(super) fn show(node: &dyn Administration, name: &str) -> Result<Output, AdminError> {
    let space = node.volume_space(&Named { name: name.to_owned() })?;
    let mut output = Output::of(&space.volume, &space)?;
    output.table = Some(table(&space));
    let owned = ByteSize(space.owned_bytes);
    output = output.line(format!("{owned} in the aggregate are this volume's"));
    let inherited = space.inherited_live_bytes + space.inherited_snapshot_bytes;
    if inherited > 0 {
        output = output.line(format!(
            "{} more are shared with the volume's ancestors, {} of them held by its snapshots only",
            ByteSize(inherited),
            ByteSize(space.inherited_snapshot_bytes)
        ));
    }
    Ok(output.line(format!(
        "{} of {} are available",
        ByteSize(space.available_bytes),
        ByteSize(space.size_bytes)
    )))
}

fn table(space: &VolumeSpace) -> Table {
    let held = |snapshot: &SnapshotInfo| {
        (format!("@{}", snapshot.name), snapshot.exclusive_bytes, "comes back when it is deleted")
    };
    let shared = format!("held by several of {}", count(space.snapshots.len() as u64, "snapshot"));
    let mut parts = vec![("live".to_owned(), Some(space.live_bytes), "files as they are now")];
    parts.extend(space.snapshots.iter().map(held));
    let rest = [
        ("snapshots", space.shared_snapshot_bytes, shared.as_str()),
        ("deleted", space.deleted_snapshot_bytes, "of deleted snapshots, coming back"),
        ("freeing", space.delayed_free_bytes, "freed, coming back"),
    ];
    let rest = rest.into_iter().filter(|(_, bytes, _)| *bytes > 0);
    parts.extend(rest.map(|(name, bytes, what)| (name.to_owned(), Some(bytes), what)));
    let most = parts.iter().filter_map(|(_, bytes, _)| *bytes).max().unwrap_or(0);
    let mut table = Table::new(&[
        ("WHERE", Column::Text),
        ("SPACE", Column::Number),
        ("SHARE", Column::Text),
        ("WHAT", Column::Long),
    ]);
    for (name, part, what) in parts {
        let drawn = bar(&[('#', part.unwrap_or_default())], most);
        table.row([name, bytes(part), drawn, what.to_owned()]);
    }
    table
}

pub(super) fn show_aggregate(node: &dyn Administration, name: &str) -> Result<Output, AdminError> {
    let space = node.aggregate_space(&Named { name: name.to_owned() })?;
    let mut output = Output::of(&space.aggregate, &space)?;
    output.table = Some(aggregate_table(&space));
    Ok(output.line(format!(
        "{} of {} on its disks; {} are parity, {} spares",
        ByteSize(space.size_bytes),
        ByteSize(space.raw_bytes),
        ByteSize(space.parity_bytes),
        ByteSize(space.spare_bytes)
    )))
}

fn aggregate_table(space: &AggregateSpace) -> Table {
    let mut table = Table::new(&[
        ("WHERE", Column::Text),
        ("LIVE", Column::Number),
        ("SNAPS", Column::Number),
        ("FREEING", Column::Number),
        ("SPACE", Column::Number),
        ("SHARED", Column::Number),
        ("SHARE", Column::Text),
    ]);
    let whole = space.size_bytes;
    for share in &space.volumes {
        let name = if share.deleted {
            format!("{} (deleted)", share.volume)
        } else {
            share.volume.clone()
        };
        table.row([
            name,
            bytes(share.live_bytes),
            bytes(share.snapshot_bytes),
            ByteSize(share.delayed_free_bytes).to_string(),
            ByteSize(share.owned_bytes).to_string(),
            ByteSize(share.inherited_bytes).to_string(),
            bar(&[('#', share.owned_bytes)], whole),
        ]);
    }
    let rest = [
        ("(purged)", space.purged_bytes),
        ("(metadata)", space.metadata_bytes),
        ("(reserve)", space.reserve_bytes),
        ("(leaving)", space.leaving_bytes),
        ("(guaranteed)", space.guaranteed_bytes),
        ("(free)", space.free_bytes),
    ];
    for (name, part) in rest.into_iter().filter(|(name, part)| *part > 0 || *name == "(free)") {
        let [live, snapshots, freeing, shared] = ["-"; 4].map(str::to_owned);
        let (space, drawn) = (ByteSize(part).to_string(), bar(&[('#', part)], whole));
        table.row([name.to_owned(), live, snapshots, freeing, space, shared, drawn]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_seen() {
        assert_eq!(bar(&[('#', 0), ('+', 0)], 0), "");
        assert_eq!(bar(&[('#', 1), ('+', 1000)], 1001), format!("#{}", "+".repeat(23)));
        assert_eq!(bar(&[('#', u64::MAX)], u64::MAX), "#".repeat(24));
    }
}

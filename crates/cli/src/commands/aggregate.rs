//! `stroop aggr`.

use super::{count, disk, percent};
use crate::arguments::{AggregateCommand, Options};
use crate::confirm::confirm;
use crate::duration;
use crate::output::Output;
use crate::table::{Column, Table};
use crate::terminal::Terminal;
use admin_api::{
    AdminError, Administration, AggregateCreate, AggregateInfo, DiskState, Named, RaidKind, Removal,
};
use units::ByteSize;

pub(super) fn run(
    command: &AggregateCommand,
    options: &Options,
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
) -> Result<Output, AdminError> {
    match command {
        AggregateCommand::Create { name, disks, spares, raid, force, traditional, dry_run } => {
            let known = node.disk_list()?;
            let disks = disk::choose(&known, disks)?;
            let others: Vec<_> =
                known.iter().filter(|disk| !disks.contains(&disk.name)).cloned().collect();
            let spares = spares.as_ref().map(|wanted| disk::choose(&others, wanted));
            let request = AggregateCreate {
                name: name.clone(),
                disks,
                spares: spares.transpose()?.unwrap_or_default(),
                raid: *raid,
                force: *force,
                traditional: *traditional,
                dry_run: *dry_run,
            };
            // Only `--force` can destroy something: what foreign disks hold.
            let lost: Vec<String> = known
                .iter()
                .filter(|disk| disk.state == DiskState::Foreign)
                .filter(|disk| {
                    request.disks.contains(&disk.name) || request.spares.contains(&disk.name)
                })
                .map(|disk| {
                    format!("{} holds {}", disk.name, disk.note.as_deref().unwrap_or("data"))
                })
                .collect();
            if *force && !dry_run && !lost.is_empty() {
                let (object, freed_bytes) = (name.clone(), 0);
                let removal = Removal { object, consequences: lost, freed_bytes, dry_run: true };
                confirm(terminal, options, "create aggregate", &removal)?;
            }
            create(node, &request)
        }
        AggregateCommand::List => {
            let aggregates = node.aggregate_list()?;
            let table = table(&aggregates);
            let output = Output::list(&aggregates, |aggregate| aggregate.name.clone(), table)?;
            if aggregates.is_empty() {
                return Ok(output.line("no aggregates").next("stroop disk list"));
            }
            Ok(output)
        }
        AggregateCommand::Show { name } => {
            show(&node.aggregate_show(&Named { name: name.clone() })?)
        }
    }
}

fn create(node: &dyn Administration, request: &AggregateCreate) -> Result<Output, AdminError> {
    let aggregate = node.aggregate_create(request)?;
    let what = format!(
        "{}: {}{} data + {} parity, {} usable, {}",
        aggregate.name,
        if request.dry_run { "would be " } else { "" },
        aggregate.data_disks,
        aggregate.parity_disks,
        ByteSize(aggregate.size_bytes),
        survives(aggregate.raid),
    );
    let output = Output::of(&aggregate.name, &aggregate)?.line(what);
    if request.dry_run {
        return Ok(output.line("nothing was changed (--dry-run)"));
    }
    let name = &aggregate.name;
    if request.traditional {
        return Ok(output.next(format!("stroop export add {name} --client 127.0.0.1 --access rw")));
    }
    let size = ByteSize((aggregate.free_bytes / 2).max(16 << 20));
    let size = size.to_string().replace("iB", "");
    Ok(output.next(format!(
        "stroop volume create home --aggr {name} --size {size} --export 127.0.0.1:rw"
    )))
}

fn survives(raid: RaidKind) -> String {
    match raid.parity_disks() {
        0 => "loses data with any disk that fails".to_owned(),
        1 => "survives 1 disk failure".to_owned(),
        count => format!("survives {count} disk failures"),
    }
}

/// "raid4 3+1".
fn raid(aggregate: &AggregateInfo) -> String {
    format!("{} {}+{}", aggregate.raid, aggregate.data_disks, aggregate.parity_disks)
}

/// Aggregates as a table.
pub(super) fn table(aggregates: &[AggregateInfo]) -> Table {
    let mut table = Table::new(&[
        ("AGGR", Column::Long),
        ("STATE", Column::Text),
        ("RAID", Column::Text),
        ("SIZE", Column::Number),
        ("USED", Column::Number),
        ("FREE", Column::Number),
        ("USE%", Column::Number),
        ("VOLUMES", Column::Number),
        ("CP", Column::Number),
        ("LOG%", Column::Number),
    ]);
    for aggregate in aggregates {
        table.row([
            aggregate.name.clone(),
            aggregate.state.to_string(),
            raid(aggregate),
            ByteSize(aggregate.size_bytes).to_string(),
            ByteSize(aggregate.used_bytes).to_string(),
            ByteSize(aggregate.free_bytes).to_string(),
            percent(aggregate.used_bytes, aggregate.size_bytes),
            aggregate.volumes.to_string(),
            aggregate.consistency_point.to_string(),
            percent(aggregate.log_used_bytes, aggregate.log_size_bytes),
        ]);
    }
    table
}

fn show(aggregate: &AggregateInfo) -> Result<Output, AdminError> {
    let mut output = Output::of(&aggregate.name, aggregate)?;
    let bytes = ByteSize;
    output.head = vec![
        format!("aggregate   {}", aggregate.name),
        format!("state       {}", aggregate.state),
        format!("raid        {}, {}", raid(aggregate), survives(aggregate.raid)),
        format!(
            "kind        {}",
            if aggregate.traditional { "one traditional volume" } else { "room for many volumes" }
        ),
        format!("volumes     {}", aggregate.volumes),
        format!("size        {}", bytes(aggregate.size_bytes)),
        format!(
            "used        {} ({}), of which metadata {}",
            bytes(aggregate.used_bytes),
            percent(aggregate.used_bytes, aggregate.size_bytes),
            bytes(aggregate.metadata_bytes)
        ),
        format!("reserve     {} (so that deleting always works)", bytes(aggregate.reserve_bytes)),
        format!("free        {}", bytes(aggregate.free_bytes)),
        format!(
            "last cp     {} took {}",
            aggregate.consistency_point,
            duration::format(aggregate.consistency_point_duration_ns)
        ),
        format!(
            "log         {} of {} used",
            bytes(aggregate.log_used_bytes),
            bytes(aggregate.log_size_bytes)
        ),
        format!("repaired    {}", count(aggregate.repaired_blocks, "block")),
        String::new(),
    ];
    output.table = Some(disk::table(&aggregate.disks));
    Ok(output)
}

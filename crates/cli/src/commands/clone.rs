//! `stroop clone`.

use super::begun::{Begun, newest};
use super::export::exported;
use super::volume::{mount_hint_of, with_overcommitment};
use crate::arguments::{CloneCommand, Options};
use crate::output::Output;
use crate::table::{Column, Table};
use crate::terminal::Terminal;
use admin_api::names::parse_snapshot_name;
use admin_api::{
    AdminError, Administration, CloneCreate, CloneOf, CloneSplit, Code, JobKind, Named, SplitInfo,
    VolumeInfo,
};
use units::ByteSize;

pub(super) fn run(
    command: &CloneCommand,
    (options, terminal): (&Options, &mut Terminal<'_>),
    node: &dyn Administration,
) -> Result<Output, AdminError> {
    match command {
        CloneCommand::Create { source, names, export, guarantee, dry_run } => {
            let (volume, snapshot) = parse_snapshot_name(source)?;
            let request = CloneCreate {
                names: names.clone(),
                volume: volume.to_owned(),
                snapshot: snapshot.to_owned(),
                exports: export.clone(),
                guarantee: *guarantee,
                dry_run: *dry_run,
            };
            create(node, source, &request)
        }
        CloneCommand::Split { name, rate, stop, dry_run } => {
            let request = CloneSplit {
                name: name.clone(),
                stop: *stop,
                rate_bytes_per_second: rate.map(|rate| rate.0),
                dry_run: *dry_run,
            };
            split((options, terminal), node, &request)
        }
        CloneCommand::List { volume } => list(node, volume.as_deref()),
    }
}

fn create(
    node: &dyn Administration,
    source: &str,
    request: &CloneCreate,
) -> Result<Output, AdminError> {
    let clones = node.clone_create(request)?;
    let [clone, others @ ..] = &clones[..] else {
        return Err(AdminError::new(Code::Failed, "no clone was made of", source));
    };
    let name = match others {
        [] => clone.name.clone(),
        _ => format!("{} clones", clones.len()),
    };
    let line = format!(
        "{name}: {}of {source}, shares {} with it, {}",
        if request.dry_run { "would be " } else { "" },
        ByteSize(clone.inherited_bytes),
        exported(&clone.exports)
    );
    let output = match others {
        // Scripts that make one get one.
        [] => Output::of(&clone.name, clone)?,
        _ => Output::list(&clones, |clone| clone.name.clone(), table(&clones))?,
    };
    let output = with_overcommitment(output.line(line), node, &clones);
    if request.dry_run {
        return Ok(output.planned());
    }
    Ok(output.next(mount_hint_of(node, clone)))
}

fn split(
    (options, terminal): (&Options, &mut Terminal<'_>),
    node: &dyn Administration,
    request: &CloneSplit,
) -> Result<Output, AdminError> {
    let after = newest(node)?;
    let split = node.clone_split(request)?;
    let SplitInfo { name, clone_of, aggregate, shared_bytes, cost_bytes, .. } = &split;
    let CloneOf { volume, snapshot } = clone_of;
    let (shared, cost) = (ByteSize(*shared_bytes), ByteSize(*cost_bytes));
    let output = Output::of(name, &split)?;
    if request.stop {
        let line = format!("{name}: split stopped, shares {shared} with {volume}@{snapshot} still");
        return Ok(output.line(line));
    }
    let begins = if split.dry_run { "would be split" } else { "is being split" };
    let output = output.line(format!(
        "{name}: {begins} from {volume}@{snapshot}; copies of {shared} take {cost} in {aggregate}"
    ));
    if split.dry_run {
        let free = ByteSize(split.free_bytes);
        return Ok(output.line(format!("  {aggregate} has {free} free")).planned());
    }
    let begun = Begun { kinds: &[JobKind::Split], aggregate, target: Some(name), after };
    begun.follow(output, (options, terminal), node)
}

fn list(node: &dyn Administration, parent: Option<&str>) -> Result<Output, AdminError> {
    if let Some(name) = parent {
        node.volume_show(&Named { name: name.to_owned() })?;
    }
    let mut clones = node.volume_list()?;
    clones.retain(|volume| match (&volume.clone_of, parent) {
        (Some(of), Some(parent)) => of.volume == parent,
        (of, _) => of.is_some(),
    });
    let output = Output::list(&clones, |clone| clone.name.clone(), table(&clones))?;
    if clones.is_empty() {
        let parent = parent.unwrap_or("VOLUME");
        let next = format!("stroop clone create {parent}@SNAPSHOT NAME");
        return Ok(output.line("no clones").next(next));
    }
    Ok(output)
}

/// "home@before"; "-" of a volume that is no clone.
pub(super) fn origin(volume: &VolumeInfo) -> String {
    match &volume.clone_of {
        Some(CloneOf { volume, snapshot }) => format!("{volume}@{snapshot}"),
        None => "-".to_owned(),
    }
}

fn table(clones: &[VolumeInfo]) -> Table {
    let mut table = Table::new(&[
        ("NAME", Column::Text),
        ("PARENT", Column::Text),
        ("CREATED", Column::Text),
        ("SHARED", Column::Number),
        ("OWN", Column::Number),
    ]);
    for clone in clones {
        let used_bytes = clone.used_bytes() + clone.delayed_free_bytes;
        table.row([
            clone.name.clone(),
            origin(clone),
            clone.created.to_string(),
            ByteSize(clone.inherited_bytes).to_string(),
            ByteSize(used_bytes.saturating_sub(clone.inherited_bytes)).to_string(),
        ]);
    }
    table
}

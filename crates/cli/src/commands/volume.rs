//! `stroop volume`.

use super::clone::origin;
use super::deletion;
use super::export::exported;
use super::space;
use crate::arguments::{Options, VolumeCommand};
use crate::output::Output;
use crate::owner::Accounts;
use crate::quantities::{count, percent};
use crate::table::{Column, Table};
use crate::terminal::Terminal;
use admin_api::{
    AdminError, Administration, AggregateInfo, AggregateState, Code, DamagedFile, Guarantee, Named,
    Reallocation, StatusReply, Synced, VolumeCreate, VolumeFilter, VolumeInfo, VolumeOffline,
    VolumeRename, VolumeResize, VolumeSet, VolumeUndelete,
};
use std::collections::BTreeSet;
use units::ByteSize;

/// `stroop sync`.
pub(super) fn sync(
    node: &dyn Administration,
    volume: Option<String>,
) -> Result<Output, AdminError> {
    let synced = node.volume_sync(&VolumeFilter { volume })?;
    let Synced { volumes } = &synced;
    let line = match volumes.as_slice() {
        [] => "no volumes".to_owned(),
        names => format!("{}: all that was written before is durable", names.join(", ")),
    };
    let names = volumes.clone();
    Ok(Output { names, ..Output::of("", &synced)?.line(line) })
}

pub(super) fn run(
    command: &VolumeCommand,
    options: &Options,
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
) -> Result<Output, AdminError> {
    match command {
        VolumeCommand::Create {
            names,
            aggr,
            size,
            owner,
            export,
            tiering_policy,
            tiering_minimum_cooling_days,
            reallocate,
            autogrow_max,
            snapshot_policy,
            snapshot_autodelete,
            guarantee,
            dry_run,
        } => {
            let owner = owner.as_deref().map(|owner| Accounts::of_this_machine().owner(owner));
            let request = VolumeCreate {
                names: names.clone(),
                aggregate: aggr
                    .clone()
                    .map_or_else(|| only_aggregate(node, "cannot create volume", &names[0]), Ok)?,
                size_bytes: size.0,
                owner: owner.transpose()?,
                exports: export.clone(),
                tiering_policy: *tiering_policy,
                tiering_minimum_cooling_days: *tiering_minimum_cooling_days,
                reallocate: *reallocate,
                autogrow_max_bytes: Some(*autogrow_max).filter(|bytes| *bytes > 0),
                snapshot_policy: *snapshot_policy,
                snapshot_autodelete: *snapshot_autodelete,
                guarantee: *guarantee,
                dry_run: *dry_run,
            };
            create(node, &request)
        }
        VolumeCommand::List { deleted: true } => deletion::list(node),
        VolumeCommand::List { deleted: false } => {
            let volumes = node.volume_list()?;
            let output = Output::list(&volumes, |volume| volume.name.clone(), table(&volumes))?;
            let aggregates = node.aggregate_list()?.into_iter();
            let is_away = |one: &AggregateInfo| one.state == AggregateState::Offline;
            let away: Vec<_> = aggregates.filter(is_away).map(|one| one.name).collect();
            match (volumes.is_empty(), away.is_empty()) {
                (false, true) => Ok(output),
                (true, true) => {
                    Ok(output.line("no volumes").next("stroop volume create home --size 1G"))
                }
                (_, false) => {
                    let names = away.join(", ");
                    let line = format!("not the volumes of {names}, which is out of service");
                    Ok(output.line(line).next("stroop status"))
                }
            }
        }
        VolumeCommand::Show { name, space: true } => space::show(node, name),
        VolumeCommand::Show { name, space: false } => {
            show(&node.volume_show(&Named { name: name.clone() })?)
        }
        VolumeCommand::Set {
            name,
            tiering_policy,
            tiering_minimum_cooling_days,
            reallocate,
            autogrow_max,
            snapshot_policy,
            snapshot_autodelete,
            guarantee,
        } => {
            let request = VolumeSet {
                name: name.clone(),
                tiering_policy: *tiering_policy,
                tiering_minimum_cooling_days: *tiering_minimum_cooling_days,
                reallocate: *reallocate,
                autogrow_max_bytes: *autogrow_max,
                snapshot_policy: *snapshot_policy,
                snapshot_autodelete: *snapshot_autodelete,
                guarantee: *guarantee,
            };
            let volume = node.volume_set(&request)?;
            let line = format!("{}: {}", volume.name, changed(&request, &volume));
            Ok(Output::of(&volume.name, &volume)?.line(line))
        }
        VolumeCommand::Resize { name, size, dry_run } => {
            let wanted = VolumeResize { name: name.clone(), size_bytes: size.0, dry_run: *dry_run };
            let volume = node.volume_resize(&wanted)?;
            let line = format!(
                "{}: {}{}, {} can be written",
                volume.name,
                if *dry_run { "would be " } else { "" },
                ByteSize(volume.size_bytes),
                ByteSize(volume.available_bytes)
            );
            let output = Output::of(&volume.name, &volume)?.line(line);
            let output = with_overcommitment(output, node, std::slice::from_ref(&volume));
            Ok(if *dry_run { output.planned() } else { output })
        }
        VolumeCommand::Rename { name, new_name, dry_run } => {
            let (name, new_name) = (name.clone(), new_name.clone());
            rename(node, &VolumeRename { name, new_name, dry_run: *dry_run })
        }
        VolumeCommand::Offline { name, dry_run } => {
            take_offline(node, &VolumeOffline { name: name.clone(), dry_run: *dry_run })
        }
        VolumeCommand::Online { name } => {
            let volume = node.volume_online(&Named { name: name.clone() })?;
            let line = format!("{name}: {}, {}", volume.state, exported(&volume.exports));
            Ok(Output::of(name, &volume)?.line(line))
        }
        VolumeCommand::Delete { name, queue_for, dry_run } => {
            deletion::delete((options, terminal), node, (name, *queue_for), *dry_run)
        }
        VolumeCommand::Undelete { name, new_name, dry_run } => {
            let (name, new_name) = (name.clone(), new_name.clone());
            deletion::undelete(node, &VolumeUndelete { name, new_name, dry_run: *dry_run })
        }
        VolumeCommand::Purge { name, dry_run } => {
            deletion::purge((options, terminal), node, name, *dry_run)
        }
    }
}

fn take_offline(node: &dyn Administration, request: &VolumeOffline) -> Result<Output, AdminError> {
    let volume = node.volume_offline(request)?;
    let mut output = Output::of(&volume.name, &volume)?;
    if request.dry_run {
        output = output.line(format!(
            "{}: would be offline; nobody is served until it is brought back",
            volume.name
        ));
    } else {
        output = output.line(format!("{}: offline; all that was written is durable", volume.name));
    }
    if !volume.exports.is_empty() {
        output = output.line(format!(
            "{}: its clients get 'stale file handle', and their handles are good again when it is \
             back",
            exported(&volume.exports)
        ));
    }
    if request.dry_run {
        return Ok(output.planned());
    }
    Ok(output.next(format!("stroop volume online {}", volume.name)))
}

/// The state in a word. One that an administrator chose is no alarm.
fn state_of(volume: &VolumeInfo) -> String {
    let is_whole = volume.damage.is_none() && volume.lacking_feature.is_none();
    match volume.taken_offline && is_whole {
        true => "offline".to_owned(),
        false => volume.state.to_string(),
    }
}

fn rename(node: &dyn Administration, request: &VolumeRename) -> Result<Output, AdminError> {
    let VolumeRename { name, dry_run, .. } = request;
    let volume = node.volume_rename(request)?;
    let new_name = &volume.name;
    let action = if *dry_run { "would be renamed" } else { "renamed" };
    let mut output = Output::of(new_name, &volume)?.line(format!("{name}: {action} to {new_name}"));
    if !volume.exports.is_empty() {
        let who = match volume.taken_offline {
            false => format!("that have /{name} mounted go on"),
            true => format!("that had /{name} mounted go on when it is online"),
        };
        output =
            output.line(format!("NFS clients {who}; new mounts, and their fstab, say /{new_name}"));
    }
    if !volume.mountpoints.is_empty() {
        output = output
            .line(format!("it stays mounted on this machine at {}", volume.mountpoints.join(", ")));
    }
    if !volume.mountpoints.is_empty() || volume.taken_offline {
        output = output.line(format!(
            "a line of /etc/fstab that mounts {name} on this machine must say {new_name}"
        ));
    }
    Ok(if *dry_run { output.planned() } else { output })
}

/// "auto, cold after 31 days".
fn tiering(volume: &VolumeInfo) -> String {
    match volume.tiering_minimum_cooling_days {
        Some(days) => format!("{}, cold after {days} days", volume.tiering_policy),
        None => volume.tiering_policy.to_string(),
    }
}

/// What of a volume was set: "tiering policy none; reallocate off".
fn changed(wanted: &VolumeSet, volume: &VolumeInfo) -> String {
    let tiering = wanted.changes_tiering().then(|| format!("tiering policy {}", tiering(volume)));
    let reallocate = wanted.reallocate.map(|_| format!("reallocate {}", volume.reallocate));
    let autogrow = wanted.autogrow_max_bytes.map(|_| format!("autogrow {}", autogrow(volume)));
    let snapshots =
        wanted.snapshot_policy.map(|_| format!("snapshot policy {}", volume.snapshot_policy));
    let autodelete = wanted
        .snapshot_autodelete
        .map(|_| format!("snapshot autodelete {}", volume.snapshot_autodelete));
    let guarantee = wanted.guarantee.map(|_| format!("guarantee {}", volume.guarantee));
    let all =
        [tiering, reallocate, autogrow, snapshots, autodelete, guarantee].into_iter().flatten();
    all.collect::<Vec<_>>().join("; ")
}

/// "volume, 3 GiB kept free".
fn guarantee(volume: &VolumeInfo) -> String {
    match volume.guarantee {
        Guarantee::None => volume.guarantee.to_string(),
        Guarantee::Volume => {
            format!("{}, {} kept free", volume.guarantee, ByteSize(volume.guaranteed_bytes))
        }
    }
}

/// "to 20 GiB".
fn autogrow(volume: &VolumeInfo) -> String {
    match volume.autogrow_max_bytes {
        Some(bytes) => format!("to {}", ByteSize(bytes)),
        None => "off".to_owned(),
    }
}

/// The aggregate, if there is one only.
pub(super) fn only_aggregate(
    node: &dyn Administration,
    action: &str,
    object: &str,
) -> Result<String, AdminError> {
    let aggregates = node.aggregate_list()?;
    let error = |code| AdminError::new(code, action, object);
    match aggregates.as_slice() {
        [aggregate] => Ok(aggregate.name.clone()),
        [] => {
            Err(error(Code::NotFound).because("there is no aggregate").try_next("stroop disk list"))
        }
        several => {
            let names: Vec<&str> = several.iter().map(|held| held.name.as_str()).collect();
            Err(error(Code::Usage)
                .because(format!("there are several aggregates: {}", names.join(", ")))
                .try_next("name one with --aggr"))
        }
    }
}

fn create(node: &dyn Administration, request: &VolumeCreate) -> Result<Output, AdminError> {
    let volumes = node.volume_create(request)?;
    let [volume, others @ ..] = &volumes[..] else {
        return Err(AdminError::new(Code::Failed, "no volume was created in", &request.aggregate));
    };
    let (thin, guaranteed) = match volume.guarantee {
        Guarantee::None => (" thin", ""),
        Guarantee::Volume => ("", ", all of it guaranteed"),
    };
    let line = format!(
        "{}: {}{}{} in {}{}, owner {}:{}, {}",
        if others.is_empty() { volume.name.clone() } else { format!("{} volumes", volumes.len()) },
        if request.dry_run { "would be " } else { "" },
        ByteSize(volume.size_bytes),
        thin,
        volume.aggregate,
        guaranteed,
        volume.owner.uid,
        volume.owner.gid,
        exported(&volume.exports)
    );
    let output = match others {
        // Scripts that make one get one.
        [] => Output::of(&volume.name, volume)?,
        _ => Output::list(&volumes, |volume| volume.name.clone(), table(&volumes))?,
    };
    let output = output.line(line);
    let output = with_overcommitment(output, node, &volumes);
    if request.dry_run {
        return Ok(output.planned());
    }
    Ok(output.next(mount_hint_of(node, volume)))
}

/// How to mount a volume that was made.
pub(super) fn mount_hint_of(node: &dyn Administration, volume: &VolumeInfo) -> String {
    match node.status() {
        Ok(status) => mount_hint(volume, &status),
        // The volume is made; a hint is not worth an error.
        Err(_) => fuse_hint(volume),
    }
}

/// Says so if the volumes of an aggregate promise more than it has. `changed` may be such that
/// would be.
pub(super) fn with_overcommitment(
    output: Output,
    node: &dyn Administration,
    changed: &[VolumeInfo],
) -> Output {
    let Some(volume) = changed.first() else { return output };
    // The volume is made; a note is not worth an error.
    let (Ok(aggregates), Ok(volumes)) = (node.aggregate_list(), node.volume_list()) else {
        return output;
    };
    let named: BTreeSet<&str> = changed.iter().map(|one| one.name.as_str()).collect();
    let is_other = |other: &&VolumeInfo| {
        other.aggregate == volume.aggregate && !named.contains(other.name.as_str())
    };
    let of_it: Vec<&VolumeInfo> = volumes.iter().filter(is_other).chain(changed).collect();
    let promised = of_it.iter().map(|other| other.size_bytes).fold(0, u64::saturating_add);
    let full = match of_it.iter().any(|other| other.guarantee == Guarantee::Volume) {
        true => "those without a guarantee are full when it is",
        false => "they are thin, and all of them are full when it is",
    };
    match aggregates.iter().find(|aggregate| aggregate.name == volume.aggregate) {
        Some(aggregate) if promised > aggregate.size_bytes => output.line(format!(
            "note: the volumes of {} promise {} of {}; {full}",
            aggregate.name,
            ByteSize(promised),
            ByteSize(aggregate.size_bytes)
        )),
        _ => output,
    }
}

fn fuse_hint(volume: &VolumeInfo) -> String {
    format!("stroop mount {} DIRECTORY", volume.name)
}

/// How to mount the volume from here.
fn mount_hint(volume: &VolumeInfo, status: &StatusReply) -> String {
    let nfs = status.listeners.iter().find(|listener| listener.protocol == "nfs");
    let address = nfs.and_then(|nfs| nfs.address.parse::<std::net::SocketAddr>().ok());
    let (Some(address), false) = (address, volume.exports.is_empty()) else {
        return fuse_hint(volume);
    };
    let port = address.port();
    let host = match address.ip() {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    format!(
        "sudo mount -t nfs -o vers=3,nolock,tcp,port={port},mountport={port} {host}:/{} /mnt",
        volume.name
    )
}

fn table(volumes: &[VolumeInfo]) -> Table {
    let mut table = Table::new(&[
        ("NAME", Column::Text),
        ("AGGR", Column::Text),
        ("STATE", Column::Text),
        ("SIZE", Column::Number),
        ("LIVE", Column::Number),
        ("SNAPS", Column::Number),
        ("TIERED", Column::Number),
        ("AVAIL", Column::Number),
        ("USE%", Column::Number),
        ("FILES", Column::Number),
        ("EXPORT", Column::Long),
    ]);
    for volume in volumes {
        let export = match volume.exports.as_slice() {
            [] => "-".to_owned(),
            [rule] => rule.client.to_string(),
            rules => format!("{} rules", rules.len()),
        };
        table.row([
            volume.name.clone(),
            volume.aggregate.clone(),
            state_of(volume),
            ByteSize(volume.size_bytes).to_string(),
            ByteSize(volume.live_bytes).to_string(),
            ByteSize(volume.snapshot_bytes).to_string(),
            ByteSize(volume.tiered_bytes).to_string(),
            ByteSize(volume.available_bytes).to_string(),
            percent(volume.used_bytes(), volume.size_bytes),
            volume.files.to_string(),
            export,
        ]);
    }
    table
}

/// A damaged file, in a line.
fn damaged(file: &DamagedFile) -> String {
    let DamagedFile { inode, block, leaked_bytes } = file;
    match leaked_bytes {
        None => format!("damaged     inode {inode} is quarantined: block {block} cannot be read"),
        // Inode 1 is the free map.
        Some(bytes) if *inode == 1 => format!(
            "damaged     a snapshot was deleted, and up to {} stay in use: block {block} of its \
             free map cannot be read",
            ByteSize(*bytes)
        ),
        Some(bytes) => format!(
            "damaged     inode {inode} was removed, and up to {} stay in use: block {block} cannot \
             be read",
            ByteSize(*bytes)
        ),
    }
}

/// Blocks that a clone shares would be shared no more if they were written anew.
fn reallocates_when(volume: &VolumeInfo) -> &'static str {
    let is_on = volume.reallocate == Reallocation::Auto;
    if is_on && volume.clone_of.is_some() { ", but not while it is a clone" } else { "" }
}

fn show(volume: &VolumeInfo) -> Result<Output, AdminError> {
    let mut output = Output::of(&volume.name, volume)?;
    let bytes = ByteSize;
    let mounted = match volume.mountpoints.as_slice() {
        [] => "nowhere on this machine".to_owned(),
        places => places.join(", "),
    };
    output.head = vec![
        format!("volume      {}", volume.name),
        format!("aggregate   {}", volume.aggregate),
        format!("state       {}", state_of(volume)),
        format!("kind        {}", if volume.traditional { "traditional" } else { "flexible" }),
        format!("guarantee   {}", guarantee(volume)),
        format!("tiering     {}", tiering(volume)),
        format!("reallocate  {}{}", volume.reallocate, reallocates_when(volume)),
        format!("autogrow    {}", autogrow(volume)),
        format!("schedule    {}", volume.snapshot_policy),
        format!("autodelete  {}", volume.snapshot_autodelete),
        format!("created     {}", volume.created),
        format!("owner       {}:{}", volume.owner.uid, volume.owner.gid),
        format!("files       {}", volume.files),
        String::new(),
        format!("size        {:>9}", bytes(volume.size_bytes)),
        format!("live        {:>9}", bytes(volume.live_bytes)),
        format!(
            "snapshots   {:>9}  {}",
            bytes(volume.snapshot_bytes),
            count(volume.snapshots, "snapshot")
        ),
        format!("in objects  {:>9}  of the above", bytes(volume.tiered_bytes)),
        format!("freeing     {:>9}", bytes(volume.delayed_free_bytes)),
        format!("available   {:>9}", bytes(volume.available_bytes)),
        String::new(),
        format!("mounted     {mounted}"),
        exported(&volume.exports),
    ];
    if volume.clone_of.is_some() {
        let shared = format!("{:>9}  with {}", bytes(volume.inherited_bytes), origin(volume));
        output.head.extend([String::new(), format!("shared      {shared}")]);
    }
    if volume.taken_offline {
        output.head.extend([
            String::new(),
            format!("offline     by an administrator: stroop volume online {}", volume.name),
        ]);
    }
    if let Some(feature) = &volume.lacking_feature {
        output.head.extend([
            String::new(),
            format!("lacking     the feature '{feature}', which a newer build of Stroop has"),
        ]);
    }
    if volume.damage.is_some() || !volume.damaged_files.is_empty() {
        output.head.push(String::new());
        output.head.extend(volume.damage.iter().map(|damage| format!("damaged     {damage}")));
        output.head.extend(volume.damaged_files.iter().map(damaged));
    }
    Ok(output)
}

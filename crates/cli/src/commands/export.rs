//! `stroop export`.

use crate::arguments::ExportCommand;
use crate::output::Output;
use crate::table::{Column, Table};
use admin_api::{
    AdminError, Administration, Code, ExportAdd, ExportRemove, ExportRule, VolumeExports,
    VolumeFilter, matching_rule,
};
use serde_json::json;
use std::net::IpAddr;

pub(super) fn run(
    command: &ExportCommand,
    node: &dyn Administration,
) -> Result<Output, AdminError> {
    match command {
        ExportCommand::Add { volume, client, access, squash, options, index } => {
            let rule = ExportRule {
                anonymous_uid: options.anon_uid,
                anonymous_gid: options.anon_gid,
                secure_ports: !options.insecure_ports,
                hide_snapshots: options.hide_snapshots,
                ..ExportRule::new(*client, *access, *squash)
            };
            let request = ExportAdd { volume: volume.clone(), rule, index: *index };
            changed(&node.export_add(&request)?)
        }
        ExportCommand::List { volume } => {
            let exports = node.export_list(&VolumeFilter { volume: volume.clone() })?;
            let output = Output::list(&exports, |held| held.volume.clone(), table(&exports))?;
            if exports.iter().all(|held| held.rules.is_empty()) {
                let volume = volume.as_deref().unwrap_or("VOLUME");
                let next = format!("stroop export add {volume} --client 127.0.0.1 --access rw");
                return Ok(output.line("nothing is exported").next(next));
            }
            Ok(output)
        }
        ExportCommand::Remove { volume, client } => {
            changed(&node.export_remove(&ExportRemove { volume: volume.clone(), client: *client })?)
        }
        ExportCommand::Check { volume, client } => check(node, volume, *client),
    }
}

fn changed(exports: &VolumeExports) -> Result<Output, AdminError> {
    let line = format!("{}: {}", exports.volume, exported(&exports.rules));
    Ok(Output::of(&exports.volume, exports)?.line(line))
}

fn table(exports: &[VolumeExports]) -> Table {
    let mut table = Table::new(&[
        ("VOLUME", Column::Text),
        ("INDEX", Column::Number),
        ("CLIENT", Column::Text),
        ("ACCESS", Column::Text),
        ("SQUASH", Column::Text),
        ("ANON", Column::Text),
        ("OPTIONS", Column::Text),
    ]);
    for held in exports {
        for (index, rule) in held.rules.iter().enumerate() {
            table.row([
                held.volume.clone(),
                index.to_string(),
                rule.client.to_string(),
                rule.access.to_string(),
                rule.squash.to_string(),
                format!("{}:{}", rule.anonymous_uid, rule.anonymous_gid),
                options(rule),
            ]);
        }
    }
    table
}

/// What a rule asks for beside the usual.
fn options(rule: &ExportRule) -> String {
    let words = [(!rule.secure_ports, "insecure"), (rule.hide_snapshots, "nosnapshots")];
    let words: Vec<&str> = words.iter().filter(|(set, _)| *set).map(|(_, word)| *word).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(",") }
}

fn check(node: &dyn Administration, volume: &str, client: IpAddr) -> Result<Output, AdminError> {
    let lists = node.export_list(&VolumeFilter { volume: Some(volume.to_owned()) })?;
    let rules = lists.first().map_or(&[][..], |held| &held.rules);
    let Some((index, rule)) = matching_rule(rules, client) else {
        return Err(AdminError::new(Code::Denied, "cannot mount", volume)
            .because(format!("none of its {} rules covers {client}", rules.len()))
            .try_next(format!("stroop export add {volume} --client {client}")));
    };
    let found = json!({ "volume": volume, "client": client, "index": index, "rule": rule });
    let allowed = exported(std::slice::from_ref(rule)).replacen("exported to", "rule", 1);
    let output = Output::of(volume, &found)?;
    Ok(output.line(format!("{volume}: {client} is decided by {allowed}, index {index}")).line(
        "with AUTH_SYS the client names its users itself: trust the machine, not the numbers",
    ))
}

/// "exported to 127.0.0.1 (rw, root squashed)".
pub(super) fn exported(rules: &[ExportRule]) -> String {
    if rules.is_empty() {
        return "not exported".to_owned();
    }
    let rule = |rule: &ExportRule| {
        let squash = match rule.squash {
            admin_api::Squash::Root => "root squashed",
            admin_api::Squash::All => "all squashed",
            admin_api::Squash::None => "no squash",
        };
        let ports = if rule.secure_ports { "" } else { ", any port" };
        let snapshots = if rule.hide_snapshots { ", no .snapshot" } else { "" };
        format!("{} ({}, {squash}{ports}{snapshots})", rule.client, rule.access)
    };
    let rules: Vec<String> = rules.iter().map(rule).collect();
    format!("exported to {}", rules.join(", "))
}

//! `stroop quota`.

use crate::arguments::{QuotaCommand, QuotaOwner};
use crate::output::Output;
use crate::owner::Accounts;
use crate::table::{Column, Table};
use admin_api::{
    AdminError, Administration, QuotaDelete, QuotaInfo, QuotaKind, QuotaList, QuotaReport,
    QuotaSet, QuotaState,
};
use units::{ByteSize, shell_word};

pub(super) fn run(command: &QuotaCommand, node: &dyn Administration) -> Result<Output, AdminError> {
    let accounts = Accounts::of_this_machine();
    match command {
        QuotaCommand::Set { volume, owner, hard, soft, hard_files, soft_files } => {
            let (kind, id) = key(owner, &accounts)?;
            let quota = node.quota_set(&QuotaSet {
                volume: volume.clone(),
                kind,
                id,
                path: owner.tree.clone(),
                soft_bytes: *soft,
                hard_bytes: *hard,
                soft_files: *soft_files,
                hard_files: *hard_files,
            })?;
            let line = format!("{volume}: {} {}", title(&quota, &accounts), limits(&quota));
            changed(&quota, line, &accounts)
        }
        QuotaCommand::Delete { volume, owner } => {
            let (kind, id) = key(owner, &accounts)?;
            let (volume, path) = (volume.clone(), owner.tree.clone());
            let quota = node.quota_delete(&QuotaDelete { volume, kind, id, path })?;
            let (title, volume) = (title(&quota, &accounts), &quota.volume);
            let line = match is_one(&quota) {
                true => {
                    format!("{volume}: {title} has no limits of its own, and {}", limits(&quota))
                }
                false => format!("{volume}: {title} {}", limits(&quota)),
            };
            changed(&quota, line, &accounts)
        }
        QuotaCommand::List { volume } => {
            let report = all(node, &QuotaList { own_only: true, ..list(volume) })?;
            let mut quotas = report.others.clone();
            quotas.extend(report.quotas.iter().cloned());
            quotas.retain(|one| one.own);
            shown(&report, quotas, &accounts)
        }
        QuotaCommand::Report { volume, user, group, tree } => {
            let only = match (user, group) {
                (Some(user), _) => Some((QuotaKind::User, accounts.user(user)?)),
                (None, Some(group)) => Some((QuotaKind::Group, accounts.group(group)?)),
                (None, None) => None,
            };
            let only_tree = tree.clone();
            let report = all(node, &QuotaList { only, only_tree, ..list(volume) })?;
            let mut quotas = report.quotas.clone();
            quotas.retain(|_| report.state != QuotaState::Off);
            shown(&report, quotas, &accounts)
        }
    }
}

fn list(volume: &str) -> QuotaList {
    let volume = volume.to_owned();
    QuotaList { volume, only: None, only_tree: None, own_only: false, from: None }
}

fn key(owner: &QuotaOwner, accounts: &Accounts) -> Result<(QuotaKind, Option<u32>), AdminError> {
    Ok(match (&owner.user, &owner.group) {
        (Some(user), _) => (QuotaKind::User, Some(accounts.user(user)?)),
        (None, Some(group)) => (QuotaKind::Group, Some(accounts.group(group)?)),
        (None, None) if owner.each_user => (QuotaKind::User, None),
        (None, None) if owner.each_group => (QuotaKind::Group, None),
        (None, None) => (QuotaKind::Tree, None),
    })
}

/// The answer to a change of limits, with a word on files that are still to be counted.
fn changed(quota: &QuotaInfo, line: String, accounts: &Accounts) -> Result<Output, AdminError> {
    let output = Output::of(&object(quota, accounts), quota)?.line(line);
    Ok(match quota.state {
        QuotaState::Counting => output
            .line("  the files that are there are being counted: no limit holds yet")
            .next(format!("stroop quota report {}", shell_word(&quota.volume))),
        QuotaState::Off | QuotaState::On => output,
    })
}

/// All pages.
fn all(node: &dyn Administration, request: &QuotaList) -> Result<QuotaReport, AdminError> {
    let mut report = node.quota_list(request)?;
    while let Some(next) = report.next {
        let page = node.quota_list(&QuotaList { from: Some(next), ..request.clone() })?;
        report.quotas.extend(page.quotas);
        (report.next, report.state) = (page.next, page.state);
        report.counted_inodes = page.counted_inodes;
    }
    report.quotas.sort_by(|one, other| {
        let key = |one: &QuotaInfo| (one.kind, one.path.clone(), one.id);
        key(one).cmp(&key(other))
    });
    Ok(report)
}

fn shown(
    report: &QuotaReport,
    quotas: Vec<QuotaInfo>,
    accounts: &Accounts,
) -> Result<Output, AdminError> {
    let volume = &report.volume;
    let mut table = Table::new(&[
        ("KIND", Column::Text),
        ("OWNER", Column::Text),
        ("USED", Column::Number),
        ("SOFT", Column::Number),
        ("HARD", Column::Number),
        ("FILES", Column::Number),
        ("SOFT FILES", Column::Number),
        ("HARD FILES", Column::Number),
        ("STATE", Column::Text),
    ]);
    for one in &quotas {
        let limits = &one.limits;
        let used = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let bytes =
            |limit: u64| if limit == 0 { "-".to_owned() } else { ByteSize(limit).to_string() };
        let files = |limit: u64| if limit == 0 { "-".to_owned() } else { limit.to_string() };
        table.row([
            one.kind.to_string(),
            name(one, accounts),
            used(one.used_bytes.map(|bytes| ByteSize(bytes).to_string())),
            bytes(limits.soft_bytes),
            bytes(limits.hard_bytes),
            used(one.used_files.map(|files| files.to_string())),
            files(limits.soft_files),
            files(limits.hard_files),
            state(one).to_owned(),
        ]);
    }
    let is_empty = quotas.is_empty();
    let output = Output::list(&quotas, |one| object(one, accounts), table)?;
    let output = output.field("state", &report.state)?;
    let output = output.field("counted_inodes", &report.counted_inodes)?;
    let set = format!("stroop quota set {} --user USER --hard 10G", shell_word(volume));
    Ok(match report.state {
        QuotaState::Off => {
            output.line(format!("{volume}: quotas are off, no limit is set")).next(set)
        }
        QuotaState::Counting => {
            let looked_at = report.counted_inodes.unwrap_or(0);
            output.line(format!(
                "{volume}: files are being counted, {looked_at} inodes were looked at: no limit \
                 holds yet"
            ))
        }
        QuotaState::On if is_empty => output.line(format!("{volume}: no limit is set")).next(set),
        QuotaState::On => output,
    })
}

/// It is of one owner, and not of each.
const fn is_one(quota: &QuotaInfo) -> bool {
    quota.id.is_some() || quota.path.is_some()
}

const fn state(quota: &QuotaInfo) -> &'static str {
    match quota.state {
        QuotaState::On if !is_one(quota) => "-",
        QuotaState::On if quota.is_at_hard() => "hard",
        QuotaState::On if quota.is_over_soft() => "soft",
        QuotaState::On => "ok",
        QuotaState::Counting | QuotaState::Off => "-",
    }
}

/// What scripts call it: "user:alice", "each-group", "tree:/projects".
fn object(quota: &QuotaInfo, accounts: &Accounts) -> String {
    match is_one(quota) {
        true => format!("{}:{}", quota.kind, name(quota, accounts)),
        false => format!("each-{}", quota.kind),
    }
}

fn name(quota: &QuotaInfo, accounts: &Accounts) -> String {
    let found = match (quota.kind, quota.id) {
        _ if !is_one(quota) => return "each".to_owned(),
        (QuotaKind::Tree, _) | (_, None) => quota.path.clone(),
        (QuotaKind::User, Some(id)) => accounts.user_name(id),
        (QuotaKind::Group, Some(id)) => accounts.group_name(id),
    };
    match (found, quota.id.unwrap_or_default()) {
        (Some(found), _) => found,
        // Its directory is gone.
        (None, id) if quota.kind == QuotaKind::Tree => format!("inode-{id}"),
        (None, id) => id.to_string(),
    }
}

fn title(quota: &QuotaInfo, accounts: &Accounts) -> String {
    match is_one(quota) {
        true => format!("{} {}", quota.kind, name(quota, accounts)),
        false => format!("each {}", quota.kind),
    }
}

/// "may use 10GiB and 100000 files".
fn limits(quota: &QuotaInfo) -> String {
    let limits = &quota.limits;
    let bytes = (limits.hard_bytes != 0).then(|| ByteSize(limits.hard_bytes).to_string());
    let files = (limits.hard_files != 0).then(|| format!("{} files", limits.hard_files));
    let hard: Vec<String> = [bytes, files].into_iter().flatten().collect();
    let bytes = (limits.soft_bytes != 0).then(|| ByteSize(limits.soft_bytes).to_string());
    let files = (limits.soft_files != 0).then(|| format!("{} files", limits.soft_files));
    let soft: Vec<String> = [bytes, files].into_iter().flatten().collect();
    let told = match soft.is_empty() {
        true => String::new(),
        false => format!(", an event tells of more than {}", soft.join(" and ")),
    };
    match hard.is_empty() {
        true => format!("may use as much as there is{told}"),
        false => format!("may use {}{told}", hard.join(" and ")),
    }
}

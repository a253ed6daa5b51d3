//! Quotas of a volume's users, groups and trees, for administrators.
//!
//! A tree is named by the path of its directory, which becomes a tree with the first limits that it
//! gets. The engine knows it by the inode of that directory.
//!
//! Invariants: limits that were answered hold, and survive a crash. While a volume counts its files
//! none holds yet, and its state says so. A restore brings back the limits of the snapshot. Limits
//! are whole blocks.

use crate::volumes::quota_trees::{self, Place, Whose};
use crate::volumes::room::Volumes;
use admin_api::quotas::{check_limits, quota_title};
use admin_api::{
    AdminError, Code, QuotaDelete, QuotaInfo, QuotaKind, QuotaLimits, QuotaList, QuotaReport,
    QuotaSet, QuotaState,
};
use dblade::{Limits, Listed, QuotaChange, QuotaKey, QuotaTarget};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Fbn, shell_word};

const SET: &str = "cannot set quota";
const DELETE: &str = "cannot delete quota";
const LIST: &str = "cannot list quotas of";
/// Slots of a block of the quota file, as a page's beginning counts them.
const SLOTS: u64 = ondisk::quota::QUOTAS_PER_BLOCK as u64;

pub(crate) fn set(volumes: &Volumes, wanted: &QuotaSet) -> Result<QuotaInfo, AdminError> {
    let _turn = volumes.node.turn();
    check_damage(volumes, SET, &wanted.volume)?;
    if let Some(path) = &wanted.path {
        return set_tree(volumes, wanted, path);
    }
    let found = one(volumes, SET, &wanted.volume, Whose::of(wanted.kind, wanted.id))?;
    let limits = changed(wanted, &found)?;
    change(volumes, SET, &found, Some(limits))
}

/// The limits as they are to be.
fn changed(wanted: &QuotaSet, found: &QuotaInfo) -> Result<QuotaLimits, AdminError> {
    let mut limits = if found.own { found.limits } else { QuotaLimits::default() };
    wanted.change(&mut limits);
    check_limits(&title_of(found), &limits)?;
    Ok(limits)
}

fn set_tree(volumes: &Volumes, wanted: &QuotaSet, path: &str) -> Result<QuotaInfo, AdminError> {
    let at = Place { volume: &volumes.find(SET, &wanted.volume)?.name(), path };
    let before = quota_trees::find(volumes, SET, at)?;
    let whose = Whose { path: Some(quota_trees::normal(path)), ..Whose::of(wanted.kind, before) };
    let mut found = one(volumes, SET, at.volume, whose)?;
    found.own &= before.is_some();
    let limits = changed(wanted, &found)?;
    let tree = quota_trees::make(volumes, SET, at)?;
    if before.is_some_and(|before| before != tree) {
        let error = AdminError::new(Code::Conflict, SET, title_of(&found));
        return Err(error.because("another directory came to this path meanwhile"));
    }
    found.id = Some(tree);
    if !wanted.has_limits() {
        let whose = Whose { path: found.path, ..Whose::of(QuotaKind::Tree, found.id) };
        return one(volumes, SET, at.volume, whose);
    }
    change(volumes, SET, &found, Some(limits)).map_err(|error| match before {
        Some(_) => error,
        None => error.because("the directory is a quota tree now, and has no limits of its own"),
    })
}

pub(crate) fn delete(volumes: &Volumes, wanted: &QuotaDelete) -> Result<QuotaInfo, AdminError> {
    let _turn = volumes.node.turn();
    check_damage(volumes, DELETE, &wanted.volume)?;
    let whose = match &wanted.path {
        Some(path) => quota_trees::need(volumes, DELETE, (&wanted.volume, path))?,
        None => Whose::of(wanted.kind, wanted.id),
    };
    let found = one(volumes, DELETE, &wanted.volume, whose)?;
    if !found.own {
        // A volume that counts nothing does not begin to.
        return Ok(found);
    }
    change(volumes, DELETE, &found, None)
}

fn change(
    volumes: &Volumes,
    message: &str,
    before: &QuotaInfo,
    limits: Option<QuotaLimits>,
) -> Result<QuotaInfo, AdminError> {
    let QuotaInfo { volume, kind, id, path, .. } = before;
    let (kind, id) = (*kind, *id);
    let title = title_of(before);
    let target = match id {
        Some(id) => QuotaTarget::One(QuotaKey { kind: stored_kind(kind), id }),
        None => QuotaTarget::Others(stored_kind(kind)),
    };
    let changes = vec![QuotaChange { target, limits: limits.as_ref().map(stored) }];
    volumes.node.waits.request(message, &title, |done| {
        volumes.node.engine.set_quotas(volume, changes, done);
    })?;
    tracing::info!(volume, quota = title, ?limits, "limits of a quota changed");
    let whose = Whose { path: path.clone(), ..Whose::of(kind, id) };
    // It is done, whether it can be looked at or not.
    let now = one(volumes, message, volume, whose).unwrap_or_else(|_| {
        let limits = limits.map(|limits| shown(&stored(&limits)));
        let own = limits.is_some();
        let limits = limits.unwrap_or_default();
        QuotaInfo { limits, own, state: QuotaState::Counting, ..before.clone() }
    });
    // Limits of a tree that is gone are not set.
    match path.is_some() && limits.is_some() && !now.own {
        true => Err(AdminError::new(Code::Conflict, message, title)
            .because("the directory was removed meanwhile")),
        false => Ok(now),
    }
}

fn title_of(quota: &QuotaInfo) -> String {
    quota_title(&quota.volume, quota.kind, quota.id, quota.path.as_deref())
}

fn check_damage(volumes: &Volumes, message: &str, volume: &str) -> Result<(), AdminError> {
    let volume = volumes.find(message, volume)?;
    match volume.damage() {
        Some(damage) => Err(AdminError::new(Code::Conflict, message, volume.name())
            .because(format!("the volume is read-only: {damage}"))
            .try_next(format!(
                "stroop check aggr {}",
                shell_word(&volume.aggregate.parts.identity.name)
            ))),
        None => Ok(()),
    }
}

pub(crate) fn list(volumes: &Volumes, wanted: &QuotaList) -> Result<QuotaReport, AdminError> {
    let whose = match &wanted.only_tree {
        Some(path) => Some(quota_trees::need(volumes, LIST, (&wanted.volume, path))?),
        None => None,
    };
    let tree = whose.as_ref().and_then(|whose| Some((whose.kind, whose.id?)));
    let listed = match (tree.or(wanted.only), wanted.from) {
        (Some((kind, id)), _) => Listed::One(QuotaKey { kind: stored_kind(kind), id }),
        (None, from) => {
            let from = from.unwrap_or(0);
            Listed::From(Fbn(from / SLOTS), (from % SLOTS) as usize)
        }
    };
    let mut report = report(volumes, LIST, &wanted.volume, listed)?;
    report.quotas.retain(|one| one.own || !wanted.own_only);
    match whose {
        Some(whose) => report.quotas.iter_mut().for_each(|one| one.path.clone_from(&whose.path)),
        None => quota_trees::add_paths(volumes, LIST, &report.volume, &mut report.quotas)?,
    }
    Ok(report)
}

/// One user, group or tree, or the limits of the others.
fn one(
    volumes: &Volumes,
    message: &str,
    volume: &str,
    Whose { kind, id, path }: Whose,
) -> Result<QuotaInfo, AdminError> {
    let key = QuotaKey { kind: stored_kind(kind), id: id.unwrap_or(0) };
    let mut report = report(volumes, message, volume, Listed::One(key))?;
    let found = match id {
        Some(_) => report.quotas.pop(),
        None => report.others.into_iter().find(|one| one.kind == kind),
    };
    match found {
        Some(found) => Ok(QuotaInfo { path, ..found }),
        None => unreachable!("a list of one has one, and the others of each kind are in any"),
    }
}

/// Quotas as the engine lists them, trees without their paths.
fn report(
    volumes: &Volumes,
    message: &str,
    volume: &str,
    listed: Listed,
) -> Result<QuotaReport, AdminError> {
    let name = volumes.find(message, volume)?.name();
    let wanted = Arc::new(());
    let found = volumes.node.waits.request(message, &name, |done| {
        volumes.node.engine.quotas(&name, listed, &wanted, done);
    })?;
    let state = match (found.is_counting, found.are_all_counted) {
        (false, _) => QuotaState::Off,
        (true, false) => QuotaState::Counting,
        (true, true) => QuotaState::On,
    };
    let other = |kind: QuotaKind| {
        let limits = found.others[stored_kind(kind) as usize];
        QuotaInfo {
            volume: name.clone(),
            kind,
            id: None,
            path: None,
            used_bytes: None,
            used_files: None,
            state,
            own: limits != Limits::default(),
            limits: shown(&limits),
        }
    };
    let quota = |one: &dblade::Quota| QuotaInfo {
        volume: name.clone(),
        kind: shown_kind(one.key.kind),
        id: Some(one.key.id),
        path: None,
        used_bytes: found.is_counting.then(|| one.used_blocks.saturating_mul(BLOCK_SIZE_U64)),
        used_files: found.is_counting.then_some(one.used_files),
        state,
        limits: shown(&one.limits),
        own: one.is_own,
    };
    Ok(QuotaReport {
        state,
        counted_inodes: (state == QuotaState::Counting).then_some(found.counted_inodes),
        others: QuotaKind::ALL.map(other).to_vec(),
        quotas: found.quotas.iter().map(quota).collect(),
        next: found.next.map(|(fbn, slot)| fbn.get() * SLOTS + slot as u64),
        volume: name,
    })
}

const fn stored_kind(kind: QuotaKind) -> dblade::QuotaKind {
    match kind {
        QuotaKind::User => dblade::QuotaKind::User,
        QuotaKind::Group => dblade::QuotaKind::Group,
        QuotaKind::Tree => dblade::QuotaKind::Tree,
    }
}

pub(crate) const fn shown_kind(kind: dblade::QuotaKind) -> QuotaKind {
    match kind {
        dblade::QuotaKind::User => QuotaKind::User,
        dblade::QuotaKind::Group => QuotaKind::Group,
        dblade::QuotaKind::Tree => QuotaKind::Tree,
    }
}

/// Limits in whole blocks; a limit of bytes is rounded down.
const fn stored(limits: &QuotaLimits) -> Limits {
    Limits {
        soft_blocks: limits.soft_bytes / BLOCK_SIZE_U64,
        hard_blocks: limits.hard_bytes / BLOCK_SIZE_U64,
        soft_files: limits.soft_files,
        hard_files: limits.hard_files,
    }
}

pub(crate) const fn shown(limits: &Limits) -> QuotaLimits {
    QuotaLimits {
        soft_bytes: limits.soft_blocks.saturating_mul(BLOCK_SIZE_U64),
        hard_bytes: limits.hard_blocks.saturating_mul(BLOCK_SIZE_U64),
        soft_files: limits.soft_files,
        hard_files: limits.hard_files,
    }
}

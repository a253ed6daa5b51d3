//! Quotas of a volume's users and groups, for administrators.
//!
//! Invariants: limits that were answered hold, and survive a crash. While a volume counts its files
//! none holds yet, and its state says so. A restore brings back the limits of the snapshot. Limits
//! are whole blocks.

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
    let QuotaSet { kind, id, .. } = *wanted;
    check_damage(volumes, SET, &wanted.volume)?;
    let found = one(volumes, SET, &wanted.volume, (kind, id))?;
    let mut limits = if found.own { found.limits } else { QuotaLimits::default() };
    wanted.change(&mut limits);
    check_limits(&quota_title(&found.volume, kind, id), &limits)?;
    change(volumes, SET, &found, Some(limits))
}

pub(crate) fn delete(volumes: &Volumes, wanted: &QuotaDelete) -> Result<QuotaInfo, AdminError> {
    let _turn = volumes.node.turn();
    let QuotaDelete { kind, id, .. } = *wanted;
    check_damage(volumes, DELETE, &wanted.volume)?;
    let found = one(volumes, DELETE, &wanted.volume, (kind, id))?;
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
    let QuotaInfo { volume, kind, id, .. } = before;
    let (kind, id) = (*kind, *id);
    let title = quota_title(volume, kind, id);
    let target = match id {
        Some(id) => QuotaTarget::One(QuotaKey { kind: stored_kind(kind), id }),
        None => QuotaTarget::Others(stored_kind(kind)),
    };
    let changes = vec![QuotaChange { target, limits: limits.as_ref().map(stored) }];
    volumes.node.waits.request(message, &title, |done| {
        volumes.node.engine.set_quotas(volume, changes, done);
    })?;
    tracing::info!(volume, quota = title, ?limits, "limits of a quota changed");
    // It is done, whether it can be looked at or not.
    Ok(one(volumes, message, volume, (kind, id)).unwrap_or_else(|_| {
        let limits = limits.map(|limits| shown(&stored(&limits)));
        let own = limits.is_some();
        let limits = limits.unwrap_or_default();
        QuotaInfo { limits, own, state: QuotaState::Counting, ..before.clone() }
    }))
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
    let listed = match (wanted.only, wanted.from) {
        (Some((kind, id)), _) => Listed::One(QuotaKey { kind: stored_kind(kind), id }),
        (None, from) => {
            let from = from.unwrap_or(0);
            Listed::From(Fbn(from / SLOTS), (from % SLOTS) as usize)
        }
    };
    report(volumes, LIST, &wanted.volume, listed)
}

/// One user or group, or the limits of the others.
fn one(
    volumes: &Volumes,
    message: &str,
    volume: &str,
    (kind, id): (QuotaKind, Option<u32>),
) -> Result<QuotaInfo, AdminError> {
    let key = QuotaKey { kind: stored_kind(kind), id: id.unwrap_or(0) };
    let mut report = report(volumes, message, volume, Listed::One(key))?;
    let found = match id {
        Some(_) => report.quotas.pop(),
        None => report.others.into_iter().find(|one| one.kind == kind),
    };
    match found {
        Some(found) => Ok(found),
        None => unreachable!("a list of one has one, and the others of each kind are in any"),
    }
}

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
    }
}

pub(crate) const fn shown_kind(kind: dblade::QuotaKind) -> QuotaKind {
    match kind {
        dblade::QuotaKind::User => QuotaKind::User,
        dblade::QuotaKind::Group => QuotaKind::Group,
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

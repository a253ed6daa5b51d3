//! Quotas. In memory nothing is used.

use super::volumes::Volumes;
use crate::error::AdminError;
use crate::quotas::{
    QuotaDelete, QuotaInfo, QuotaKind, QuotaLimits, QuotaList, QuotaReport, QuotaSet, QuotaState,
    check_limits, quota_title,
};
use std::collections::BTreeMap;

/// By volume, kind and number.
pub(super) type Limits = BTreeMap<(String, QuotaKind, Option<u32>), QuotaLimits>;

fn check(volumes: &Volumes, message: &str, volume: &str) -> Result<(), AdminError> {
    let found = volumes.get(volume).map(drop);
    found.ok_or_else(|| AdminError::missing(message, "volume", volume))
}

fn info(limits: &Limits, (volume, kind, id): (&str, QuotaKind, Option<u32>)) -> QuotaInfo {
    let of = |id| limits.get(&(volume.to_owned(), kind, id)).copied();
    let (own, is_on) = (of(id), is_on(limits, volume));
    QuotaInfo {
        volume: volume.to_owned(),
        kind,
        id,
        used_bytes: id.map(|_| 0).filter(|_| is_on),
        used_files: id.map(|_| 0).filter(|_| is_on),
        limits: own.or_else(|| of(None)).unwrap_or_default(),
        own: own.is_some(),
        state: if is_on { QuotaState::On } else { QuotaState::Off },
    }
}

fn is_on(limits: &Limits, volume: &str) -> bool {
    limits.keys().any(|(name, ..)| name == volume)
}

pub(super) fn set(
    (volumes, limits): (&Volumes, &mut Limits),
    request: &QuotaSet,
) -> Result<QuotaInfo, AdminError> {
    let QuotaSet { volume, kind, id, .. } = request;
    check(volumes, "cannot set quota", volume)?;
    let key = (volume.clone(), *kind, *id);
    let mut new = limits.get(&key).copied().unwrap_or_default();
    request.change(&mut new);
    check_limits(&quota_title(volume, *kind, *id), &new)?;
    limits.insert(key, new);
    Ok(info(limits, (volume, *kind, *id)))
}

pub(super) fn delete(
    (volumes, limits): (&Volumes, &mut Limits),
    request: &QuotaDelete,
) -> Result<QuotaInfo, AdminError> {
    let QuotaDelete { volume, kind, id } = request;
    check(volumes, "cannot delete quota", volume)?;
    limits.remove(&(volume.clone(), *kind, *id));
    Ok(info(limits, (volume, *kind, *id)))
}

pub(super) fn list(
    (volumes, limits): (&Volumes, &Limits),
    request: &QuotaList,
) -> Result<QuotaReport, AdminError> {
    let volume = &request.volume;
    check(volumes, "cannot list quotas of", volume)?;
    let mut keys: Vec<(QuotaKind, u32)> = match request.only {
        Some(only) => vec![only],
        None => {
            let of_volume = limits.keys().filter(|(name, ..)| name == volume);
            of_volume.filter_map(|(_, kind, id)| Some((*kind, (*id)?))).collect()
        }
    };
    keys.sort_unstable();
    let quotas = keys.into_iter().map(|(kind, id)| info(limits, (volume, kind, Some(id))));
    Ok(QuotaReport {
        volume: volume.clone(),
        state: if is_on(limits, volume) { QuotaState::On } else { QuotaState::Off },
        counted_inodes: None,
        others: QuotaKind::ALL.map(|kind| info(limits, (volume, kind, None))).to_vec(),
        quotas: quotas.collect(),
        next: None,
    })
}

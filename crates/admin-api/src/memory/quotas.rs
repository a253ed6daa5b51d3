//! Quotas. In memory nothing is used.

use super::volumes::Volumes;
use crate::differences::{parse_path, shown_path};
use crate::error::AdminError;
use crate::quotas::{
    QuotaDelete, QuotaInfo, QuotaKind, QuotaLimits, QuotaList, QuotaReport, QuotaSet, QuotaState,
    check_limits, quota_title,
};
use std::collections::BTreeMap;

/// By volume, kind, number and path.
pub(super) type Limits = BTreeMap<(String, Owner), QuotaLimits>;

/// Kind, number and path. Here a tree has no number.
type Owner = (QuotaKind, Option<u32>, Option<String>);

fn check(volumes: &Volumes, message: &str, volume: &str) -> Result<(), AdminError> {
    let found = volumes.get(volume).map(drop);
    found.ok_or_else(|| AdminError::missing(message, "volume", volume))
}

fn info(limits: &Limits, volume: &str, owner: &Owner) -> QuotaInfo {
    let of = |owner: Owner| limits.get(&(volume.to_owned(), owner)).copied();
    let (own, is_on) = (of(owner.clone()), is_on(limits, volume));
    let (kind, id, path) = owner.clone();
    let is_one = id.is_some() || path.is_some();
    QuotaInfo {
        volume: volume.to_owned(),
        kind,
        id,
        path,
        used_bytes: (is_one && is_on).then_some(0),
        used_files: (is_one && is_on).then_some(0),
        limits: own.or_else(|| of((kind, None, None))).unwrap_or_default(),
        own: own.is_some(),
        state: if is_on { QuotaState::On } else { QuotaState::Off },
    }
}

/// A path as it is shown.
fn normal(path: &str) -> String {
    shown_path(&parse_path(path).join(&b'/'))
}

fn is_on(limits: &Limits, volume: &str) -> bool {
    limits.keys().any(|(name, _)| name == volume)
}

pub(super) fn set(
    (volumes, limits): (&Volumes, &mut Limits),
    request: &QuotaSet,
) -> Result<QuotaInfo, AdminError> {
    let QuotaSet { volume, kind, id, path, .. } = request;
    check(volumes, "cannot set quota", volume)?;
    let owner = (*kind, *id, path.as_deref().map(normal));
    let key = (volume.clone(), owner.clone());
    let mut new = limits.get(&key).copied().unwrap_or_default();
    request.change(&mut new);
    check_limits(&quota_title(volume, *kind, *id, path.as_deref()), &new)?;
    // A tree without limits of its own is no more than its directory.
    if request.has_limits() {
        limits.insert(key, new);
    }
    Ok(info(limits, volume, &owner))
}

pub(super) fn delete(
    (volumes, limits): (&Volumes, &mut Limits),
    request: &QuotaDelete,
) -> Result<QuotaInfo, AdminError> {
    let QuotaDelete { volume, kind, id, path } = request;
    check(volumes, "cannot delete quota", volume)?;
    let owner = (*kind, *id, path.as_deref().map(normal));
    limits.remove(&(volume.clone(), owner.clone()));
    Ok(info(limits, volume, &owner))
}

pub(super) fn list(
    (volumes, limits): (&Volumes, &Limits),
    request: &QuotaList,
) -> Result<QuotaReport, AdminError> {
    let volume = &request.volume;
    check(volumes, "cannot list quotas of", volume)?;
    let mut owners: Vec<Owner> = match (request.only, &request.only_tree) {
        (_, Some(path)) => vec![(QuotaKind::Tree, None, Some(normal(path)))],
        (Some((kind, id)), None) => vec![(kind, Some(id), None)],
        (None, None) => {
            let of_volume = limits.keys().filter(|(name, _)| name == volume);
            let of_one = of_volume.filter(|(_, (_, id, path))| id.is_some() || path.is_some());
            of_one.map(|(_, owner)| owner.clone()).collect()
        }
    };
    owners.sort_unstable();
    let quotas = owners.iter().map(|owner| info(limits, volume, owner));
    Ok(QuotaReport {
        volume: volume.clone(),
        state: if is_on(limits, volume) { QuotaState::On } else { QuotaState::Off },
        counted_inodes: None,
        others: QuotaKind::ALL.map(|kind| info(limits, volume, &(kind, None, None))).to_vec(),
        quotas: quotas.collect(),
        next: None,
    })
}

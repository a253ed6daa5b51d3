//! Quotas of a volume's users, groups and trees, for administrators.
//!
//! A tree is named by the path of its directory, which becomes a tree with the first limits that it
//! gets. The engine knows it by the inode of that directory.
//!
//! Invariants: limits that were answered hold, and survive a crash. While a volume counts its files
//! none holds yet, and its state says so. A restore brings back the limits of the snapshot. Limits
//! are whole blocks.

use crate::volumes::room::Volumes;
use admin_api::differences::{parse_path, shown_path};
use admin_api::quotas::{check_limits, quota_title};
use admin_api::{
    AdminError, Code, QuotaDelete, QuotaInfo, QuotaKind, QuotaLimits, QuotaList, QuotaReport,
    QuotaSet, QuotaState,
};
use dblade::{Limits, Listed, QuotaChange, QuotaKey, QuotaTarget, TreeAnswer};
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
    let owner = Owner { kind: wanted.kind, id: wanted.id, path: wanted.path.as_deref() };
    let there = match owner.path {
        Some(path) => number_of(volumes, SET, &wanted.volume, path, Look::Find)?,
        None => owner.id,
    };
    let mut found = match there {
        None if owner.path.is_some() => new_tree(volumes, SET, &wanted.volume)?,
        id => one(volumes, SET, &wanted.volume, (owner.kind, id))?,
    };
    let mut limits = if found.own { found.limits } else { QuotaLimits::default() };
    wanted.change(&mut limits);
    let title = quota_title(&found.volume, owner.kind, owner.id, owner.path);
    check_limits(&title, &limits)?;
    if let Some(path) = owner.path {
        found.id = number_of(volumes, SET, &wanted.volume, path, Look::Make)?;
        found.path = owner.path.map(|path| shown_path(&parse_path(path).join(&b'/')));
    }
    change(volumes, SET, &found, Some(limits))
}

/// Who is asked for.
#[derive(Clone, Copy)]
struct Owner<'o> {
    kind: QuotaKind,
    id: Option<u32>,
    path: Option<&'o str>,
}

/// What is done about a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// A directory that is no tree may be there.
    Find,
    /// There is a tree.
    Need,
    /// A directory that is no tree becomes one.
    Make,
}

/// The number of the tree at a path; none if it may become one.
fn number_of(
    volumes: &Volumes,
    message: &str,
    volume: &str,
    path: &str,
    look: Look,
) -> Result<Option<u32>, AdminError> {
    let name = volumes.find(message, volume)?.name();
    let title = quota_title(&name, QuotaKind::Tree, None, Some(path));
    let names = parse_path(path);
    let engine = &volumes.node.engine;
    let answer = volumes.node.waits.request(message, &title, |done| match look {
        Look::Make => engine.make_tree(&name, names, done),
        Look::Find | Look::Need => engine.find_tree(&name, names, done),
    })?;
    let cause = match answer {
        TreeAnswer::Tree(tree) => return Ok(Some(tree)),
        TreeAnswer::Directory | TreeAnswer::NotEmpty if look == Look::Need => {
            let error = AdminError::new(Code::NotFound, message, title);
            let list = format!("stroop quota list {}", shell_word(&name));
            return Err(error.because("this directory is no quota tree").try_next(list));
        }
        TreeAnswer::Directory => return Ok(None),
        TreeAnswer::NotFound => {
            let error = AdminError::new(Code::NotFound, message, title);
            return Err(error.because("there is no such directory in the volume"));
        }
        TreeAnswer::NotDirectory => {
            "it is no directory, or something on the way to it is none".to_owned()
        }
        TreeAnswer::Root => "the root directory is no quota tree".to_owned(),
        TreeAnswer::NotEmpty => {
            "the directory is not empty, and what is in it would not count".to_owned()
        }
        TreeAnswer::Within(tree) => {
            let of = path_of(volumes, message, &name, tree)?;
            let of = of.unwrap_or_else(|| format!("with inode {tree}"));
            format!("the directory lies in the quota tree {of}, and no tree lies in another")
        }
    };
    let error = AdminError::new(Code::Conflict, message, title).because(cause);
    Err(match answer {
        TreeAnswer::NotEmpty => error.try_next(
            "make a directory, set its quota, move the files into it, and rename it to this one",
        ),
        _ => error,
    })
}

/// The path of a tree's directory; none if it is gone.
fn path_of(
    volumes: &Volumes,
    message: &str,
    volume: &str,
    tree: u32,
) -> Result<Option<String>, AdminError> {
    let path = volumes.node.waits.request(message, volume, |done| {
        volumes.node.engine.path_of_tree(volume, tree, done);
    })?;
    Ok(path.map(|path| shown_path(&path)))
}

/// A tree that is not there yet, with the limits of those that have none of their own.
fn new_tree(volumes: &Volumes, message: &str, volume: &str) -> Result<QuotaInfo, AdminError> {
    let each = one(volumes, message, volume, (QuotaKind::Tree, None))?;
    Ok(QuotaInfo { own: false, ..each })
}

pub(crate) fn delete(volumes: &Volumes, wanted: &QuotaDelete) -> Result<QuotaInfo, AdminError> {
    let _turn = volumes.node.turn();
    check_damage(volumes, DELETE, &wanted.volume)?;
    let id = match wanted.path.as_deref() {
        Some(path) => number_of(volumes, DELETE, &wanted.volume, path, Look::Need)?,
        None => wanted.id,
    };
    let found = one(volumes, DELETE, &wanted.volume, (wanted.kind, id))?;
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
    let title = quota_title(volume, kind, id, path.as_deref());
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
    let tree = match wanted.only_tree.as_deref() {
        Some(path) => number_of(volumes, LIST, &wanted.volume, path, Look::Need)?,
        None => None,
    };
    let only = tree.map(|tree| (QuotaKind::Tree, tree)).or(wanted.only);
    let listed = match (only, wanted.from) {
        (Some((kind, id)), _) => Listed::One(QuotaKey { kind: stored_kind(kind), id }),
        (None, from) => {
            let from = from.unwrap_or(0);
            Listed::From(Fbn(from / SLOTS), (from % SLOTS) as usize)
        }
    };
    report(volumes, LIST, &wanted.volume, listed)
}

/// One user, group or tree, or the limits of the others.
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
            path: None,
            used_bytes: None,
            used_files: None,
            state,
            own: limits != Limits::default(),
            limits: shown(&limits),
        }
    };
    let quota = |one: &dblade::Quota| {
        let path = match one.key.kind {
            dblade::QuotaKind::Tree => path_of(volumes, message, &name, one.key.id)?,
            dblade::QuotaKind::User | dblade::QuotaKind::Group => None,
        };
        Ok(QuotaInfo {
            volume: name.clone(),
            kind: shown_kind(one.key.kind),
            id: Some(one.key.id),
            path,
            used_bytes: found.is_counting.then(|| one.used_blocks.saturating_mul(BLOCK_SIZE_U64)),
            used_files: found.is_counting.then_some(one.used_files),
            state,
            limits: shown(&one.limits),
            own: one.is_own,
        })
    };
    Ok(QuotaReport {
        state,
        counted_inodes: (state == QuotaState::Counting).then_some(found.counted_inodes),
        others: QuotaKind::ALL.map(other).to_vec(),
        quotas: found.quotas.iter().map(quota).collect::<Result<_, AdminError>>()?,
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

//! Quotas of a life's volumes: an administrator changes limits and makes trees while everything
//! rests, and nobody comes to use more than he may.
//!
//! What owners use is compared with the inodes on the media (`inspect`), and the model knows which
//! names a tree keeps apart. Here: usage stays below limits, operations are refused for a reason,
//! and at rest nothing is promised.
//!
//! Invariants: a limit that was changed at rest holds for all that comes after. What an owner used
//! then he may go on using.

use crate::machine::Machine;
use crate::seed::choices::Choices;
use crate::seed::finding::Finding;
use crate::tenant::Tenant;
use crate::tenant::subject::names_of;
use dblade::{
    EngineError, Limits, Listed, QuotaChange, QuotaKey, QuotaKind, QuotaList, QuotaTarget,
    TreeAnswer,
};
use file_service::{FileKind, FsError};
use model_fs::image::ImageNode;
use platform::completion::promise;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::Fbn;

/// Users and groups of the callers there are (`model_fs::operation::Who`).
const USERS: [u32; 4] = [0, 1000, 1001, 1002];
const GROUPS: [u32; 4] = [0, 100, 200, 300];
/// What an owner may use beyond what he uses.
const MORE: [u64; 6] = [0, 1, 3, 10, 40, 200];

/// What each owner used, of each volume, when its limits were changed last.
#[derive(Default)]
pub struct Quotas {
    used: BTreeMap<String, BTreeMap<QuotaKey, (u64, u64)>>,
    /// Nobody changes limits any more.
    is_over: bool,
}

impl Quotas {
    /// Limits stay as they are from now on, and so do the records of volumes.
    pub const fn end(&mut self) {
        self.is_over = true;
    }

    /// Everything rests: checks all volumes, and changes limits of some.
    ///
    /// # Errors
    /// [`Finding::Space`].
    pub fn rest(
        &mut self,
        machine: &mut Machine<'_>,
        tenants: &mut [Tenant],
        events: &mut Choices,
    ) -> Result<(), Finding> {
        if !machine.plan.quotas || machine.aggregate().is_none() {
            return Ok(());
        }
        self.used.retain(|name, _| tenants.iter().any(|tenant| tenant.name == *name));
        for tenant in tenants.iter_mut().filter(|tenant| !tenant.is_damaged) {
            let Some(served) = machine.engine.volume_named(&tenant.name) else { continue };
            let ledger = served.quota_ledger();
            if served.damage().is_some() || !ledger.is_counting() && !events.chance(60) {
                continue;
            }
            let promised = ledger.promised();
            if promised != (0, 0) {
                let (blocks, files) = promised;
                let text = format!("{}: at rest {blocks} blocks, {files} files", tenant.name);
                return Err(Finding::Space(format!("{text} are promised to owners")));
            }
            self.look(machine, tenant)?;
            if !self.is_over && events.chance(40) {
                self.make_tree(machine, tenant, events)?;
            }
            if !self.is_over && events.chance(60) {
                self.change(machine, &tenant.name, None, events)?;
            }
        }
        Ok(())
    }

    /// Nobody uses more than he may.
    fn look(&self, machine: &mut Machine<'_>, tenant: &Tenant) -> Result<(), Finding> {
        let list = list(machine, &tenant.name)?;
        machine.trace.meet_times("quotas: volumes at rest that count", list.is_counting.into());
        let Some(used) = self.used.get(&tenant.name).filter(|_| !tenant.was_restored()) else {
            return Ok(());
        };
        for quota in list.quotas.iter().filter(|_| list.are_all_counted) {
            let before = used.get(&quota.key).copied().unwrap_or_default();
            let Limits { hard_blocks, hard_files, .. } = quota.limits;
            let passes = |hard: u64, used: u64, before: u64| hard != 0 && used > hard.max(before);
            if passes(hard_blocks, quota.used_blocks, before.0)
                || passes(hard_files, quota.used_files, before.1)
            {
                let text = format!("{}: {quota:?}, when it was set {before:?}", tenant.name);
                return Err(Finding::Space(text));
            }
        }
        Ok(())
    }

    /// An administrator asks for a tree, whatever is at the path.
    fn make_tree(
        &mut self,
        machine: &mut Machine<'_>,
        tenant: &mut Tenant,
        events: &mut Choices,
    ) -> Result<(), Finding> {
        let image = tenant.model.image(&mut || {}).unwrap_or_default();
        let of = |node: &&ImageNode| node.kind == FileKind::Directory;
        let empty = |path: &[u8]| {
            let beneath = |other: &&Vec<u8>| other.len() > path.len() && other.starts_with(path);
            image.nodes.keys().filter(beneath).all(|other| other.get(path.len()) != Some(&b'/'))
        };
        let directories = image.nodes.iter().filter(|(_, node)| of(node));
        let paths: Vec<&Vec<u8>> = directories.map(|(path, _)| path).collect();
        let may_be: Vec<&Vec<u8>> =
            paths.iter().copied().filter(|path| !path.is_empty() && empty(path)).collect();
        let path = match may_be.is_empty() || events.chance(20) {
            true => events.pick(&paths),
            false => events.pick(&may_be),
        };
        tenant.ask_tree(path);
        let engine = &machine.engine;
        let asked = promise(|done| engine.make_tree(&tenant.name, names_of(path), done));
        let answer = machine.wait("a quota tree", &asked)?;
        let shown = format!("{}: '/{}'", tenant.name, path.escape_ascii());
        machine.trace.note(format!("{shown} is to be a tree: {answer:?}"));
        let made = match answer {
            Ok(TreeAnswer::Tree(tree)) => Some(QuotaKey { kind: QuotaKind::Tree, id: tree }),
            Ok(TreeAnswer::Former) => {
                tenant.forgo_tree();
                machine.trace.meet("quotas: files of a former tree are there");
                return Ok(());
            }
            Ok(_) => None,
            Err(
                EngineError::Files(FsError::NoSpace | FsError::OverQuota)
                | EngineError::Aggregate(
                    aggregate::AggregateError::Full | aggregate::AggregateError::VolumeFull,
                ),
            ) => {
                tenant.forgo_tree();
                machine.trace.meet("quotas: no room for a tree");
                return Ok(());
            }
            Err(error) => return Err(machine.refused("a quota tree", &error.to_string())),
        };
        tenant.forgo_tree();
        if made.is_some() != tenant.model.may_make_tree(path) {
            return Err(Finding::Space(format!("{shown}: a tree is made: {made:?}")));
        }
        if made.is_some() && tenant.note_tree(path).is_ok() {
            machine.trace.meet("quotas: trees");
        }
        match made.filter(|_| events.chance(70)) {
            Some(_) => self.change(machine, &tenant.name, made, events),
            None => Ok(()),
        }
    }

    /// An administrator changes a limit, or begins to have some; `of` is whose, if that is decided.
    fn change(
        &mut self,
        machine: &mut Machine<'_>,
        name: &str,
        of: Option<QuotaKey>,
        events: &mut Choices,
    ) -> Result<(), Finding> {
        let before = list(machine, name)?;
        let of_tree = |one: &&dblade::Quota| one.key.kind == QuotaKind::Tree;
        let trees: Vec<QuotaKey> =
            before.quotas.iter().filter(of_tree).map(|one| one.key).collect();
        let key = match events.chance(60) {
            _ if !trees.is_empty() && events.chance(40) => events.pick(&trees),
            true => QuotaKey { kind: QuotaKind::User, id: events.pick(&USERS) },
            false => QuotaKey { kind: QuotaKind::Group, id: events.pick(&GROUPS) },
        };
        let (key, is_others) = (of.unwrap_or(key), of.is_none() && events.chance(20));
        let found = before.quotas.iter().find(|quota| quota.key == key);
        let used = found.map_or((0, 0), |quota| (quota.used_blocks, quota.used_files));
        let mut limit = |used: u64, percent| match events.chance(percent) {
            true => (used + events.pick(&MORE)).max(1),
            false => 0,
        };
        let limits = Limits {
            hard_blocks: limit(used.0, 80),
            hard_files: limit(used.1, 30),
            soft_blocks: limit(used.0, 20),
            soft_files: limit(used.1, 10),
        };
        let limits = events.chance(90).then_some(limits);
        let target = match is_others {
            true => QuotaTarget::Others(key.kind),
            false => QuotaTarget::One(key),
        };
        machine.trace.note(format!("{name}: limits of {target:?} become {limits:?}"));
        // Until it is answered nobody knows what holds.
        self.used.remove(name);
        let changes = vec![QuotaChange { target, limits }];
        let engine = &machine.engine;
        let asked = promise(|done| engine.set_quotas(name, changes, done));
        match machine.wait("new limits", &asked)? {
            Ok(()) => {}
            Err(EngineError::Aggregate(
                aggregate::AggregateError::Full | aggregate::AggregateError::VolumeFull,
            )) => {
                machine.trace.meet("quotas: no room for new limits");
                return Ok(());
            }
            Err(error) => return Err(machine.refused("new limits", &error.to_string())),
        }
        machine.trace.meet("quotas: limits are changed");
        machine.settle()?;
        let list = list(machine, name)?;
        let set = list.quotas.iter().find(|quota| quota.key == key);
        let is_set = match target {
            QuotaTarget::One(_) => {
                set.is_some_and(|one| one.is_own) == limits.is_some()
                    && limits.is_none_or(|limits| set.is_some_and(|one| one.limits == limits))
            }
            QuotaTarget::Others(_) => list.others[key.kind as usize] == limits.unwrap_or_default(),
        };
        if !list.is_counting || !is_set {
            let text = format!("{name}: new limits are not there: {list:?}");
            return Err(Finding::Space(text));
        }
        if list.are_all_counted {
            let used = |one: &dblade::Quota| (one.key, (one.used_blocks, one.used_files));
            self.used.insert(name.to_owned(), list.quotas.iter().map(used).collect());
        } else {
            machine.trace.meet("quotas: files are counted later");
        }
        Ok(())
    }
}

/// What operations were refused for is true.
///
/// # Errors
/// [`Finding::Space`].
pub fn check_refusals(machine: &mut Machine<'_>, name: &str) -> Result<(), Finding> {
    let Some(served) = machine.engine.volume_named(name) else { return Ok(()) };
    if !served.quota_ledger().is_counting() {
        let text = format!("{name}: an operation is refused for a quota, and there are none");
        return Err(Finding::Space(text));
    }
    for refusal in served.quota_ledger().take_refusals() {
        if !refusal.is_right() {
            let text = format!("{name}: an operation is refused though it may fit: {refusal:?}");
            return Err(Finding::Space(text));
        }
    }
    Ok(())
}

fn list(machine: &mut Machine<'_>, name: &str) -> Result<QuotaList, Finding> {
    let (engine, wanted) = (&machine.engine, Arc::new(()));
    let from = Listed::From(Fbn(0), 0);
    let asked = promise(|done| engine.quotas(name, from, &wanted, done));
    let listed = machine.wait("quotas", &asked)?;
    listed.map_err(|error| machine.refused("quotas", &error.to_string()))
}

//! Clones that are split from their parents during a life.
//!
//! A clone becomes whole at some consistency point that nobody asked for. Until then its parent
//! keeps the snapshot that it began with, and from then on not. While a split is under way nobody
//! outside can tell which it is, so what a clone forbids is not tried then.
//!
//! Invariants: what a crash takes back, the end of a split included, the engine says after it. A
//! split that has room has ended after some consistency points, at the end of a life.

use crate::machine::logs::is_neighbours;
use crate::machine::{AGGREGATE, Machine};
use crate::management::tiering::Tierings;
use crate::seed::choices::Choices;
use crate::seed::finding::Finding;
use crate::tenant::{Base, Tenant};
use aggregate::AggregateError;
use dblade::{EngineError, ServedVolume};
use platform::completion::{Promise, promise};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Of 100 requests while a clone is split, those that have the split end.
const STOP_PERCENT: u64 = 25;
/// Of 100 splits, those that have a rate.
const RATE_PERCENT: u64 = 30;
/// Consistency points in which a split has ended that has room.
const POINTS_MAX: u32 = 64;

/// What was asked for, and what came of it.
#[derive(Default)]
pub struct Splits {
    /// A request that is not answered.
    pub under_way: Option<Promise<Result<(), EngineError>>>,
    /// Clones of which nobody can tell whether they are whole.
    pub doubtful: BTreeSet<String>,
    /// What parents need no longer, unless a crash takes that back: the parent, and what it kept.
    pub freed: Vec<(String, Base)>,
}

impl Splits {
    /// The engine that was asked is no more.
    pub fn forget(&mut self) {
        self.under_way = None;
    }

    /// Whether a request is not answered yet.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }
}

/// The clones of the aggregate under test.
fn clones(machine: &Machine<'_>) -> Vec<Arc<ServedVolume>> {
    let mut clones = machine.engine.volumes();
    clones.retain(|one| one.origin().is_some() && !is_neighbours(&one.name()));
    clones
}

fn is_splitting(served: &ServedVolume) -> bool {
    served.aggregate.is_splitting(served.environment.volume)
}

/// What of a life has to do with splits.
pub struct Splitting<'l, 'a> {
    /// The machine.
    pub machine: &'l mut Machine<'a>,
    /// What happens beside operations.
    pub events: &'l mut Choices,
    /// The volumes that clients work on.
    pub tenants: &'l mut Vec<Tenant>,
    /// What was asked for.
    pub splits: &'l mut Splits,
    /// What may lie in objects.
    pub tierings: &'l mut Tierings,
    /// The volume that is being deleted, if one is.
    pub going: Option<String>,
}

impl Splitting<'_, '_> {
    /// Has a clone split, or a split end.
    pub fn change(&mut self) {
        if self.splits.is_under_way() || self.machine.aggregate().is_none() {
            return;
        }
        let clones = clones(self.machine);
        if clones.is_empty() {
            return;
        }
        let clone = &clones[self.events.index(clones.len())];
        let name = clone.name();
        let engine = Arc::clone(&self.machine.engine);
        if is_splitting(clone) {
            if self.events.chance(STOP_PERCENT) {
                self.machine.trace.note(format!("the split of {name} is to end"));
                self.machine.trace.meet("split: stopped");
                self.splits.under_way = Some(promise(|done| engine.stop_split(&name, done)));
            }
            return;
        }
        let rate = self.events.chance(RATE_PERCENT).then(|| 1 << (8 + self.events.below(16)));
        self.machine.trace.note(format!("split {name}, rate {rate:?}"));
        if let Some(origin) = clone.origin() {
            self.tierings.inherit(clone.environment.volume, origin.parent);
        }
        bases_of(self.tenants, &name).for_each(|base| base.is_certain = false);
        self.splits.doubtful.insert(name.clone());
        self.splits.under_way = Some(promise(|done| engine.split_clone(&name, rate, done)));
    }

    /// Takes in what was answered, and which clones are whole.
    pub fn poll(&mut self) -> Result<(), Finding> {
        let outcome = self.splits.under_way.as_ref().and_then(|one| one.lock().take());
        if let Some(outcome) = outcome {
            self.splits.under_way = None;
            match outcome {
                Ok(()) => self.machine.trace.meet("split: answered"),
                Err(EngineError::Aggregate(AggregateError::Refused(why))) => {
                    // There is no room, or the clone was deleted, or is whole.
                    self.machine.trace.note(format!("refused: {why}"));
                    self.machine.trace.meet("split: refused");
                }
                Err(EngineError::NotFound { .. }) => {}
                Err(error) => return Err(self.machine.refused("split", &error.to_string())),
            }
        }
        if self.splits.is_under_way() || self.machine.aggregate().is_none() {
            return Ok(());
        }
        for name in self.splits.doubtful.clone() {
            let Some(served) = self.machine.engine.volume_named(&name) else { continue };
            if served.origin().is_none() {
                self.become_whole(&name);
            } else if is_splitting(&served) {
                continue;
            } else if self.going.as_ref() != Some(&name) {
                bases_of(self.tenants, &name).for_each(|base| base.is_certain = true);
            }
            self.splits.doubtful.remove(&name);
        }
        Ok(())
    }

    fn become_whole(&mut self, clone: &str) {
        self.machine.trace.note(format!("{clone} was split"));
        self.machine.trace.meet("split: a clone is whole");
        for tenant in &mut *self.tenants {
            let parent = tenant.name.clone();
            let freed = tenant.bases.extract_if(.., |base| base.clone == clone);
            self.splits.freed.extend(freed.map(|base| (parent.clone(), base)));
            tenant.is_clone &= tenant.name != clone;
        }
    }

    /// After a crash: the engine says which clones are whole.
    pub fn recover(&mut self) -> Result<(), Finding> {
        self.splits.doubtful.clear();
        for (parent, base) in std::mem::take(&mut self.splits.freed) {
            let served = self.machine.engine.volume_named(&base.clone);
            if served.is_none_or(|clone| clone.origin().is_none()) {
                continue;
            }
            self.machine.trace.meet("crash: before a clone is whole");
            let mut tenants = self.tenants.iter_mut();
            let clone = base.clone.clone();
            match tenants.find(|tenant| tenant.name == parent) {
                Some(tenant) => tenant.bases.push(Base { is_certain: true, ..base }),
                None => return Err(Finding::Space(format!("{clone} has lost its parent"))),
            }
            let clone = self.tenants.iter_mut().find(|tenant| tenant.name == clone);
            clone.into_iter().for_each(|tenant| tenant.is_clone = true);
        }
        let mut volumes = self.machine.engine.volumes();
        volumes.retain(|served| !is_neighbours(&served.name()));
        for served in volumes {
            let is_base = |base: &Base| base.clone == served.name();
            let is_known = self.tenants.iter().any(|tenant| tenant.bases.iter().any(is_base));
            if served.origin().is_some() && is_splitting(&served) {
                self.machine.trace.meet("split: goes on after a start");
                bases_of(self.tenants, &served.name()).for_each(|base| base.is_certain = false);
                self.splits.doubtful.insert(served.name());
            } else if served.origin().is_none() && is_known {
                self.become_whole(&served.name());
            }
        }
        Ok(())
    }

    /// At the end of a life: what is split is whole soon, if there is room.
    pub fn finish(&mut self) -> Result<(), Finding> {
        let is_calm = self.machine.plan.fault.is_none() && !self.machine.damages.is_any();
        for _ in 0..POINTS_MAX {
            let Some(aggregate) = self.machine.aggregate() else { return Ok(()) };
            let splits = aggregate.splits();
            if splits.is_empty() || !has_room(self.machine) {
                return Ok(());
            }
            for split in &splits {
                aggregate.limit_split(split.clone, None);
            }
            aggregate.force();
            self.machine.consistency_point()?;
            self.machine.settle()?;
            self.poll()?;
            if aggregate.splits().is_empty() {
                self.machine.trace.meet("split: ended with a life");
            }
        }
        let Some(aggregate) = self.machine.aggregate() else { return Ok(()) };
        let of =
            |named: &str| self.machine.engine.volume_named(named).map(|one| one.inherited_blocks());
        let left: Vec<_> = self.splits.doubtful.iter().map(|name| (name, of(name))).collect();
        match is_calm && !aggregate.splits().is_empty() {
            true => Err(Finding::Space(format!("splits do not end in {AGGREGATE}: {left:?}"))),
            false => Ok(()),
        }
    }
}

/// Whether there is room for what is left to copy, and for who copies.
fn has_room(machine: &Machine<'_>) -> bool {
    let left: u64 = clones(machine).iter().map(|clone| clone.inherited_blocks()).sum();
    let room = machine.aggregate().map_or(0, |one| one.parts.shared.budget.free_blocks());
    room > 2 * left + 2048
}

fn bases_of<'t>(tenants: &'t mut [Tenant], clone: &str) -> impl Iterator<Item = &'t mut Base> {
    let all = tenants.iter_mut().flat_map(|tenant| &mut tenant.bases);
    all.filter(move |base| base.clone == clone)
}

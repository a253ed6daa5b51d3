//! A round's work: operations, consistency points, time, volumes, disks, until all is done.

use super::Life;
use super::volumes::Change;
use crate::faults::damage::damage;
use crate::plan::Growth;
use crate::seed::choices::{Choices, Purpose};
use crate::seed::finding::Finding;
use crate::seed::reduction::Calm;
use crate::tenant::Tenant;
use crate::tenant::history::Moment;
use platform::completion::{Promise, promise};
use std::collections::BTreeMap;

/// A consistency point that was asked for, and where that stands in each volume's history.
pub(super) struct Point {
    moments: BTreeMap<String, Moment>,
    committed: Promise<Result<(), aggregate::AggregateError>>,
}

impl Life<'_> {
    /// Operations, consistency points, time, volumes, until all is done.
    pub(super) fn work(&mut self) -> Result<(), Finding> {
        let mut left = self.machine.plan.operations;
        let Self { machine, neighbours, online_check, removals, log_faults, seed, .. } = self;
        neighbours.begin_round(machine);
        online_check.begin(machine, *seed, removals.is_under_way());
        log_faults.begin_round(machine);
        let mut idle = 0;
        loop {
            let mut is_busy = false;
            if left > 0 && self.machine.choices.chance(25) && self.start_operation()? {
                left -= 1;
                is_busy = true;
            }
            let event = self.machine.choices.below(400);
            match event {
                0..3 => self.request_point(),
                3..6 => self.machine.pass_time(),
                6 => self.change_volumes(),
                7..9 => self.losses.lose_disk(&mut self.machine),
                9 => self.losses.replace_disk(&mut self.machine),
                10 => self.growing.grow(&mut self.machine),
                11 => self.scrubs.change(&mut self.machine),
                12 => self.losses.return_disk(&mut self.machine),
                13 => self.losses.add_spare(&mut self.machine),
                14 => self.losses.begin_outage(&mut self.machine),
                38..41 => {
                    self.removals.change(&mut self.machine, self.growing.is_under_way());
                }
                43..70 if !self.reduction.is_calm(Calm::Changes) => self.splitting().change(),
                41..43 if self.machine.plan.is_damaged => {
                    damage(&mut self.machine, &mut self.tenants, &mut self.events);
                }
                15..38 if self.machine.plan.growth == Some(Growth::Objects) => self.tier(),
                _ => is_busy |= self.machine.step(),
            }
            self.log_faults.hang(&mut self.machine);
            self.log_copies.change(&mut self.machine);
            self.log_on_disks.change(&self.machine);
            if self.removals.is_under_way() {
                self.online_check.give_up(&self.machine);
            }
            self.neighbours.live(&mut self.machine, &self.tenants)?;
            self.poll()?;
            if left == 0 && self.is_idle() && self.neighbours.is_idle() {
                return self.neighbours.heal(&mut self.machine);
            }
            if is_busy {
                idle = 0;
            } else if !self.is_idle() || !self.neighbours.is_idle() {
                self.machine.pass_time();
                idle += 1;
            }
            let Self { machine, tenants, points, change, .. } = self;
            machine.check_progress(idle / 8, || waiting(tenants, points, change.as_ref()))?;
        }
    }

    /// What has blocks cool and move.
    fn tier(&mut self) {
        let Self { machine, tierings, growing, .. } = self;
        match machine.choices.below(23) {
            0..8 => tierings.change(machine),
            8..14 => growing.grow(machine),
            _ => tierings.leap(machine),
        }
    }

    fn is_idle(&self) -> bool {
        let Self { growing, removals, change, .. } = self;
        let is_managed = change.is_some() || growing.is_under_way() || removals.is_under_way();
        let is_managed = is_managed || self.splits.is_under_way();
        !is_managed && self.points.is_empty() && self.tenants.iter().all(Tenant::is_idle)
    }

    /// Begins the life's next operation; false if it cannot be begun now.
    pub(super) fn start_operation(&mut self) -> Result<bool, Finding> {
        let number = self.next_operation;
        let mut choices = Choices::of(self.seed, Purpose::Operation, number);
        let index = choices.index(self.tenants.len().max(1));
        let Some(tenant) = self.tenants.get_mut(index) else { return Ok(self.tenants.is_empty()) };
        let is_going = self.change.as_ref().is_some_and(|change| change.deletes(&tenant.name));
        let is_skipped = self.reduction.skipped.contains(&number);
        let is_begun =
            is_skipped || is_going || tenant.start_operation(&mut self.machine, number, choices)?;
        self.next_operation += u64::from(is_begun);
        self.machine.trace.operations_asked = self.next_operation;
        Ok(is_begun)
    }

    fn request_point(&mut self) {
        let Some(aggregate) = self.machine.aggregate() else { return };
        if self.reduction.is_calm(Calm::Points) {
            return;
        }
        self.machine.trace.note("ask for a consistency point".to_owned());
        let moments =
            self.tenants.iter_mut().map(|tenant| (tenant.name.clone(), tenant.now())).collect();
        let committed = promise(|done| aggregate.request_consistency_point(Some(done)));
        self.points.push(Point { moments, committed });
    }

    /// Takes in what was answered.
    fn poll(&mut self) -> Result<(), Finding> {
        for tenant in &mut self.tenants {
            tenant.poll(&mut self.machine)?;
        }
        self.poll_points()?;
        let Self { machine, losses, growing, removals, scrubs, .. } = self;
        losses.poll_replacement(machine)?;
        growing.poll(machine)?;
        removals.poll(machine)?;
        scrubs.poll(machine)?;
        losses.poll_spares(machine)?;
        self.poll_change()?;
        self.splitting().poll()
    }

    fn poll_points(&mut self) -> Result<(), Finding> {
        for point in std::mem::take(&mut self.points) {
            let committed = point.committed.lock().take();
            match committed {
                None => self.points.push(point),
                Some(Err(error)) => {
                    return Err(self.machine.refused("consistency point", &error.to_string()));
                }
                Some(Ok(())) => {
                    self.machine.trace.note("a consistency point has committed".to_owned());
                    for tenant in &mut self.tenants {
                        if let Some(moment) = point.moments.get(&tenant.name) {
                            tenant.durable(*moment);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// What is not answered, in words.
fn waiting(tenants: &[Tenant], points: &[Point], change: Option<&Change>) -> String {
    let waiting: Vec<String> =
        tenants.iter().filter(|tenant| !tenant.is_idle()).map(Tenant::waiting).collect();
    let change = change.map(Change::describe).unwrap_or_default();
    format!("{}; {} consistency points{change}", waiting.join("; "), points.len())
}

//! Other aggregates of the node: one or two that have disks, a log and a volume of their own, are
//! worked on beside the first aggregate, and are compared with the model like it.
//!
//! In some rounds one of them is sick. *Slow*: its disks answer nothing until everything that is
//! asked of the other aggregates is done, and then answer late. *Dead*: its disks are gone; it goes
//! out of service, and comes back at the end of the round without a start of the node. Meanwhile
//! each operation on another aggregate is answered within [`STEPS_MAX`] steps: a neighbour that is
//! stuck is no reason to wait, nor to run in circles. At rest no memory of the node is dirty.
//!
//! Invariants: one neighbour is sick at a time, and none when the node stops or the power is back.
//! Their disks and logs are left alone by the faults of the first aggregate.

mod one;

use crate::machine::Machine;
use crate::plan::{Filling, Plan};
use crate::seed::choices::{Choices, Purpose};
use crate::seed::finding::Finding;
use crate::seed::lives::Lives;
use crate::seed::reduction::Calm;
use crate::tenant::Tenant;
use inspect::Inspector;
use one::{Health, Neighbour};

/// Of 100 lives in which nothing is to be filled, those with neighbours.
const NEIGHBOURS_PERCENT: u64 = 12;
/// Memory of a node with neighbours: so little that one of them can take all that is common.
const MEMORY_BYTES: [u64; 3] = [1 << 20, 1 << 20, 2 << 20];
/// Operations that are asked of a neighbour while it is stuck, at least: mostly large writes, which
/// take all the memory that they can.
const STUCK_OPERATIONS: u64 = 40;
/// Steps within which an operation is answered while a neighbour is stuck: twenty times what the
/// longest takes beside well ones.
const STEPS_MAX: u64 = 60_000;
/// Consistency points until no memory is dirty: what they leave to do in the background is in the
/// next one.
const POINTS_MAX: u32 = 4;

/// See the module.
#[derive(Default)]
pub struct Neighbours {
    seed: u64,
    /// Whether one may fall sick in a round.
    sicken: bool,
    count: usize,
    list: Vec<Neighbour>,
    choices: Option<Choices>,
    /// One may fall sick in this round.
    may_sicken: bool,
}

impl Neighbours {
    /// Those of a seed; the node's memory is smaller with them.
    #[must_use]
    pub fn choose(seed: u64, lives: &Lives, plan: &mut Plan) -> Self {
        let mut choices = Choices::of(seed, Purpose::Neighbours, 0);
        let may_have = plan.filling == Filling::Nothing
            && lives.boundary.is_none()
            && !lives.forgets
            && !lives.reduction.is_calm(Calm::Neighbours);
        let has_some = choices.chance(NEIGHBOURS_PERCENT) || lives.neighbours;
        if !may_have || !has_some {
            return Self::default();
        }
        if !lives.reduction.is_calm(Calm::Memory) {
            plan.memory_bytes = choices.pick(&MEMORY_BYTES);
        }
        Self {
            seed,
            sicken: !lives.reduction.is_calm(Calm::Fault),
            count: 1 + choices.index(2),
            choices: Some(choices),
            ..Self::default()
        }
    }

    /// Whether there are any.
    pub const fn is_any(&self) -> bool {
        self.count > 0
    }

    /// Whether those whose operations must be answered have been asked all, and are answered.
    pub fn is_idle(&self) -> bool {
        let well = self.list.iter().filter(|one| one.health == Health::Well);
        well.clone().all(|one| one.left == 0 && one.tenant.is_idle())
    }

    /// Since when one is stuck.
    fn stuck_since(&self) -> Option<u64> {
        self.list.iter().find_map(|one| match one.health {
            Health::Well | Health::Back => None,
            Health::Slow(since) | Health::Dead(since) => Some(since),
        })
    }
}

impl Neighbours {
    /// Makes the neighbours, before anything else happens.
    pub fn make(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let Some(choices) = &mut self.choices else { return Ok(()) };
        for index in 0..self.count {
            self.list.push(Neighbour::make(machine, index, choices)?);
            machine.trace.meet("neighbour: an aggregate beside the first");
        }
        Ok(())
    }

    /// A round of work begins: each neighbour gets as many operations as the first aggregate.
    pub fn begin_round(&mut self, machine: &Machine<'_>) {
        let round = machine.trace.round;
        self.choices = Some(Choices::of(self.seed, Purpose::Neighbours, round));
        self.may_sicken = self.sicken;
        for neighbour in &mut self.list {
            neighbour.left = machine.plan.operations;
        }
    }

    /// What happens beside a step of the first aggregate, which has these tenants.
    pub fn live(&mut self, machine: &mut Machine<'_>, tenants: &[Tenant]) -> Result<(), Finding> {
        let Self { list, choices, may_sicken, seed, .. } = self;
        let Some(choices) = choices.as_mut().filter(|_| !list.is_empty()) else { return Ok(()) };
        let index = choices.index(list.len());
        let is_stuck = list.iter().any(|one| one.health != Health::Well);
        let neighbour = &mut list[index];
        if *may_sicken && !is_stuck && choices.below(300) == 0 {
            *may_sicken = false;
            let step = machine.trace.step;
            let health = match choices.chance(70) {
                true => Health::Slow(step),
                false => Health::Dead(step),
            };
            machine.trace.meet(match health {
                Health::Dead(_) => "neighbour: its disks are gone",
                _ => "neighbour: its disks hang",
            });
            neighbour.set_health(machine, index, health);
            neighbour.left = neighbour.left.max(STUCK_OPERATIONS);
            if let Some(aggregate) = machine.engine.aggregate_named(&neighbour.name) {
                // A node finds out when it writes.
                aggregate.force();
                aggregate.request_consistency_point(None);
            }
        }
        // Asked often while it is stuck: it is to take all the memory that it can.
        let percent = if matches!(neighbour.health, Health::Slow(_)) { 60 } else { 20 };
        let may_be_asked = neighbour.left > 0 && neighbour.health != Health::Back;
        if may_be_asked && choices.chance(percent) {
            let number = neighbour.operations;
            let stream = (index as u64 + 1) << 32 | number;
            let own = Choices::of(*seed, Purpose::Neighbours, stream);
            if neighbour.tenant.start_operation(machine, number, own)? {
                neighbour.operations += 1;
                neighbour.left -= 1;
            }
        }
        for neighbour in list.iter_mut() {
            neighbour.tenant.poll(machine)?;
        }
        self.check_answers(machine, tenants)
    }

    /// No operation on an aggregate that is well waits for long while a neighbour is stuck.
    fn check_answers(&self, machine: &Machine<'_>, tenants: &[Tenant]) -> Result<(), Finding> {
        let Some(since) = self.stuck_since() else { return Ok(()) };
        let well = self.list.iter().filter(|one| one.health == Health::Well);
        let tenants = tenants.iter().chain(well.map(|one| &one.tenant));
        let now = machine.trace.step;
        let is_late = |tenant: &&Tenant| {
            tenant.oldest_step().is_some_and(|asked| now - asked.max(since) > STEPS_MAX)
        };
        match tenants.into_iter().find(is_late) {
            Some(tenant) => Err(Finding::Stalled {
                waiting: format!("beside a neighbour that is stuck, {}", tenant.waiting()),
            }),
            None => Ok(()),
        }
    }

    /// Everything that was asked of the others is done: whoever is stuck is well again, and what
    /// was asked of it is answered.
    pub fn heal(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        for (index, neighbour) in self.list.iter_mut().enumerate() {
            neighbour.left = 0;
            match neighbour.health {
                Health::Well => continue,
                Health::Slow(_) => {
                    let waiting = neighbour.tenant.unanswered() as u64;
                    machine.trace.meet_times("neighbour: operations that waited for it", waiting);
                    neighbour.set_health(machine, index, Health::Well);
                }
                Health::Dead(_) => {
                    machine.drive_until("a neighbour to be closed", |machine| {
                        let name = &neighbour.name;
                        machine.engine.aggregate_named(name).is_none()
                            && !machine.engine.is_closing()
                            && machine.engine.outages().iter().any(|one| one.summary.name == *name)
                    })?;
                    neighbour.tenant.poll(machine)?;
                    if neighbour.tenant.unanswered() > 0 {
                        return Err(Finding::Stalled { waiting: neighbour.tenant.waiting() });
                    }
                    neighbour.set_health(machine, index, Health::Back);
                    neighbour.open(machine)?;
                    neighbour.come_back(machine, index)?;
                }
                Health::Back => neighbour.come_back(machine, index)?,
            }
            let mut idle = 0;
            while !neighbour.tenant.is_idle() {
                idle = if machine.step() { 0 } else { idle + 1 };
                if idle > 0 {
                    machine.pass_time();
                }
                neighbour.tenant.poll(machine)?;
                machine.check_progress(idle, || neighbour.tenant.waiting())?;
            }
        }
        Ok(())
    }

    /// Everything of the neighbours is durable and as it must be, and no memory is dirty.
    pub fn rest(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let list = &mut self.list;
        if list.is_empty() {
            return Ok(());
        }
        for neighbour in list.iter_mut() {
            neighbour.commit(machine)?;
            neighbour.tenant.all_durable();
            neighbour.tenant.compare_images(machine)?;
        }
        machine.settle()?;
        for _ in 0..POINTS_MAX {
            if machine.engine.memory_blocks().1 == 0 {
                break;
            }
            machine.consistency_point()?;
            for neighbour in list.iter() {
                neighbour.commit(machine)?;
            }
            machine.settle()?;
        }
        let dirty = machine.engine.memory_blocks().1;
        if dirty > 0 {
            return Err(Finding::Space(format!("{dirty} blocks are dirty at rest")));
        }
        for neighbour in list.iter() {
            let (disks, step) = (neighbour.disks(&machine.world), machine.trace.step);
            let mut drive = || machine.drive();
            let report = Inspector::open(disks, &mut drive).and_then(|mut one| one.check());
            machine.trace.step = step;
            let report = report.map_err(|error| Finding::Media(error.to_string()))?;
            if !report.is_clean() {
                return Err(Finding::Media(format!("{}: {report}", neighbour.name)));
            }
        }
        Ok(())
    }

    /// After a start all neighbours are well, and are opened.
    pub fn open(&mut self, machine: &mut Machine<'_>, is_crash: bool) -> Result<(), Finding> {
        for (index, neighbour) in self.list.iter_mut().enumerate() {
            neighbour.left = 0;
            neighbour.set_health(machine, index, Health::Well);
            let recovery = neighbour.open(machine)?;
            if !is_crash && (!recovery.clean || recovery.replayed > 0) {
                return Err(Finding::Listing {
                    what: format!("recovery of {} after a clean stop", neighbour.name),
                    expected: "clean, nothing to replay".to_owned(),
                    found: format!("{recovery:?}"),
                });
            }
            neighbour.recover(machine)?;
        }
        machine.settle()
    }
}

//! A seed's life: a node is made, works in rounds, is cut off or stopped, comes back, is checked,
//! and works on.
//!
//! A round is work, then rest with a consistency point, then sometimes a clean stop; the power may
//! go at any moment of it that the seed chose, or of the node's creation. After each stop of either
//! kind, and at rest, the trees of all volumes and of all their snapshots are compared with the
//! model's, the media are read by the independent reader, and nothing may be promised any more.
//!
//! Fails: the first [`Finding`].

use crate::choices::{Choices, Purpose};
use crate::cut::Cut;
use crate::finding::Finding;
use crate::growth::Growth;
use crate::history::Moment;
use crate::kills::Kills;
use crate::log_faults::LogFaults;
use crate::machine::{Machine, Promise, promise};
use crate::media::check_media;
use crate::neighbours::Neighbours;
use crate::plan::{Fault, Plan};
use crate::reduction::{Calm, Reduction};
use crate::run::{FrontEnd, Lives};
use crate::slots::SlotFaults;
use crate::space::{check_lost, check_promises};
use crate::tenant::Tenant;
use crate::trace::Trace;
use crate::volumes::Change;
use std::collections::BTreeMap;

/// A consistency point that was asked for, and where that stands in each volume's history.
struct Point {
    moments: BTreeMap<String, Moment>,
    committed: Promise<Result<(), aggregate::AggregateError>>,
}

/// See the module.
pub(crate) struct Life<'a> {
    pub machine: Machine<'a>,
    /// How rounds end, and what happens beside operations.
    pub events: Choices,
    pub seed: u64,
    pub reduction: Reduction,
    pub tenants: Vec<Tenant>,
    pub change: Option<Change>,
    pub next_name: u32,
    /// The number of the next operation in this life.
    pub next_operation: u64,
    points: Vec<Point>,
    /// The other aggregates of the node.
    pub neighbours: Neighbours,
    /// Which ends are kills.
    pub kills: Kills,
}

/// Where the one cut of a life is that is lived for its boundaries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BoundaryCut {
    /// Nowhere: the life only counts its boundaries.
    Nowhere,
    /// At this one.
    At(u64),
}

/// Lives a seed's life.
///
/// A life ends early, without a finding, when a block is lost, and known to be, where damage on one
/// disk and a power cut in the middle of a stripe met: parity makes good one failure.
///
/// # Errors
/// The first [`Finding`].
pub fn live(seed: u64, lives: &Lives, trace: &mut Trace) -> Result<(), Finding> {
    if lives.front_end == FrontEnd::Nfs {
        return crate::nfs::live(seed, lives, trace);
    }
    let mut life = Life::new(seed, lives, trace);
    let outcome = match lives.boundary {
        None => life.live(),
        Some(cut) => life.live_for_boundary(cut),
    };
    life.machine.count_world();
    life.machine.trace.boundaries = life.machine.world.counters().boundaries;
    life.machine.engine.halt();
    life.machine.world.clear();
    match outcome {
        Err(finding) if finding.is_known_loss() && life.machine.may_have_lost => {
            // Nothing more can be said of this life, but it is no fault of the engine.
            life.machine.trace.note(format!("lost by two failures: {finding}"));
            life.machine.trace.meet("lost: damage in a stripe that was being written at a cut");
            Ok(())
        }
        Err(finding) if life.machine.may_refuse_log(&finding) => {
            life.machine.trace.note(format!("lost by the log: {finding}"));
            life.machine.trace.meet("log: refused for good, records are lost");
            Ok(())
        }
        outcome => outcome,
    }
}

impl<'a> Life<'a> {
    fn new(seed: u64, lives: &Lives, trace: &'a mut Trace) -> Self {
        let reduction = lives.reduction.clone();
        let plan = Plan::new(&mut Choices::of(seed, Purpose::Plan, 0), lives);
        let mut plan = plan.reduced(&reduction);
        let neighbours = Neighbours::choose(seed, lives, &mut plan);
        trace.note(format!("seed {seed}: {plan}"));
        let log_faults = LogFaults::choose(seed, lives, &plan);
        let mut machine = Machine::new(seed, reduction.salt, plan, trace);
        machine.slots = SlotFaults::choose(seed, lives, &machine.plan);
        machine.log_faults = log_faults;
        Self {
            machine,
            events: Choices::of(seed, Purpose::Events, reduction.salt),
            seed,
            reduction,
            tenants: Vec::new(),
            change: None,
            next_name: 0,
            next_operation: 0,
            points: Vec::new(),
            neighbours,
            kills: Kills::new(seed, lives),
        }
    }

    fn live(&mut self) -> Result<(), Finding> {
        self.make_neighbours()?;
        // Sometimes the power goes while the node is made.
        let step = self.machine.trace.step;
        let cut = self.events.chance(10).then(|| Cut::At(step + self.events.scaled(8)));
        self.machine.arm(cut.filter(|_| !self.reduction.is_calm(Calm::EarlyCuts)));
        self.begin()?;
        let rounds = self.machine.plan.rounds;
        for round in 1..=rounds {
            self.machine.trace.round = round;
            self.events =
                Choices::of(self.seed, Purpose::Events, round << 32 | self.reduction.salt);
            self.round(round == rounds)?;
        }
        let finished = self.finish();
        if finished.is_ok() {
            return Ok(());
        }
        // A log that fails, or an outage, may come in between.
        self.after(finished)?;
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Finding> {
        self.machine.finish_removal()?;
        self.scrub_at_end()
    }

    /// The node is made, works for one round, rests, stops and starts; the power goes once, at a
    /// boundary.
    fn live_for_boundary(&mut self, cut: BoundaryCut) -> Result<(), Finding> {
        if let BoundaryCut::At(boundary) = cut {
            self.machine.trace.boundary_cut = Some(boundary);
            self.machine.arm(Some(Cut::AtBoundary(boundary)));
        }
        self.begin()?;
        self.machine.trace.round = 1;
        let done = self.work().and_then(|()| self.rest()).and_then(|()| self.stop());
        self.after(done)
    }

    /// Makes the aggregate and its first volumes, through a power cut if there is one.
    fn begin(&mut self) -> Result<(), Finding> {
        let made = self.machine.create_aggregate(false);
        if let Err(Finding::PowerCut) = made {
            self.machine.trace.meet("cut: while the aggregate is made");
            self.cut_power();
            self.recover_creation()?;
            self.open_neighbours(true)?;
        } else {
            made?;
            self.tenants_of_aggregate()?;
        }
        let made = self.make_volumes();
        self.after(made)?;
        self.make_volumes()
    }

    /// After something that a power cut may have ended.
    pub fn after(&mut self, outcome: Result<(), Finding>) -> Result<(), Finding> {
        match outcome {
            Err(Finding::PowerCut) => {
                self.cut_power();
                self.recover(true)
            }
            Err(Finding::Outage) => self.sit_out(),
            outcome => outcome,
        }
    }

    pub fn cut_power(&mut self) {
        // Disks may go with the power, all that may.
        while self.events.chance(40) && self.machine.lose_disk_with_power() {}
        self.cut_or_kill();
    }

    fn round(&mut self, is_last: bool) -> Result<(), Finding> {
        if self.machine.trace.round > 1 || self.events.chance(50) {
            self.machine.begin_fault();
        }
        if self.machine.has_sick_disk() && self.events.chance(50) {
            self.machine.add_spare();
        }
        let way = self.events.below(10);
        // Damage that the engine made good, or made permanent, shows when all is read again after
        // a clean stop: a cut in a stripe that is damaged may lose blocks.
        let damages = self.machine.plan.fault.is_some_and(|(_, fault)| fault.damages());
        let is_stopped = way == 9 || damages && (way > 5 || self.machine.trace.round == 1);
        let is_cut =
            way < 7 && !is_stopped && (is_last || !self.reduction.is_calm(Calm::EarlyCuts));
        let step = self.machine.trace.step;
        let cut = is_cut.then(|| Cut::choose(&mut self.events, step));
        self.machine.arm(cut);
        let done = self.work().and_then(|()| self.rest());
        let done = done.and_then(|()| if is_stopped { self.stop() } else { Ok(()) });
        // Sometimes the cut comes with nothing under way.
        let is_cut_at_rest = !is_stopped && self.events.chance(30);
        let at_rest = if is_cut_at_rest { Err(Finding::PowerCut) } else { Ok(()) };
        let done = done.and(at_rest);
        self.after(done)?;
        self.machine.arm(None);
        Ok(())
    }

    /// Operations, consistency points, time, volumes, until all is done.
    fn work(&mut self) -> Result<(), Finding> {
        let mut left = self.machine.plan.operations;
        self.begin_beside();
        self.begin_check();
        self.machine.begin_log_fault();
        let mut idle = 0;
        loop {
            let mut is_busy = false;
            if left > 0 && self.machine.choices.chance(25) && self.start_operation()? {
                left -= 1;
                is_busy = true;
            }
            match self.machine.choices.below(400) {
                0..3 => self.request_point(),
                3..6 => self.machine.pass_time(),
                6 => self.change_volumes(),
                7..9 => self.machine.lose_disk(),
                9 => self.machine.replace_disk(),
                10 => self.machine.grow(),
                11 => self.machine.change_scrub(),
                12 => self.machine.return_disk(),
                13 => self.machine.add_spare(),
                14 => self.machine.begin_outage(),
                38..41 => self.machine.remove_group(),
                41..43 if self.machine.plan.is_damaged => self.damage(),
                15..38 if self.machine.plan.growth == Some(Growth::Objects) => self.tier(),
                _ => is_busy |= self.machine.step(),
            }
            self.machine.hang_log();
            self.machine.give_up_check();
            self.live_beside()?;
            self.poll()?;
            if left == 0 && self.is_idle() && self.is_idle_beside() {
                return self.heal_neighbours();
            }
            if is_busy {
                idle = 0;
            } else if !self.is_idle() || !self.is_idle_beside() {
                self.machine.pass_time();
                idle += 1;
            }
            let Self { machine, tenants, points, change, .. } = self;
            machine.check_progress(idle / 8, || waiting(tenants, points, change.as_ref()))?;
        }
    }

    /// What has blocks cool and move.
    fn tier(&mut self) {
        match self.machine.choices.below(23) {
            0..8 => self.machine.change_tiering(),
            8..14 => self.machine.grow(),
            _ => self.machine.leap(),
        }
    }

    fn is_idle(&self) -> bool {
        let Self { machine, change, .. } = self;
        let is_managed = change.is_some() || machine.is_growing() || machine.is_removing();
        !is_managed && self.points.is_empty() && self.tenants.iter().all(Tenant::is_idle)
    }

    /// Begins the life's next operation; false if it cannot be begun now.
    pub fn start_operation(&mut self) -> Result<bool, Finding> {
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
        self.machine.poll_replacement()?;
        self.machine.poll_growth()?;
        self.machine.poll_removal()?;
        self.machine.poll_scrub()?;
        self.machine.poll_spares()?;
        self.poll_change()
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

    /// Everything comes to rest, is durable, and is checked.
    fn rest(&mut self) -> Result<(), Finding> {
        if self.machine.plan.fault.is_some_and(|(_, fault)| fault == Fault::Forgets) {
            self.machine.end_fault();
        }
        self.machine.rest_for_days()?;
        self.machine.consistency_point()?;
        self.machine.drive_until("a lost disk", |machine| !machine.has_recent_loss())?;
        self.check_damage()?;
        for tenant in &mut self.tenants {
            tenant.all_durable();
            tenant.compare_images(&mut self.machine)?;
        }
        self.rest_beside()?;
        self.machine.settle()?;
        self.machine.check_growth()?;
        self.machine.check_tiering()?;
        self.machine.check_health()?;
        check_promises(&mut self.machine)?;
        check_lost(&self.machine)?;
        self.machine.check_pinned()?;
        check_media(&mut self.machine)
    }

    /// A clean stop, and a start.
    fn stop(&mut self) -> Result<(), Finding> {
        self.machine.trace.note("stop".to_owned());
        self.machine.remember_errors();
        let engine = &self.machine.engine;
        let stopped = promise(|done| engine.stop(done));
        let stopped = self.machine.wait("stop", &stopped)?;
        if let Err(error) = stopped {
            return Err(self.machine.refused("stop", &error.to_string()));
        }
        self.cut_power();
        self.recover(false)
    }

    /// Nobody waits any more for what was refused in an outage.
    pub fn poll_refused(&mut self) {
        self.points.clear();
    }

    /// What was asked for beside operations is forgotten with the engine that was asked.
    pub fn forget_points(&mut self) {
        self.points.clear();
    }
}

/// What is not answered, in words.
fn waiting(tenants: &[Tenant], points: &[Point], change: Option<&Change>) -> String {
    let waiting: Vec<String> =
        tenants.iter().filter(|tenant| !tenant.is_idle()).map(Tenant::waiting).collect();
    let change = change.map(Change::describe).unwrap_or_default();
    format!("{}; {} consistency points{change}", waiting.join("; "), points.len())
}

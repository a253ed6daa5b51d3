//! A seed's life: a node is made, works in rounds, is cut off or stopped, comes back, is checked,
//! and works on.
//!
//! A round is work, then rest with a consistency point, then sometimes a clean stop; the power may
//! go at any moment of it that the seed chose, or of the node's creation. After each stop of either
//! kind, and at rest, the trees of all volumes and of all their snapshots are compared with the
//! model's, the media are read by the independent reader, and nothing may be promised any more.
//!
//! This file, `work`, `recovery`, `outage`, `volumes` and `lacking` are one actor, which any of
//! them may end or begin anew; `neighbours` and `kills` know nothing of it.
//!
//! Fails: the first [`Finding`].

mod kills;
mod lacking;
mod neighbours;
mod outage;
mod recovery;
mod volumes;
mod work;

use crate::checks::media::check_media;
use crate::checks::quotas::Quotas;
use crate::checks::space::{check_guarantees, check_lost, check_promises};
use crate::faults::damage::check_damage;
use crate::faults::lacking::Lacking;
use crate::faults::log_copies::LogCopies;
use crate::faults::log_faults::LogFaults;
use crate::faults::log_on_disks::LogOnDisks;
use crate::faults::losses::Losses;
use crate::faults::sickness::{ErrorsKept, check_health};
use crate::faults::slots::SlotFaults;
use crate::machine::Machine;
use crate::machine::cut::Cut;
use crate::machine::logs::LOG_COPY;
use crate::management::growth::Growing;
use crate::management::online_check::OnlineCheck;
use crate::management::removal::Removals;
use crate::management::scrubs::Scrubs;
use crate::management::splits::{Splits, Splitting};
use crate::management::tiering::Tierings;
use crate::plan::{Fault, Plan};
use crate::seed::choices::{Choices, Purpose};
use crate::seed::finding::Finding;
use crate::seed::lives::{BoundaryCut, Lives};
use crate::seed::reduction::{Calm, Reduction};
use crate::seed::trace::Trace;
use crate::tenant::Tenant;
use kills::Kills;
use neighbours::Neighbours;
use platform::completion::promise;
use std::collections::BTreeSet;
use volumes::Change;
use work::Point;

/// See the module.
struct Life<'a> {
    machine: Machine<'a>,
    /// How rounds end, and what happens beside operations.
    events: Choices,
    seed: u64,
    reduction: Reduction,
    tenants: Vec<Tenant>,
    change: Option<Change>,
    next_name: u32,
    /// The number of the next operation in this life.
    next_operation: u64,
    points: Vec<Point>,
    /// The other aggregates of the node.
    neighbours: Neighbours,
    /// Which ends are kills.
    kills: Kills,
    /// Disks that go, return and are replaced.
    losses: Losses,
    /// What is wrong with the log's disk.
    log_faults: LogFaults,
    log_copies: LogCopies,
    log_on_disks: LogOnDisks,
    /// Superblock slots that cannot be read at a start.
    slots: SlotFaults,
    /// What was known of the disks before a clean stop.
    errors: ErrorsKept,
    /// Disks that join.
    growing: Growing,
    /// Groups that leave.
    removals: Removals,
    /// Clones that are split.
    splits: Splits,
    /// What may lie in objects.
    tierings: Tierings,
    /// What was asked of the scrub.
    scrubs: Scrubs,
    /// What owners of files may use.
    quotas: Quotas,
    /// An image that is pinned.
    online_check: OnlineCheck,
    /// Features that the build lacks, at the end.
    lacking: Lacking,
}

/// Lives a seed's life.
///
/// A life ends early, without a finding, when a block is lost, and known to be, where damage on one
/// disk and a power cut in the middle of a stripe met: parity makes good one failure.
///
/// # Errors
/// The first [`Finding`].
pub fn live(seed: u64, lives: &Lives, trace: &mut Trace) -> Result<(), Finding> {
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
        Err(finding) if LogFaults::may_refuse(&life.machine, &finding) => {
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
        let log_copies = LogCopies::choose(seed, lives, &plan, log_faults.is_any());
        let has_other = log_faults.is_any() || log_copies.is_any() || neighbours.is_any();
        let log_on_disks = LogOnDisks::choose(seed, lives, &mut plan, has_other);
        let machine = Machine::new(seed, reduction.salt, plan, trace);
        if log_copies.is_any() {
            machine.world.add_disk(LOG_COPY, machine.plan.log_blocks);
        }
        let slots = SlotFaults::choose(seed, lives, &machine.plan);
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
            losses: Losses::default(),
            log_faults,
            log_copies,
            log_on_disks,
            slots,
            errors: ErrorsKept::default(),
            growing: Growing::default(),
            removals: Removals::default(),
            splits: Splits::default(),
            tierings: Tierings::default(),
            scrubs: Scrubs::default(),
            quotas: Quotas::default(),
            online_check: OnlineCheck::default(),
            lacking: Lacking::choose(seed, lives),
        }
    }

    fn live(&mut self) -> Result<(), Finding> {
        self.neighbours.make(&mut self.machine)?;
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
        if finished.is_err() {
            // A log that fails, or an outage, may come in between.
            self.after(finished)?;
            self.finish()?;
        }
        self.lack()
    }

    fn splitting(&mut self) -> Splitting<'_, 'a> {
        let going = self.change.as_ref().and_then(Change::deleted).map(str::to_owned);
        let Self { machine, events, tenants, splits, tierings, .. } = self;
        Splitting { machine, events, tenants, splits, tierings, going }
    }

    fn finish(&mut self) -> Result<(), Finding> {
        self.splitting().finish()?;
        let Self { machine, removals, scrubs, events, .. } = self;
        removals.finish(machine, scrubs)?;
        let is_looked_at = events.chance(25);
        scrubs.judge(machine, is_looked_at)
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
            self.neighbours.open(&mut self.machine, true)?;
        } else {
            made?;
            self.tenants_of_aggregate()?;
        }
        let made = self.make_volumes();
        self.after(made)?;
        self.make_volumes()
    }

    /// After something that a power cut may have ended.
    fn after(&mut self, outcome: Result<(), Finding>) -> Result<(), Finding> {
        match outcome {
            Err(Finding::PowerCut) => {
                self.cut_power();
                self.recover(true)
            }
            Err(Finding::Outage) => self.sit_out(),
            outcome => outcome,
        }
    }

    fn cut_power(&mut self) {
        // Disks may go with the power, all that may.
        let Self { machine, losses, kills, events, .. } = self;
        while events.chance(40) && losses.lose_disk_with_power(machine) {}
        kills.end(machine, events);
        self.forget_requests();
    }

    /// The engine that was asked is no more, or not in service.
    fn forget_requests(&mut self) {
        self.losses.forget();
        self.growing.forget();
        self.removals.forget();
        self.splits.forget();
        self.scrubs.forget();
    }

    fn round(&mut self, is_last: bool) -> Result<(), Finding> {
        if self.machine.trace.round > 1 || self.events.chance(50) {
            self.machine.begin_fault();
        }
        if self.machine.plan.has_sick_disk() && self.events.chance(50) {
            self.losses.add_spare(&mut self.machine);
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

    /// Everything comes to rest, is durable, and is checked.
    fn rest(&mut self) -> Result<(), Finding> {
        if self.machine.plan.fault.is_some_and(|(_, fault)| fault == Fault::Forgets) {
            self.machine.end_fault();
        }
        self.tierings.rest_for_days(&mut self.machine)?;
        self.machine.consistency_point()?;
        self.log_copies.rest(&mut self.machine)?;
        self.log_on_disks.rest(&mut self.machine)?;
        let Self { machine, losses, .. } = self;
        machine.drive_until("a lost disk", |machine| !losses.has_recent(machine))?;
        check_damage(machine, &self.tenants)?;
        for tenant in &mut self.tenants {
            tenant.all_durable();
            tenant.compare_images(&mut self.machine)?;
            tenant.compare_snapshots(&mut self.machine)?;
        }
        self.neighbours.rest(&mut self.machine)?;
        self.machine.settle()?;
        self.growing.check(&self.machine)?;
        let restored: BTreeSet<&str> = self
            .tenants
            .iter()
            .filter(|tenant| tenant.was_restored())
            .map(|tenant| tenant.name.as_str())
            .collect();
        self.tierings.check(&mut self.machine, &restored)?;
        check_health(&mut self.machine)?;
        check_promises(&mut self.machine)?;
        check_guarantees(&mut self.machine)?;
        check_lost(&self.machine)?;
        let Self { machine, quotas, tenants, events, .. } = self;
        quotas.rest(machine, tenants, events)?;
        self.online_check.finish(&mut self.machine)?;
        check_media(&mut self.machine)
    }

    /// A clean stop, and a start.
    fn stop(&mut self) -> Result<(), Finding> {
        self.machine.trace.note("stop".to_owned());
        self.errors.remember(&self.machine);
        let engine = &self.machine.engine;
        let stopped = promise(|done| engine.stop(done));
        let stopped = self.machine.wait("stop", &stopped)?;
        if let Err(error) = stopped {
            return Err(self.machine.refused("stop", &error.to_string()));
        }
        self.cut_power();
        self.recover(false)
    }
}

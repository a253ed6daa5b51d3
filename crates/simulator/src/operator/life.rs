//! A life with an operator: the aggregate and its volumes are made by calls, clients work on some
//! of the volumes, calls go on beside them, and the node ends and starts again.
//!
//! Fails: the first [`Finding`].

use super::calls::STEPS_PER_TURN;
use super::desk::{Asked, Desk};
use super::disks::DiskBook;
use super::events::EventBook;
use super::expected::{Expected, is_of_disks, is_worked_on};
use super::jobs::JobBook;
use super::names::NameBook;
use super::outside::StateFiles;
use crate::faults::losses::Losses;
use crate::machine::cut::Cut;
use crate::machine::{AGGREGATE, Machine, disk_name};
use crate::plan::{Filling, Plan, VolumePlan};
use crate::seed::choices::{Choices, Purpose};
use crate::seed::finding::Finding;
use crate::seed::lives::Lives;
use crate::seed::reduction::{Calm, Reduction};
use crate::seed::trace::Trace;
use crate::tenant::Tenant;
use admin_api::{AggregateCreate, RaidKind, Request};
use model_fs::Mix;
use std::collections::BTreeMap;
use units::BLOCK_SIZE_U64;

/// Mode of the root of a volume, which management chooses.
const ROOT_MODE: u32 = 0o755;
/// Calls of a round at least.
const CALLS_MIN: u64 = 8;
/// Calls that begin a life: volumes to work on.
const FIRST_CALLS: u64 = 6;

/// Of 100 lives on disks with parity, those that lose disks.
const LOSING_PERCENT: u64 = 50;
/// Of 100 lives, those in which more disks go at times than the group can do without.
const OUTAGE_PERCENT: u64 = 30;
/// Disks that nobody has at first.
const EXTRA_DISKS: usize = 6;

fn extra_disk(number: usize) -> String {
    format!("extra{number}")
}

fn raid_of(plan: &Plan) -> RaidKind {
    match plan.kind {
        ondisk::label::RaidKind::None => RaidKind::None,
        ondisk::label::RaidKind::Raid4 => RaidKind::Raid4,
        ondisk::label::RaidKind::Dp => RaidKind::Dp,
        ondisk::label::RaidKind::Tp => RaidKind::Tp,
    }
}

/// See the module.
pub(super) struct OperatorLife<'a> {
    pub(super) machine: Machine<'a>,
    pub(super) seed: u64,
    pub(super) reduction: Reduction,
    /// How rounds end.
    pub(super) events: Choices,
    /// What the operator types.
    pub(super) typed: Choices,
    pub(super) desk: Desk,
    pub(super) files: StateFiles,
    pub(super) events_seen: EventBook,
    pub(super) names_seen: NameBook,
    pub(super) jobs_seen: JobBook,
    pub(super) expected: Expected,
    /// The last call changed something, and nobody has looked at that.
    pub(super) is_to_look: bool,
    pub(super) tenants: Vec<Tenant>,
    /// Those whose volumes are deleted and kept, by the volume's number.
    pub(super) absent: BTreeMap<u32, Tenant>,
    /// Disks that go.
    pub(super) losses: Losses,
    pub(super) next_operation: u64,
    /// What there is if the call has happened that an outage cut off.
    pub(super) cut_off: Option<Expected>,
}

/// The node of such a life: on disks that damage nothing, with volumes as calls make them.
fn plan_of(plan: Plan, choices: &mut Choices) -> Plan {
    let parity_disks = plan.kind.parity_disks();
    let loses = parity_disks > 0 && choices.chance(LOSING_PERCENT);
    let count = if loses { 1 + choices.index(parity_disks) } else { 0 };
    let mut slots: Vec<usize> = (0..plan.disks).collect();
    let lost_disks = (0..count).map(|_| slots.swap_remove(choices.index(slots.len()))).collect();
    let has_outages = choices.chance(OUTAGE_PERCENT);
    let mix = Mix { snapshots: 0, ..plan.mix };
    Plan {
        is_traditional: false,
        filling: Filling::Nothing,
        fault: None,
        lost_disks,
        growth: None,
        is_damaged: false,
        has_outages,
        mix,
        ..plan
    }
}

/// Lives a seed's life with an operator.
///
/// # Errors
/// The first [`Finding`].
pub(crate) fn live(seed: u64, lives: &Lives, trace: &mut Trace) -> Result<(), Finding> {
    let reduction = lives.reduction.clone();
    let plan = Plan::new(&mut Choices::of(seed, Purpose::Plan, 0), lives);
    let plan = plan_of(plan, &mut Choices::of(seed, Purpose::Operator, u64::MAX));
    let plan = plan.reduced(&reduction);
    trace.note(format!("seed {seed}, operator: {plan}"));
    let machine = Machine::new(seed, reduction.salt, plan, trace);
    for number in 0..EXTRA_DISKS {
        machine.world.add_disk(&extra_disk(number), machine.plan.disk_blocks);
    }
    let names = (0..machine.plan.disks).map(disk_name);
    let disks = DiskBook::new(names.chain((0..EXTRA_DISKS).map(extra_disk)));
    let raid = raid_of(&machine.plan);
    let files = StateFiles::default();
    let desk = Desk::start(&machine, &files);
    let mut life = OperatorLife {
        machine,
        seed,
        events: Choices::of(seed, Purpose::Events, reduction.salt),
        typed: Choices::of(seed, Purpose::Operator, reduction.salt),
        reduction,
        desk,
        files,
        events_seen: EventBook::default(),
        names_seen: NameBook::default(),
        jobs_seen: JobBook::default(),
        expected: Expected::new(raid, disks),
        is_to_look: false,
        tenants: Vec::new(),
        absent: BTreeMap::new(),
        losses: Losses::default(),
        next_operation: 0,
        cut_off: None,
    };
    let outcome = life.live();
    life.machine.count_world();
    life.machine.engine.halt();
    life.machine.world.clear();
    let ended = life.desk.give_up();
    outcome.and(ended.map(drop))
}

impl OperatorLife<'_> {
    fn live(&mut self) -> Result<(), Finding> {
        self.begin()?;
        let rounds = self.machine.plan.rounds;
        for round in 1..=rounds {
            self.machine.trace.round = round;
            self.round()?;
        }
        self.end_aggregate()
    }

    /// Makes the aggregate and volumes, through power cuts if there are any.
    fn begin(&mut self) -> Result<(), Finding> {
        self.call(Asked::Open)?;
        let step = self.machine.trace.step;
        let is_cut = self.events.chance(15) && !self.reduction.is_calm(Calm::EarlyCuts);
        self.machine.arm(is_cut.then(|| Cut::At(step + self.events.scaled(9))));
        let made = self.create_aggregate(false);
        self.after(made)?;
        self.machine.arm(None);
        if !self.expected.is_made {
            self.machine.trace.meet("operator: the aggregate is made again after a cut");
            self.create_aggregate(true)?;
        }
        for _ in 0..FIRST_CALLS {
            let request = self.typist().volume_to_begin_with();
            self.call(Asked::Request(Box::new(request)))?;
        }
        Ok(())
    }

    fn create_aggregate(&mut self, force: bool) -> Result<(), Finding> {
        let has_spare = self.expected.raid != RaidKind::None && self.typed.chance(30);
        let disks = (0..self.machine.plan.disks).map(disk_name).collect();
        let create = AggregateCreate {
            spares: if has_spare { vec![extra_disk(0)] } else { Vec::new() },
            force,
            ..AggregateCreate::new(AGGREGATE, disks, self.expected.raid)
        };
        self.call(Asked::Request(Box::new(Request::AggregateCreate(create))))
    }

    /// Work, rest, and an end at any moment of both, or after them.
    fn round(&mut self) -> Result<(), Finding> {
        let step = self.machine.trace.step;
        let is_cut = self.events.chance(65) && !self.reduction.is_calm(Calm::EarlyCuts);
        self.machine.arm(is_cut.then(|| Cut::choose(&mut self.events, step)));
        let is_stopped = !is_cut && self.events.chance(50);
        let done = self.work().and_then(|()| self.rest());
        let done = done.and_then(|()| if is_stopped { self.stop() } else { Ok(()) });
        self.after(done)?;
        self.machine.arm(None);
        Ok(())
    }

    /// Operations and calls, until all is answered.
    fn work(&mut self) -> Result<(), Finding> {
        let mut operations = self.machine.plan.operations;
        let mut calls = CALLS_MIN + self.typed.below(2 * CALLS_MIN);
        let (mut idle, mut turn) = (0, 0);
        loop {
            let mut is_busy = false;
            if operations > 0 && self.machine.choices.chance(25) && self.start_operation()? {
                operations -= 1;
                is_busy = true;
            }
            match self.machine.choices.below(200) {
                0..2 => self.request_point(),
                2..4 => self.machine.pass_time(),
                4..24 if calls > 0 && !self.desk.is_busy() => {
                    self.type_next()?;
                    calls -= 1;
                    is_busy = true;
                }
                24..26 => self.lose_disk(),
                26..28 => self.find_disk(),
                28 => self.begin_outage(),
                // What has happened of such a call when it is cut off shows in what clients find.
                29..32 if self.is_volume_going() => self.begin_outage(),
                _ => is_busy |= self.machine.step(),
            }
            for tenant in &mut self.tenants {
                tenant.poll(&mut self.machine)?;
            }
            turn += 1;
            if self.desk.is_busy() && (turn >= STEPS_PER_TURN || !is_busy) {
                turn = 0;
                if let Some((asked, answer)) = self.desk.go_on()? {
                    self.check_names(&asked, &answer)?;
                    self.judge(asked, answer)?;
                }
            }
            let are_answered = self.tenants.iter().all(Tenant::is_idle) && !self.desk.is_busy();
            if operations == 0 && calls == 0 && are_answered {
                return Ok(());
            }
            if is_busy {
                idle = 0;
            } else if !are_answered {
                self.machine.pass_time();
                idle = if self.desk.is_pausing() { 0 } else { idle + 1 };
            }
            let Self { machine, tenants, desk, .. } = self;
            machine.check_progress(idle / 8, || {
                let waiting: Vec<String> = tenants.iter().map(Tenant::waiting).collect();
                format!("{}; {}", desk.waiting(), waiting.join("; "))
            })?;
        }
    }

    /// A disk goes that the aggregate can do without, if it is clear whose the disks are.
    fn lose_disk(&mut self) {
        if !self.may_lose_disks() {
            return;
        }
        let Self { machine, losses, expected, .. } = self;
        losses.lose_disk(machine);
        let known: Vec<String> = expected.disks.known().into_iter().map(str::to_owned).collect();
        let gone: Vec<&String> = known.iter().filter(|name| machine.is_gone(name)).collect();
        for name in gone {
            machine.trace.meet("operator: a disk of the aggregate goes");
            expected.disks.doubt(name);
        }
    }

    /// Whether it is clear whose the disks are, and nothing is done with them.
    fn may_lose_disks(&self) -> bool {
        let is_changing = self.desk.asked().is_some_and(|asked| match asked {
            Asked::Request(request) => is_of_disks(request),
            Asked::Open | Asked::Watch | Asked::Stop => true,
        });
        !is_changing && self.expected.disks.is_clear()
    }

    /// Whether a volume is about to leave service, or to come back.
    fn is_volume_going(&self) -> bool {
        self.desk.asked().is_some_and(|asked| match asked {
            Asked::Request(request) => matches!(
                **request,
                Request::VolumeDelete(_) | Request::VolumeUndelete(_) | Request::VolumePurge(_)
            ),
            Asked::Open | Asked::Watch | Asked::Stop => false,
        })
    }

    /// More disks go than the aggregate can do without.
    fn begin_outage(&mut self) {
        if !self.may_lose_disks() {
            return;
        }
        let Self { machine, losses, expected, .. } = self;
        losses.begin_outage(machine);
        // A spare may have the place of one before the next is missed.
        machine.away_disks().iter().for_each(|name| expected.disks.doubt(name));
    }

    /// A disk that went is there again; nobody is told.
    fn find_disk(&mut self) {
        let Self { machine, losses, .. } = self;
        if losses.has_recent(machine) || machine.is_outage() {
            return;
        }
        let found = machine.gone_disk().and_then(|name| machine.find_again(&name));
        if let Some(disk) = found {
            machine.trace.meet("operator: a disk that went is there again");
            machine.trace.note(format!("disk {} is there again", disk.name()));
        }
    }

    /// A clean stop, and a start.
    fn stop(&mut self) -> Result<(), Finding> {
        self.machine.trace.note("stop".to_owned());
        self.call(Asked::Stop)?;
        self.machine.trace.meet("operator: a clean stop");
        self.start_again(false)
    }

    /// After something that a power cut or an outage may have ended.
    pub(super) fn after(&mut self, outcome: Result<(), Finding>) -> Result<(), Finding> {
        match outcome {
            Err(Finding::PowerCut) => self.start_again(true),
            Err(Finding::Outage) => {
                // A stop that failed in it is a crash.
                let sat_out = self.sit_out();
                self.after(sat_out)
            }
            outcome => outcome,
        }
    }

    /// Begins to work on volumes that nobody works on yet.
    pub(super) fn add_tenants(&mut self) -> Result<(), Finding> {
        let Self { machine, expected, tenants, absent, .. } = self;
        for (name, volume) in &expected.volumes {
            let is_held = tenants.iter().any(|tenant| tenant.name == *name);
            if is_held || !is_worked_on(name) {
                continue;
            }
            if let Some(mut tenant) = absent.remove(&volume.number) {
                machine.trace.meet("operator: a deleted volume that is back is worked on");
                tenant.recover(machine, &[])?;
                tenants.push(tenant);
                continue;
            }
            let kind = tenants.len() % machine.plan.volumes.len().max(1);
            let Some(like) = machine.plan.volumes.get(kind).copied() else { continue };
            // Who decides whether it grows is the operator.
            let size_blocks = volume.size_bytes / BLOCK_SIZE_U64;
            let plan = VolumePlan { size_blocks, autogrow_max_blocks: 0, ..like };
            let mut tenant = Tenant::new(machine, name.clone(), plan, ROOT_MODE)?;
            // The operator makes it smaller, too.
            tenant.size = None;
            tenants.push(tenant);
        }
        Ok(())
    }

    /// Begins the life's next operation; false if it cannot be begun now.
    pub(super) fn start_operation(&mut self) -> Result<bool, Finding> {
        let number = self.next_operation;
        let mut choices = Choices::of(self.seed, Purpose::Operation, number);
        let index = choices.index(self.tenants.len().max(1));
        let going = match self.desk.asked() {
            Some(Asked::Request(request)) => match &**request {
                Request::VolumeDelete(wanted) => Some(wanted.name.as_str()),
                _ => None,
            },
            _ => None,
        };
        let Some(tenant) = self.tenants.get_mut(index) else { return Ok(self.tenants.is_empty()) };
        let is_begun = self.reduction.skipped.contains(&number)
            || going == Some(tenant.name.as_str())
            || tenant.start_operation(&mut self.machine, number, choices)?;
        self.next_operation += u64::from(is_begun);
        self.machine.trace.operations_asked = self.next_operation;
        Ok(is_begun)
    }

    fn request_point(&mut self) {
        let Some(aggregate) = self.machine.aggregate() else { return };
        if !self.reduction.is_calm(Calm::Points) {
            aggregate.request_consistency_point(None);
        }
    }
}

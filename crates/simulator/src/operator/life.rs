//! A life with an operator: the aggregate and its volumes are made by calls, clients work on some
//! of the volumes, calls go on beside them, and the node ends and starts again.
//!
//! Fails: the first [`Finding`].

use super::desk::{Asked, Desk};
use super::expected::{Expected, depends_on_scrub, is_worked_on, takes_room};
use super::outside::JobFile;
use super::turns::Answer;
use super::typing::Typist;
use super::views;
use crate::checks::media::check_media;
use crate::checks::space::{check_lost, check_promises};
use crate::machine::cut::Cut;
use crate::machine::{AGGREGATE, Machine, disk_name};
use crate::plan::{Filling, Plan, VolumePlan};
use crate::seed::choices::{Choices, Purpose};
use crate::seed::finding::Finding;
use crate::seed::lives::Lives;
use crate::seed::reduction::{Calm, Reduction};
use crate::seed::trace::Trace;
use crate::tenant::Tenant;
use admin_api::{AggregateCreate, Code, RaidKind, Reply, Request, VolumeFilter};
use model_fs::Mix;
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// Mode of the root of a volume, which management chooses.
const ROOT_MODE: u32 = 0o755;
/// Calls of a round at least.
const CALLS_MIN: u64 = 8;
/// Of 100 ends, those of the process alone.
const KILL_PERCENT: u64 = 30;
/// Cuts during one start at most.
const START_CUTS_MAX: u32 = 2;
/// Steps of the machine from one turn of a call to the next, at most.
const STEPS_PER_TURN: u32 = 8;
/// Calls that begin a life: volumes to work on.
const FIRST_CALLS: u64 = 6;

/// See the module.
pub(super) struct OperatorLife<'a> {
    machine: Machine<'a>,
    seed: u64,
    reduction: Reduction,
    /// How rounds end.
    events: Choices,
    /// What the operator types.
    typed: Choices,
    desk: Desk,
    job_file: Arc<JobFile>,
    expected: Expected,
    /// The last call changed something, and nobody has looked at that.
    is_to_look: bool,
    tenants: Vec<Tenant>,
    next_operation: u64,
}

/// The node of such a life: on disks that damage nothing, with volumes as calls make them.
fn plan_of(plan: Plan) -> Plan {
    let mix = Mix { snapshots: 0, ..plan.mix };
    Plan {
        is_traditional: false,
        filling: Filling::Nothing,
        fault: None,
        lost_disks: Vec::new(),
        growth: None,
        is_damaged: false,
        has_outages: false,
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
    let plan = plan_of(Plan::new(&mut Choices::of(seed, Purpose::Plan, 0), lives));
    let plan = plan.reduced(&reduction);
    trace.note(format!("seed {seed}, operator: {plan}"));
    let machine = Machine::new(seed, reduction.salt, plan, trace);
    let job_file = Arc::default();
    let desk = Desk::start(&machine, &job_file);
    let mut life = OperatorLife {
        machine,
        seed,
        events: Choices::of(seed, Purpose::Events, reduction.salt),
        typed: Choices::of(seed, Purpose::Operator, reduction.salt),
        reduction,
        desk,
        job_file,
        expected: Expected::default(),
        is_to_look: false,
        tenants: Vec::new(),
        next_operation: 0,
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
        Ok(())
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
        let raid = match self.machine.plan.kind {
            ondisk::label::RaidKind::None => RaidKind::None,
            ondisk::label::RaidKind::Raid4 => RaidKind::Raid4,
            ondisk::label::RaidKind::Dp => RaidKind::Dp,
            ondisk::label::RaidKind::Tp => RaidKind::Tp,
        };
        let create = AggregateCreate {
            name: AGGREGATE.to_owned(),
            disks: (0..self.machine.plan.disks).map(disk_name).collect(),
            spares: Vec::new(),
            raid,
            group_size: None,
            media: None,
            force,
            traditional: false,
            dry_run: false,
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
                _ => is_busy |= self.machine.step(),
            }
            for tenant in &mut self.tenants {
                tenant.poll(&mut self.machine)?;
            }
            turn += 1;
            if self.desk.is_busy() && (turn >= STEPS_PER_TURN || !is_busy) {
                turn = 0;
                if let Some((asked, answer)) = self.desk.go_on()? {
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

    /// Everything is durable and as it should be.
    fn rest(&mut self) -> Result<(), Finding> {
        self.machine.consistency_point()?;
        for tenant in &mut self.tenants {
            tenant.all_durable();
            tenant.compare_images(&mut self.machine)?;
        }
        self.machine.settle()?;
        self.look_around()?;
        self.machine.settle()?;
        check_promises(&mut self.machine)?;
        check_lost(&self.machine)?;
        check_media(&mut self.machine)
    }

    fn look_around(&mut self) -> Result<(), Finding> {
        let all = VolumeFilter::default();
        let looks = [
            Request::Status,
            Request::VolumeList,
            Request::SnapshotList(all.clone()),
            Request::ExportList(all),
            Request::MountList,
            Request::AggregateList,
            Request::DiskList,
        ];
        looks.into_iter().try_for_each(|look| self.call(Asked::Request(Box::new(look))))
    }

    /// A clean stop, and a start.
    fn stop(&mut self) -> Result<(), Finding> {
        self.machine.trace.note("stop".to_owned());
        self.call(Asked::Stop)?;
        self.machine.trace.meet("operator: a clean stop");
        self.start_again(false)
    }

    /// After something that a power cut may have ended.
    fn after(&mut self, outcome: Result<(), Finding>) -> Result<(), Finding> {
        match outcome {
            Err(Finding::PowerCut) => self.start_again(true),
            outcome => outcome,
        }
    }

    fn end(&mut self) {
        if self.events.chance(KILL_PERCENT) {
            self.machine.kill();
        } else {
            self.machine.cut_power(&mut self.events);
        }
    }

    /// The node ends, and starts. What was answered is there; of the call that was under way all
    /// has happened, or nothing.
    fn start_again(&mut self, is_crash: bool) -> Result<(), Finding> {
        self.end();
        let told = self.desk.clients().exports();
        let pending = self.desk.give_up()?;
        let mut after = None;
        if let Some(Asked::Request(request)) = pending {
            self.machine.trace.note(format!("cut off: {request:?}"));
            after = self.expected.after(&request).ok().filter(|after| *after != self.expected);
        }
        let is_told = after.as_ref().is_some_and(|after| {
            told == after.exports() && after.exports() != self.expected.exports()
        });
        let cuts = self.open()?;
        self.expected.mounts.clear();
        self.is_to_look = false;
        self.recover_expected(after, is_told)?;
        if !is_crash && cuts == 0 {
            let Reply::Status(status) = self.read(Request::Status)? else { return Ok(()) };
            if status.recovery.is_some() {
                return Err(Finding::Listing {
                    what: "recovery after a clean stop".to_owned(),
                    expected: "none".to_owned(),
                    found: format!("{:?}", status.recovery),
                });
            }
        }
        self.recover_tenants()?;
        self.machine.settle()?;
        if self.expected.is_made {
            self.check_clients()?;
            check_media(&mut self.machine)?;
        }
        Ok(())
    }

    /// Starts the node, through more power cuts if the seed says so; how many.
    fn open(&mut self) -> Result<u32, Finding> {
        let cuts_max = if self.reduction.is_calm(Calm::RecoveryCuts) { 0 } else { START_CUTS_MAX };
        let mut cuts = 0;
        loop {
            self.machine.arm(None);
            self.machine.start();
            self.desk = Desk::start(&self.machine, &self.job_file);
            if cuts < cuts_max && self.events.chance(20) {
                let at = self.machine.trace.step + self.events.scaled(9);
                self.machine.arm(Some(Cut::At(at)));
            }
            let opened = self.call(Asked::Open);
            self.machine.arm(None);
            if opened != Err(Finding::PowerCut) {
                return opened.map(|()| cuts);
            }
            cuts += 1;
            self.machine.trace.meet("cut: during recovery");
            self.end();
            self.desk.give_up()?;
        }
    }

    /// What is there is what was there, or what a call that was cut off would have made of it.
    fn recover_expected(&mut self, after: Option<Expected>, is_told: bool) -> Result<(), Finding> {
        let looks = [
            Request::AggregateList,
            Request::VolumeList,
            Request::SnapshotList(VolumeFilter::default()),
            Request::Status,
        ];
        let mut seen = Vec::new();
        for look in looks {
            seen.push((look.clone(), self.read(look)?));
        }
        let fits = |expected: &Expected| {
            let mut seen = seen.iter();
            seen.try_for_each(|(look, reply)| views::check(expected, look, reply))
        };
        let Some(mut after) = after else {
            return fits(&self.expected).map_err(|wrong| after_start(&wrong));
        };
        after.mounts.clear();
        match fits(&after) {
            Ok(()) => {
                self.machine.trace.meet("operator: a call that was cut off has happened");
                self.expected = after;
                Ok(())
            }
            Err(_) if is_told => {
                let text = "clients were let in by rules that a crash took back";
                Err(after_start(text))
            }
            Err(_) => {
                self.machine.trace.meet("operator: a call that was cut off has not happened");
                fits(&self.expected).map_err(|wrong| after_start(&wrong))
            }
        }
    }

    /// Those who work on volumes find what they left, or something that a crash allows.
    fn recover_tenants(&mut self) -> Result<(), Finding> {
        let Self { tenants, expected, .. } = self;
        tenants.retain(|tenant| expected.volumes.contains_key(&tenant.name));
        for tenant in &mut self.tenants {
            tenant.recover(&mut self.machine, &[])?;
        }
        self.add_tenants()
    }

    /// Begins to work on volumes that nobody works on yet.
    fn add_tenants(&mut self) -> Result<(), Finding> {
        let Self { machine, expected, tenants, .. } = self;
        for (name, volume) in &expected.volumes {
            let is_held = tenants.iter().any(|tenant| tenant.name == *name);
            if is_held || !is_worked_on(name) {
                continue;
            }
            let kind = tenants.len() % machine.plan.volumes.len().max(1);
            let Some(like) = machine.plan.volumes.get(kind).copied() else { continue };
            let plan = VolumePlan { size_blocks: volume.size_bytes / BLOCK_SIZE_U64, ..like };
            tenants.push(Tenant::new(machine, name.clone(), plan, ROOT_MODE)?);
        }
        Ok(())
    }

    /// Begins the life's next operation; false if it cannot be begun now.
    fn start_operation(&mut self) -> Result<bool, Finding> {
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

    const fn typist(&mut self) -> Typist<'_> {
        Typist { choices: &mut self.typed, expected: &self.expected }
    }

    /// The operator types something, or looks at what the last call has done.
    fn type_next(&mut self) -> Result<(), Finding> {
        let asked = if std::mem::take(&mut self.is_to_look) {
            Asked::Request(Box::new(Request::VolumeList))
        } else if self.typed.chance(10) {
            Asked::Watch
        } else {
            let request = self.typist().next();
            Asked::Request(Box::new(request))
        };
        if let Asked::Request(request) = &asked
            && let Request::VolumeDelete(wanted) = &**request
            && self.tenants.iter().any(|one| one.name == wanted.name && !one.is_idle())
        {
            // Somebody works on it just now.
            return Ok(());
        }
        self.ask(asked)
    }

    fn ask(&mut self, asked: Asked) -> Result<(), Finding> {
        self.machine.trace.note(format!("ask: {asked:?}"));
        self.desk.ask(asked)
    }

    /// Asks, and works until the answer is there.
    fn wait(&mut self, asked: Asked) -> Result<(Asked, Answer), Finding> {
        self.ask(asked)?;
        let mut idle = 0;
        loop {
            if let Some(answered) = self.desk.go_on()? {
                return Ok(answered);
            }
            let Self { machine, desk, .. } = self;
            for _ in 0..STEPS_PER_TURN {
                if machine.step() {
                    idle = 0;
                } else {
                    machine.pass_time();
                    idle = if desk.is_pausing() { 0 } else { idle + 1 };
                    break;
                }
                machine.check_progress(0, || desk.waiting())?;
            }
            machine.check_progress(idle, || desk.waiting())?;
        }
    }

    /// Asks, and judges the answer.
    fn call(&mut self, asked: Asked) -> Result<(), Finding> {
        let (asked, answer) = self.wait(asked)?;
        self.judge(asked, answer)
    }

    /// Asks for what must be told.
    fn read(&mut self, request: Request) -> Result<Reply, Finding> {
        let (asked, answer) = self.wait(Asked::Request(Box::new(request)))?;
        answer.map_err(|error| wrong(&asked, &error.to_string()))
    }

    /// Whether an answer is right; then what follows from it is expected.
    fn judge(&mut self, asked: Asked, answer: Answer) -> Result<(), Finding> {
        let Asked::Request(request) = &asked else {
            return answer.map(drop).map_err(|error| wrong(&asked, &error.to_string()));
        };
        match (self.expected.after(request), answer) {
            (Ok(after), Ok(reply)) => {
                self.machine.trace.note(format!("granted: {}", request.name()));
                views::check(&after, request, &reply).map_err(|text| wrong(&asked, &text))?;
                self.is_to_look = after != self.expected;
                self.expected = after;
            }
            (Err(code), Err(error)) if error.code == code => {
                self.machine.trace.note(format!("refused: {error}"));
                self.machine.trace.meet("operator: a call refused");
                self.is_to_look = true;
            }
            (Ok(_), Err(error)) if is_excused(request, &error) => {
                self.machine.trace.note(format!("excused: {error}"));
                self.machine.trace.meet("operator: a call refused for want of room or by a scrub");
                self.is_to_look = true;
            }
            (Ok(_), Err(error)) => {
                return Err(wrong(&asked, &format!("refused, and should not be: {error}")));
            }
            (Err(code), answer) => {
                return Err(wrong(&asked, &format!("should be refused ({code}): {answer:?}")));
            }
        }
        self.machine.trace.meet(met(request));
        let Self { tenants, expected, .. } = self;
        tenants.retain(|tenant| expected.volumes.contains_key(&tenant.name));
        self.add_tenants()?;
        self.check_clients()
    }

    /// Clients are let in by the rules that there are.
    fn check_clients(&self) -> Result<(), Finding> {
        let (expected, told) = (self.expected.exports(), self.desk.clients().exports());
        if expected == told && !self.desk.clients().is_any_away() {
            return Ok(());
        }
        let text = format!("clients are let in by {told:?}, the rules are {expected:?}");
        Err(Finding::Operator { asked: "who is let in".to_owned(), wrong: text })
    }
}

/// A call in the coverage.
const fn met(request: &Request) -> &'static str {
    match request {
        Request::VolumeCreate(_) => "operator: volume create",
        Request::VolumeDelete(_) => "operator: volume delete",
        Request::VolumeSet(_) => "operator: volume set",
        Request::SnapshotCreate(_) => "operator: snapshot create",
        Request::SnapshotDelete(_) => "operator: snapshot delete",
        Request::SnapshotRestore(_) => "operator: snapshot restore",
        Request::ExportAdd(_) | Request::ExportRemove(_) => "operator: export rules changed",
        Request::FuseMount(_) | Request::FuseUnmount(_) => "operator: mounts",
        Request::ScrubChange(_) => "operator: scrub",
        _ => "operator: other calls",
    }
}

/// Whether a call that is granted else may be refused like this.
fn is_excused(request: &Request, error: &admin_api::AdminError) -> bool {
    let is_full = error.cause.iter().any(|cause| cause.contains(" is full"));
    error.code == Code::Conflict && (depends_on_scrub(request) || is_full && takes_room(request))
}

fn wrong(asked: &Asked, wrong: &str) -> Finding {
    Finding::Operator { asked: format!("{asked:?}"), wrong: wrong.to_owned() }
}

fn after_start(wrong: &str) -> Finding {
    Finding::Operator { asked: "what is there after a start".to_owned(), wrong: wrong.to_owned() }
}

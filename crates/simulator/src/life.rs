//! A seed's life: a node is made, works in rounds, is cut off or stopped, comes back, is checked,
//! and works on.
//!
//! A round ends in one of three ways: the power goes at a moment that the seed chose; the node
//! stops cleanly; or everything comes to rest and a consistency point is made. After each of them
//! the trees of all volumes and of all their snapshots are compared with the model's, and the media
//! are read by the independent reader.
//!
//! Fails: the first [`Finding`].

use crate::choices::Choices;
use crate::finding::Finding;
use crate::history::Moment;
use crate::machine::{AGGREGATE, Machine, Promise, promise};
use crate::media::check_media;
use crate::plan::{Plan, VolumePlan};
use crate::run::Lives;
use crate::subject::snapshot_name;
use crate::tenant::Tenant;
use crate::trace::Trace;
use aggregate::Phase;
use dblade::{EngineError, VolumeRequest};
use std::collections::BTreeMap;

/// Volumes that there may be at a time.
const VOLUMES_MAX: usize = 4;
/// Mode of a flexible volume's root: everyone may make files in it.
const ROOT_MODE: u16 = 0o777;
/// Mode of the root of a traditional volume, which the engine chooses.
const TRADITIONAL_ROOT_MODE: u32 = 0o755;
/// Cuts during one recovery at most.
const RECOVERY_CUTS_MAX: u32 = 2;
/// A cut is at most about 2^this many steps after a round began.
const CUT_STEPS_BITS: u64 = 11;

/// A change of the set of volumes that was asked for.
enum Change {
    Create(String, VolumePlan, Promise<Result<(), EngineError>>),
    Delete(String, Promise<Result<(), EngineError>>),
}

/// A consistency point that was asked for, and where that stands in each volume's history.
struct Point {
    moments: BTreeMap<String, Moment>,
    committed: Promise<Result<(), aggregate::AggregateError>>,
}

struct Life<'a> {
    machine: Machine<'a>,
    tenants: Vec<Tenant>,
    change: Option<Change>,
    points: Vec<Point>,
    next_name: u32,
}

/// When the power goes.
#[derive(Clone, Copy)]
enum Cut {
    /// At a step.
    At(u64),
    /// Some steps after a consistency point, from a step on, has come to a phase.
    InPhase { phase: Phase, after: u64, steps: u64 },
}

/// How a round ended.
enum End {
    Cut,
    Rest,
}

/// Lives a seed's life.
///
/// A life ends early, without a finding, when a block is lost, and known to be, where damage on one
/// disk and a power cut in the middle of a stripe met: parity makes good one failure.
///
/// # Errors
/// The first [`Finding`].
pub fn live(seed: u64, lives: &Lives, trace: &mut Trace) -> Result<(), Finding> {
    let mut choices = Choices::new(seed);
    let plan = Plan::new(&mut choices, lives.mix);
    trace.note(format!("seed {seed}: {plan}"));
    let rounds = plan.rounds;
    let machine = Machine::new(seed, plan, choices, trace);
    let mut life =
        Life { machine, tenants: Vec::new(), change: None, points: Vec::new(), next_name: 0 };
    life.begin()?;
    for round in 1..=rounds {
        life.machine.trace.round = round;
        match life.round() {
            Ok(()) => {}
            Err(finding) if finding.is_known_loss() && life.machine.may_have_lost => {
                // Nothing more can be said of this life, but it is no fault of the engine.
                life.machine.trace.note(format!("lost by two failures: {finding}"));
                life.machine.trace.meet("lost: damage in a stripe that was being written at a cut");
                return Ok(());
            }
            Err(finding) => return Err(finding),
        }
    }
    Ok(())
}

impl Life<'_> {
    fn begin(&mut self) -> Result<(), Finding> {
        self.machine.create_aggregate()?;
        let volumes = self.machine.plan.volumes.clone();
        for plan in volumes {
            if self.machine.plan.is_traditional {
                self.add_tenant(AGGREGATE.to_owned(), plan, TRADITIONAL_ROOT_MODE)?;
                continue;
            }
            let (name, promise) = self.request_volume(plan);
            let made = self.machine.wait("create volume", &promise)?;
            self.volume_made(name, plan, made)?;
        }
        Ok(())
    }

    fn request_volume(&mut self, plan: VolumePlan) -> (String, Promise<Result<(), EngineError>>) {
        let name = format!("v{}", self.next_name);
        self.next_name += 1;
        let request = VolumeRequest {
            name: name.clone(),
            aggregate: AGGREGATE.to_owned(),
            size_blocks: plan.size_blocks,
            root: (0, 0, ROOT_MODE),
            exports: Vec::new(),
        };
        self.machine.trace.note(format!("create volume {name} of {} blocks", plan.size_blocks));
        let engine = &self.machine.engine;
        (name, promise(|done| engine.create_volume(request, done)))
    }

    fn volume_made(
        &mut self,
        name: String,
        plan: VolumePlan,
        made: Result<(), EngineError>,
    ) -> Result<(), Finding> {
        if let Err(error) = made {
            let request = format!("create volume {name}");
            return Err(Finding::Refused { request, error: error.to_string() });
        }
        self.add_tenant(name, plan, u32::from(ROOT_MODE))
    }

    fn add_tenant(&mut self, name: String, plan: VolumePlan, mode: u32) -> Result<(), Finding> {
        let tenant = Tenant::new(&mut self.machine, name, plan, mode)?;
        self.tenants.push(tenant);
        Ok(())
    }

    fn round(&mut self) -> Result<(), Finding> {
        if self.machine.trace.round > 1 || self.machine.choices.chance(50) {
            self.machine.begin_fault()?;
        }
        let way = self.machine.choices.below(10);
        let cut = (way < 7).then(|| self.choose_cut());
        match self.work(cut)? {
            End::Cut => {
                self.machine.power_cut();
                self.recover(true)
            }
            End::Rest if way == 9 => {
                self.rest()?;
                self.stop()
            }
            End::Rest => {
                self.rest()?;
                // Sometimes the cut comes with nothing under way.
                if self.machine.choices.chance(30) {
                    self.machine.power_cut();
                    return self.recover(true);
                }
                Ok(())
            }
        }
    }

    fn choose_cut(&mut self) -> Cut {
        let choices = &mut self.machine.choices;
        let steps = choices.scaled(CUT_STEPS_BITS);
        let at = self.machine.trace.step + steps;
        if choices.chance(40) {
            return Cut::At(at);
        }
        let phases = [
            Phase::Freezing,
            Phase::CleaningMembers,
            Phase::CleaningAggregate,
            Phase::Syncing,
            Phase::Committing,
        ];
        Cut::InPhase { phase: choices.pick(&phases), after: at, steps: choices.below(16) }
    }

    /// Whether the moment of the cut has come.
    fn is_cut(&self, cut: &mut Option<Cut>) -> bool {
        let step = self.machine.trace.step;
        match *cut {
            None => false,
            Some(Cut::At(at)) => step >= at,
            Some(Cut::InPhase { phase, after, steps }) => {
                let is_there = step >= after
                    && self.machine.aggregate().is_some_and(|found| found.phase() == phase);
                if is_there {
                    *cut = Some(Cut::At(step + steps));
                }
                is_there && steps == 0
            }
        }
    }

    /// Operations, consistency points, time, volumes: until all is done, or the cut.
    fn work(&mut self, mut cut: Option<Cut>) -> Result<End, Finding> {
        let mut left = self.machine.plan.operations;
        let mut idle = 0;
        loop {
            if self.is_cut(&mut cut) {
                return Ok(End::Cut);
            }
            let mut is_busy = false;
            if left > 0 && self.machine.choices.chance(25) && self.start_operation()? {
                left -= 1;
                is_busy = true;
            }
            match self.machine.choices.below(400) {
                0..3 => self.request_point(),
                3..6 => self.machine.pass_time(),
                6 => self.change_volumes(),
                _ => is_busy |= self.machine.step(),
            }
            self.poll()?;
            if left == 0 && self.is_idle() {
                return Ok(End::Rest);
            }
            if is_busy {
                idle = 0;
            } else if !self.is_idle() {
                self.machine.pass_time();
                idle += 1;
            }
            self.machine.check_progress(idle / 8, || self.waiting())?;
        }
    }

    fn waiting(&self) -> String {
        let waiting: Vec<String> =
            self.tenants.iter().filter(|tenant| !tenant.is_idle()).map(Tenant::waiting).collect();
        let points = self.points.len();
        let change = match &self.change {
            Some(Change::Create(name, ..)) => format!("; create volume {name}"),
            Some(Change::Delete(name, _)) => format!("; delete volume {name}"),
            None => String::new(),
        };
        format!("{}; {points} consistency points{change}", waiting.join("; "))
    }

    fn is_idle(&self) -> bool {
        self.change.is_none() && self.points.is_empty() && self.tenants.iter().all(Tenant::is_idle)
    }

    fn start_operation(&mut self) -> Result<bool, Finding> {
        let index = self.machine.choices.index(self.tenants.len().max(1));
        let is_deleted =
            |name: &str| matches!(&self.change, Some(Change::Delete(gone, _)) if gone == name);
        match self.tenants.get_mut(index) {
            Some(tenant) if !is_deleted(&tenant.name) => tenant.start_operation(&mut self.machine),
            _ => Ok(self.tenants.is_empty()),
        }
    }

    fn request_point(&mut self) {
        let Some(aggregate) = self.machine.aggregate() else { return };
        self.machine.trace.note("ask for a consistency point".to_owned());
        let moments =
            self.tenants.iter_mut().map(|tenant| (tenant.name.clone(), tenant.now())).collect();
        let committed = promise(|done| aggregate.request_consistency_point(Some(done)));
        self.points.push(Point { moments, committed });
    }

    /// Makes or deletes a volume now and then.
    fn change_volumes(&mut self) {
        if self.change.is_some() || self.machine.plan.is_traditional {
            return;
        }
        let choices = &mut self.machine.choices;
        if self.tenants.len() < VOLUMES_MAX && choices.chance(60) {
            let plan = self.machine.plan.another_volume(choices);
            let (name, promise) = self.request_volume(plan);
            self.change = Some(Change::Create(name, plan, promise));
        } else if self.tenants.len() > 1 {
            let index = choices.index(self.tenants.len());
            let Some(tenant) = self.tenants.get(index).filter(|tenant| tenant.is_idle()) else {
                return;
            };
            let name = tenant.name.clone();
            self.machine.trace.note(format!("delete volume {name}"));
            let engine = &self.machine.engine;
            let promise = promise(|done| engine.delete_volume(&name, done));
            self.change = Some(Change::Delete(name, promise));
        }
    }

    /// Takes in what was answered.
    fn poll(&mut self) -> Result<(), Finding> {
        for tenant in &mut self.tenants {
            tenant.poll(&mut self.machine)?;
        }
        self.poll_points()?;
        self.poll_change()
    }

    fn poll_points(&mut self) -> Result<(), Finding> {
        for point in std::mem::take(&mut self.points) {
            let committed = point.committed.lock().take();
            match committed {
                None => self.points.push(point),
                Some(Err(error)) => {
                    let request = "consistency point".to_owned();
                    return Err(Finding::Refused { request, error: error.to_string() });
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

    fn poll_change(&mut self) -> Result<(), Finding> {
        let outcome = match &self.change {
            Some(Change::Create(_, _, promise) | Change::Delete(_, promise)) => {
                promise.lock().take()
            }
            None => None,
        };
        let Some(outcome) = outcome else { return Ok(()) };
        match self.change.take() {
            Some(Change::Create(name, plan, _)) => {
                self.machine.trace.meet("volume created beside others");
                self.volume_made(name, plan, outcome)
            }
            Some(Change::Delete(name, _)) => {
                self.machine.trace.meet("volume deleted");
                if let Err(error) = outcome {
                    let request = format!("delete volume {name}");
                    return Err(Finding::Refused { request, error: error.to_string() });
                }
                self.tenants.retain(|tenant| tenant.name != name);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Everything comes to rest, is durable, and is checked.
    fn rest(&mut self) -> Result<(), Finding> {
        self.machine.consistency_point()?;
        for tenant in &mut self.tenants {
            tenant.all_durable();
            tenant.compare_images(&mut self.machine)?;
        }
        self.machine.settle()?;
        check_media(&mut self.machine)
    }

    /// A clean stop, and a start.
    fn stop(&mut self) -> Result<(), Finding> {
        self.machine.trace.note("stop".to_owned());
        let engine = &self.machine.engine;
        let stopped = promise(|done| engine.stop(done));
        let stopped = self.machine.wait("stop", &stopped)?;
        if let Err(error) = stopped {
            let request = "stop".to_owned();
            return Err(Finding::Refused { request, error: error.to_string() });
        }
        self.machine.power_cut();
        self.recover(false)
    }

    /// Opens the aggregate, through more cuts if the seed says so, and checks what is there.
    fn recover(&mut self, is_crash: bool) -> Result<(), Finding> {
        let mut cuts = 0;
        if self.machine.choices.chance(25) {
            self.machine.end_absence();
        }
        loop {
            self.machine.start();
            let opened = self.machine.open_aggregate();
            let cut = cuts < RECOVERY_CUTS_MAX && self.machine.choices.chance(20);
            let cut = cut.then(|| self.machine.trace.step + self.machine.choices.scaled(9));
            self.machine.drive_until("open aggregate", |machine| {
                opened.lock().is_some() || cut.is_some_and(|cut| machine.trace.step >= cut)
            })?;
            let opened = opened.lock().take();
            let Some(opened) = opened else {
                cuts += 1;
                self.machine.trace.meet("cut: during recovery");
                self.machine.power_cut();
                continue;
            };
            let recovery = opened.map_err(|error| Finding::Open(error.to_string()))?;
            self.machine.trace.note(format!(
                "open: clean {}, {} operations replayed",
                recovery.clean, recovery.replayed
            ));
            if recovery.replayed > 0 {
                self.machine.trace.meet("replay with records");
            }
            if !is_crash && cuts == 0 && (!recovery.clean || recovery.replayed > 0) {
                return Err(Finding::Listing {
                    what: "recovery after a clean stop".to_owned(),
                    expected: "clean, nothing to replay".to_owned(),
                    found: format!("{recovery:?}"),
                });
            }
            break;
        }
        self.points.clear();
        self.recover_volumes()?;
        for index in 0..self.tenants.len() {
            let Some(tenant) = self.tenants.get_mut(index) else { break };
            let listed = listed_snapshots(&mut self.machine, &tenant.name)?;
            tenant.recover(&mut self.machine, &listed)?;
        }
        if let Some(aggregate) = self.machine.aggregate()
            && aggregate.parts.store.status().is_degraded()
        {
            self.machine.trace.meet("open: degraded");
        }
        self.machine.settle()?;
        check_media(&mut self.machine)
    }

    /// Which volumes there are: those that there were, and those of a change under way as it likes.
    fn recover_volumes(&mut self) -> Result<(), Finding> {
        let found: Vec<String> =
            self.machine.engine.volumes().iter().map(|served| served.name.clone()).collect();
        match self.change.take() {
            Some(Change::Create(name, plan, _)) if found.contains(&name) => {
                self.machine.trace.meet("crash: while a volume is created");
                self.add_tenant(name, plan, u32::from(ROOT_MODE))?;
            }
            Some(Change::Delete(name, _)) if !found.contains(&name) => {
                self.machine.trace.meet("crash: while a volume is deleted");
                self.tenants.retain(|tenant| tenant.name != name);
            }
            _ => {}
        }
        let mut expected: Vec<String> =
            self.tenants.iter().map(|tenant| tenant.name.clone()).collect();
        expected.sort();
        if expected == found {
            return Ok(());
        }
        Err(Finding::Listing {
            what: "volumes".to_owned(),
            expected: format!("{expected:?}"),
            found: format!("{found:?}"),
        })
    }
}

/// The snapshots of operations' small domain that the engine lists, oldest first.
fn listed_snapshots(machine: &mut Machine<'_>, volume: &str) -> Result<Vec<u8>, Finding> {
    let engine = &machine.engine;
    let listed = promise(|done| engine.snapshots(volume, done));
    let listed = machine.wait("list snapshots", &listed)?.map_err(|error| Finding::Refused {
        request: format!("list snapshots of {volume}"),
        error: error.to_string(),
    })?;
    let names: Vec<&str> = listed.iter().map(|info| info.name.as_str()).collect();
    let number = |name: &&str| {
        (0..model_fs::operation::SNAPSHOT_COUNT).find(|number| snapshot_name(*number) == **name)
    };
    let numbers: Option<Vec<u8>> = names.iter().map(number).collect();
    numbers.ok_or_else(|| Finding::Listing {
        what: format!("snapshots of {volume}"),
        expected: "names of the simulator".to_owned(),
        found: format!("{names:?}"),
    })
}

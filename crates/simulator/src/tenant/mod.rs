//! A volume with everything that is known of it: the engine's and the model's side, what is in
//! flight, and the history that says what a crash may leave.
//!
//! Invariants: operations in flight at one time are independent ([`Footprint`]). The model runs an
//! operation when the engine has answered it, so it is always at the state of all answers.
//!
//! Fails: [`Finding`] when an answer is not the model's.

mod answers;
pub mod footprint;
pub mod history;
mod observed;
mod recovery;
mod scheduled;
mod snapshots;
pub mod subject;
mod workload;

use crate::checks::growth::CommittedSize;
use crate::machine::Machine;
use crate::plan::{Filling, Plan, VolumePlan};
use crate::seed::choices::Choices;
use crate::seed::finding::Finding;
pub use answers::settle;
use dblade::EngineError;
use file_service::{Durability, FileService, FsError};
use footprint::Footprint;
use history::{History, Moment};
use model_fs::executor::Pending;
use model_fs::{Image, Mismatch, Model, Operation, Runner, SnapshotAction};
use platform::completion::{Promise, promise};
use snapshots::Request;
pub use snapshots::listed_snapshots;
use subject::{EngineSubject, snapshot_request};
use workload::choose_operation;

struct InFlight {
    asked: Moment,
    operation: Operation,
    footprint: Footprint,
    wait: Wait,
    /// The machine's step when it was asked for.
    step: u64,
    /// The aggregate was away when it was asked for: it must be refused.
    is_hopeless: bool,
}

enum Wait {
    Operation(Pending),
    Snapshot(Request),
    /// Refused in an outage: like a crash it leaves open what happened.
    Refused(Option<Request>),
}

/// A snapshot that a clone began with, or is to.
pub struct Base {
    /// The snapshot.
    pub snapshot: u8,
    /// The clone's name.
    pub clone: String,
    /// The clone is there, and stays for now.
    pub is_certain: bool,
}

/// See the module.
pub struct Tenant {
    /// The volume's name.
    pub name: String,
    /// What it is like.
    pub plan: VolumePlan,
    /// The model.
    pub model: Runner<Model>,
    /// The engine's volume.
    pub subject: Runner<EngineSubject>,
    /// Live snapshots, oldest first.
    pub snapshots: Vec<u8>,
    /// Blocks of its files cannot be read: what it answers is not compared any more.
    pub is_damaged: bool,
    /// The aggregate that it is on, if not the first.
    pub(crate) neighbour: Option<usize>,
    /// Its operations are mostly large writes.
    pub fills: bool,
    /// Snapshots of schedules are taken of it, if it may delete them.
    pub has_schedule: bool,
    /// It began as a clone.
    pub is_clone: bool,
    /// Its snapshots that clones began with, or are to.
    pub bases: Vec<Base>,
    /// What was asked for and must be refused, for a clone's sake.
    refusals: Vec<(String, Promise<Result<(), EngineError>>)>,
    /// How large it is at least; `None` if it may become smaller.
    pub size: Option<CommittedSize>,
    was_restored: bool,
    /// The directory at this path is to become a quota tree, and nothing else is under way.
    tree_asked: Option<Vec<u8>>,
    history: History,
    in_flight: Vec<InFlight>,
    answered: usize,
}

impl Tenant {
    /// A new volume, empty and durable.
    pub fn new(
        machine: &mut Machine<'_>,
        name: String,
        plan: VolumePlan,
        root_mode: u32,
    ) -> Result<Self, Finding> {
        let model = Model::new(machine.service.limits(), root_mode);
        let model = Runner::model(model, plan.durability);
        let (service, has_trees) = (machine.service.clone(), machine.plan.quotas);
        let subject = EngineSubject::new(service, name.clone(), has_trees);
        let subject = Runner::new(subject, plan.durability, &mut || machine.drive());
        let subject = subject
            .map_err(|error| machine.refused(&format!("root of {name}"), &error.to_string()))?;
        let history = Self::begin_history(&name, &model, &plan)?;
        Ok(Self {
            name,
            plan,
            model,
            subject,
            snapshots: Vec::new(),
            is_damaged: false,
            neighbour: None,
            fills: false,
            has_schedule: false,
            is_clone: false,
            bases: Vec::new(),
            refusals: Vec::new(),
            size: Some(CommittedSize::default()),
            was_restored: false,
            tree_asked: None,
            history,
            in_flight: Vec::new(),
            answered: 0,
        })
    }

    /// The directory at a path is to become a quota tree.
    pub fn ask_tree(&mut self, path: &[u8]) {
        self.tree_asked = Some(path.to_vec());
    }

    /// What [`Self::ask_tree`] has said is answered: it was refused, or there was no room.
    pub fn forgo_tree(&mut self) {
        self.tree_asked = None;
    }

    /// The directory at a path has become a quota tree.
    ///
    /// # Errors
    /// The model's, if it cannot be one there.
    pub fn note_tree(&mut self, path: &[u8]) -> Result<(), FsError> {
        self.tree_asked = None;
        self.model.make_tree(path)?;
        self.history.tree(path.to_vec());
        Ok(())
    }

    /// It is a clone of a snapshot that has this image, and has the same.
    ///
    /// # Errors
    /// [`Finding::Mismatch`] if it has not.
    pub fn begin_as_clone(
        &mut self,
        machine: &mut Machine<'_>,
        (snapshot, image): (u8, &Image),
    ) -> Result<(), Finding> {
        let found = self.capture(machine)?;
        let differences = image.difference(&found);
        if !differences.is_empty() {
            let snapshot = Some(snapshot);
            let mismatch = Box::new(Mismatch::Tree { index: 0, snapshot, differences });
            return Err(Finding::Mismatch { volume: self.name.clone(), mismatch });
        }
        self.is_clone = true;
        self.subject.executor.begin_epoch(machine.trace.step);
        self.model.follow(&self.subject, &found);
        self.history = Self::begin_history(&self.name, &self.model, &self.plan)?;
        Ok(())
    }

    /// The operation, or another in its place if a clone's sake forbids it: the engine is asked to
    /// do it all the same, and is to refuse.
    fn heeding_bases(&mut self, machine: &Machine<'_>, operation: Operation) -> Operation {
        let Operation::Snapshot(action) = operation else { return operation };
        let place = |wanted: u8| self.snapshots.iter().position(|one| *one == wanted);
        let is_base = |lost: &u8| self.bases.iter().any(|base| base.snapshot == *lost);
        let (snapshot, is_forbidden) = match action {
            SnapshotAction::Create(_) => return operation,
            SnapshotAction::Delete(snapshot) => (snapshot, is_base(&snapshot)),
            SnapshotAction::Restore(snapshot) => {
                let newer = place(snapshot).and_then(|at| self.snapshots.get(at + 1..));
                (snapshot, newer.is_some_and(|newer| newer.iter().any(is_base)))
            }
        };
        if !is_forbidden {
            return operation;
        }
        // One that was asked for and is not made yet holds nothing, nor does one that goes.
        if self.bases.iter().all(|base| base.is_certain) {
            let (engine, request) = (&machine.engine, snapshot_request(action));
            let answer = promise(|done| engine.request_snapshot(&self.name, request, done));
            self.refusals.push((format!("{action:?} of {}", self.name), answer));
        }
        Operation::Snapshot(SnapshotAction::Create(snapshot))
    }

    /// Whether what clones forbid was refused, as far as it was answered.
    fn check_refusals(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        use aggregate::AggregateError::Refused;
        let mut wrong = None;
        self.refusals.retain(|(request, answer)| match answer.lock().take() {
            None => true,
            // Not for a clone's sake: the log fails, or disks are away.
            Some(Err(error)) if !matches!(error, EngineError::Aggregate(Refused(_))) => false,
            Some(Err(error)) if error.to_string().contains("clones use") => {
                machine.trace.meet("clones: what one needs is kept");
                false
            }
            outcome => {
                let error = format!("a clone needs it: it should have been refused: {outcome:?}");
                wrong = Some(Finding::Refused { request: request.clone(), error });
                false
            }
        });
        wrong.map_or(Ok(()), Err)
    }

    /// Asks for the volume to be deleted, which is to be refused: its clones need it.
    pub fn ask_to_delete(&mut self, machine: &Machine<'_>) {
        let engine = &machine.engine;
        let answer = promise(|done| engine.delete_volume(&self.name, done));
        self.refusals.push((format!("deletion of {}", self.name), answer));
    }

    /// The same on another aggregate than the first.
    #[must_use]
    pub fn beside(self, neighbour: usize) -> Self {
        Self { neighbour: Some(neighbour), ..self }
    }

    /// When the oldest operation was asked for that is not answered.
    #[must_use]
    pub fn oldest_step(&self) -> Option<u64> {
        let waiting = self.in_flight.iter().filter(|one| !matches!(one.wait, Wait::Refused(_)));
        waiting.map(|one| one.step).min()
    }

    /// Whether its log has refused anything, or may.
    const fn log_fails(&self, machine: &Machine<'_>) -> bool {
        self.neighbour.is_none() && machine.log_fails()
    }

    fn begin_history(
        name: &str,
        model: &Runner<Model>,
        plan: &VolumePlan,
    ) -> Result<History, Finding> {
        let is_logged = plan.durability == Durability::Logged;
        History::new(model, is_logged)
            .map_err(|error| Finding::Unreadable { volume: name.to_owned(), error })
    }

    /// Whether a restore of a snapshot was ever asked for: what only it held is active again.
    #[must_use]
    pub const fn was_restored(&self) -> bool {
        self.was_restored
    }

    /// How many wait for an answer.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.in_flight.iter().filter(|one| !matches!(one.wait, Wait::Refused(_))).count()
    }

    /// Whether nothing is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// What is in flight, in words.
    #[must_use]
    pub fn waiting(&self) -> String {
        let operations: Vec<_> = self.in_flight.iter().map(|one| &one.operation).collect();
        format!("{}: {operations:?}", self.name)
    }

    /// Begins an operation of the seed's choice if one can be begun now.
    /// `number` is the operation's in the life, `choices` are its own.
    pub fn start_operation(
        &mut self,
        machine: &mut Machine<'_>,
        number: u64,
        mut choices: Choices,
    ) -> Result<bool, Finding> {
        if self.in_flight.len() >= machine.plan.in_flight_max {
            return Ok(false);
        }
        let (mut plan, mut round) = (None, machine.trace.round);
        if self.fills {
            // In odd rounds it is written, in even ones removed.
            plan = Some(Plan { filling: Filling::Volumes, ..machine.plan.clone() });
            round |= 1;
        }
        let plan = plan.as_ref().unwrap_or(&machine.plan);
        let operation = choose_operation(plan, &mut choices, (number, round), &self.model.executor);
        let footprint = Footprint::of(&operation, &self.model.executor);
        // It waits until it is independent of those in flight.
        if !self.in_flight.iter().all(|one| one.footprint.is_independent_of(&footprint)) {
            return Ok(false);
        }
        let operation = self.heeding_bases(machine, operation);
        machine.trace.note(format!("{}: ask {number} {operation:?}", self.name));
        let asked = self.history.now();
        let wait = match &operation {
            Operation::Snapshot(action) => {
                self.was_restored |= matches!(action, SnapshotAction::Restore(_));
                let is_there = matches!(action, SnapshotAction::Restore(snapshot)
                    if self.snapshots.contains(snapshot));
                Wait::Snapshot(Request::ask(machine, &self.name, *action, is_there))
            }
            operation => Wait::Operation(self.subject.executor.start(operation)),
        };
        let is_hopeless = machine.is_out_of_service_of(self.neighbour);
        let step = machine.trace.step;
        self.in_flight.push(InFlight { asked, operation, footprint, wait, step, is_hopeless });
        self.poll(machine)?;
        Ok(true)
    }

    fn note_snapshot(&mut self, action: SnapshotAction) {
        match action {
            SnapshotAction::Create(snapshot) => self.snapshots.push(snapshot),
            SnapshotAction::Delete(snapshot) => self.snapshots.retain(|one| *one != snapshot),
            SnapshotAction::Restore(snapshot) => {
                if let Some(at) = self.snapshots.iter().position(|one| *one == snapshot) {
                    self.snapshots.truncate(at + 1);
                }
            }
        }
    }

    /// The moment for a consistency point that is asked for now.
    pub const fn now(&mut self) -> Moment {
        self.history.now()
    }

    /// A consistency point that was asked for at `asked` has committed.
    pub fn durable(&mut self, asked: Moment) {
        self.history.durable(asked);
    }

    /// All that was answered is durable. The history goes on: one that begins here would not know
    /// the files that are held and have no name, and they live on.
    pub fn all_durable(&mut self) {
        assert!(self.in_flight.is_empty(), "what is in flight is not durable");
        let now = self.history.now();
        self.history.durable(now);
    }
}

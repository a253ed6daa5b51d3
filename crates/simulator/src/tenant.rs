//! A volume with everything that is known of it: the engine's and the model's side, what is in
//! flight, and the history that says what a crash may leave.
//!
//! Invariants: operations in flight at one time are independent ([`Footprint`]). The model runs an
//! operation when the engine has answered it, so it is always at the state of all answers.
//!
//! Fails: [`Finding`] when an answer is not the model's.

use crate::beside::Request;
use crate::choices::Choices;
use crate::finding::Finding;
use crate::footprint::Footprint;
use crate::history::{History, Moment};
use crate::machine::Machine;
use crate::plan::{Filling, Plan, VolumePlan};
use crate::space::{check_refusal, check_room};
use crate::subject::{EngineSubject, snapshot_outcome};
use crate::workload::choose_operation;
use dblade::EngineError;
use file_service::{Caller, Durability, FileService, FsError, Hold, calls};
use model_fs::executor::Pending;
use model_fs::operation::{Fill, SLOT_COUNT};
use model_fs::{
    FileView, Image, Mismatch, Model, Observation, Operation, Runner, Slot, SnapshotAction,
    Tolerance,
};

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
        let subject = EngineSubject::new(machine.service.clone(), name.clone());
        let subject = Runner::new(subject, plan.durability, &mut || machine.drive());
        let subject = subject.map_err(|error| Finding::Refused {
            request: format!("root of {name}"),
            error: error.to_string(),
        })?;
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
            history,
            in_flight: Vec::new(),
            answered: 0,
        })
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
        machine.trace.note(format!("{}: ask {number} {operation:?}", self.name));
        let asked = self.history.now();
        let wait = match &operation {
            Operation::Snapshot(action) => {
                if let (SnapshotAction::Restore(_), None) = (action, self.neighbour) {
                    machine.tierings.note_restore(&self.name);
                }
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

    /// Takes in what was answered.
    pub fn poll(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let (log_fails, neighbour) = (self.log_fails(machine), self.neighbour);
        let mut index = 0;
        while let Some(one) = self.in_flight.get_mut(index) {
            let found = match &mut one.wait {
                Wait::Operation(pending) => self.subject.executor.poll(pending),
                Wait::Snapshot(request) => {
                    let is_restore = matches!(request.action, SnapshotAction::Restore(_));
                    let is_held = is_restore && !self.subject.executor.holds().is_empty();
                    if !is_held
                        && request.take((machine, &self.name), &mut self.model, &mut self.subject)
                    {
                        one.footprint.open_up();
                    }
                    match request.answer() {
                        None => None,
                        Some(Err(_)) if log_fails => return Err(Finding::PowerCut),
                        Some(Err(_)) if machine.is_out_of_service_of(neighbour) => {
                            let wait = std::mem::replace(&mut one.wait, Wait::Refused(None));
                            if let Wait::Snapshot(request) = wait {
                                one.wait = Wait::Refused(Some(request));
                            }
                            None
                        }
                        Some(outcome) => {
                            if outcome.is_ok() {
                                request.check_refused(&self.name)?;
                            }
                            Some(settle_snapshot(&self.name, &mut self.subject, request, &outcome)?)
                        }
                    }
                }
                Wait::Refused(_) => None,
            };
            if found.is_some()
                && one.is_hopeless
                && !matches!(one.operation, Operation::Release { .. })
                && found != Some(Observation::Failed(FsError::Offline))
            {
                return Err(Finding::Refused {
                    request: format!("{:?} while disks are away", one.operation),
                    error: format!("answered {found:?}"),
                });
            }
            match found {
                None => index += 1,
                Some(Observation::Failed(FsError::Offline)) if machine.is_outage_of(neighbour) => {
                    machine.trace.meet("outage: an operation refused");
                    one.wait = Wait::Refused(None);
                    index += 1;
                }
                // A log that failed: what came of the operation the next start will tell.
                Some(Observation::Failed(FsError::Io)) if log_fails => {
                    machine.trace.meet("log: an operation failed with it");
                    return Err(Finding::PowerCut);
                }
                Some(found) => {
                    let InFlight { asked, operation, wait, .. } = self.in_flight.remove(index);
                    let is_done = matches!(&wait, Wait::Snapshot(request) if request.is_taken);
                    self.finish(machine, (asked, is_done), operation, found)?;
                }
            }
        }
        Ok(())
    }

    fn finish(
        &mut self,
        machine: &mut Machine<'_>,
        (asked, is_done): (Moment, bool),
        operation: Operation,
        found: Observation,
    ) -> Result<(), Finding> {
        machine.trace.note(format!("{}: {operation:?} -> {found:?}", self.name));
        machine.trace.operations += 1;
        self.answered += 1;
        if matches!(found, Observation::Failed(FsError::NoSpace)) {
            machine.trace.meet("no space");
            check_refusal(machine, &self.name)?;
        }
        check_room(machine)?;
        let is_restored = matches!(operation, Operation::Snapshot(SnapshotAction::Restore(_)));
        let holds = if is_restored { self.held_over(&found) } else { Vec::new() };
        if is_restored && found.is_success() && !is_done {
            self.subject.subject.settle(Ok(()));
            self.subject.run(&operation, &mut || {});
        }
        // What a freeze has taken in the model has done then.
        if !is_done {
            self.follow_answer(&operation, &found)?;
        }
        if let (Operation::Snapshot(action), true) = (&operation, found.is_success()) {
            self.note_snapshot(*action);
            machine.trace.meet(match action {
                SnapshotAction::Create(_) => "snapshot created",
                SnapshotAction::Delete(_) => "snapshot deleted",
                SnapshotAction::Restore(_) => "snapshot restored",
            });
        }
        self.history.answered(asked, operation, found);
        self.close_held_over(machine, &holds)
    }

    /// The files that were held before a restore that was answered.
    fn held_over(&self, found: &Observation) -> Vec<Hold> {
        if found.is_success() { self.subject.executor.holds() } else { Vec::new() }
    }

    /// The model closes all files in a restore, and the engine does not: their holders close them.
    /// Some are held anew before, by whoever opens the same file.
    fn close_held_over(
        &mut self,
        machine: &mut Machine<'_>,
        holds: &[Hold],
    ) -> Result<(), Finding> {
        if holds.is_empty() {
            return Ok(());
        }
        assert!(self.in_flight.is_empty(), "a restore with files held is alone");
        machine.trace.meet_times("snapshots: files held over a restore", holds.len() as u64);
        for slot in (0..SLOT_COUNT).map(Slot) {
            let handle = self.subject.executor.handle(slot);
            if holds.iter().any(|hold| hold.file == handle) && slot.0 % 2 == 0 {
                let operation = Operation::Hold { file: slot };
                let asked = self.history.now();
                let mut pending = self.subject.executor.start(&operation);
                let mut found = None;
                machine.drive_until("a hold after a restore", |_| {
                    found = self.subject.executor.poll(&mut pending);
                    found.is_some()
                })?;
                let Some(found) = found else { unreachable!("it was driven until then") };
                // An orphan of the snapshot is there for its holders, until they close it.
                if found.is_success() && !self.is_in_model(slot) {
                    self.subject.executor.run(&Operation::Release { file: slot }, &mut || {});
                    continue;
                }
                self.follow_answer(&operation, &found)?;
                self.history.answered(asked, operation, found);
            }
        }
        for hold in holds {
            machine.service.release(
                &Caller::root(),
                calls::ReleaseHold { hold: *hold },
                Box::new(drop),
            );
        }
        machine.settle()
    }

    fn is_in_model(&self, slot: Slot) -> bool {
        let (service, handle) = (self.model.executor.service(), self.model.executor.handle(slot));
        let found = model_fs::answer::Answer::to(|done| {
            service.attributes(&Caller::root(), calls::GetAttributes { file: handle }, done)
        })
        .take();
        matches!(found, Ok(Ok(_)))
    }

    /// The model does what the engine has answered.
    fn follow_answer(&mut self, operation: &Operation, found: &Observation) -> Result<(), Finding> {
        if self.is_damaged {
            self.keep_up(operation, found);
        } else if !is_left_out(operation, found) {
            self.compare(operation, found)?;
        }
        Ok(())
    }

    /// Of a volume with damage: the model does what the engine did, as a base for choices.
    fn keep_up(&mut self, operation: &Operation, found: &Observation) {
        if found.is_success() {
            let _ = self.model.run(operation, &mut || {});
        }
    }

    /// The model does the same, and must see the same.
    fn compare(&mut self, operation: &Operation, found: &Observation) -> Result<(), Finding> {
        let mut same = operation.clone();
        if let (Operation::Write { fill, .. }, Observation::Wrote { count, .. }) =
            (&mut same, found)
        {
            *fill = Fill { length: fill.length.min(*count), ..*fill };
        }
        let expected = self.model.run(&same, &mut || {});
        if Tolerance::WIDE.agrees(&without_atime(&expected), &without_atime(found)) {
            return Ok(());
        }
        let mismatch = Mismatch::Answer {
            index: self.answered,
            operation: Box::new(operation.clone()),
            expected: Box::new(expected),
            found: Box::new(found.clone()),
        };
        Err(Finding::Mismatch { volume: self.name.clone(), mismatch: Box::new(mismatch) })
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

    /// The tree that the engine shows.
    pub fn capture(&self, machine: &mut Machine<'_>) -> Result<Image, Finding> {
        let image = self.subject.image(&mut || machine.drive());
        image.map_err(|error| {
            machine.excused(Finding::Unreadable { volume: self.name.clone(), error })
        })
    }

    /// Compares the tree and all snapshots with the model's.
    pub fn compare_images(&self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        if self.is_damaged {
            return Ok(());
        }
        let mismatch = |mismatch| Finding::Mismatch {
            volume: self.name.clone(),
            mismatch: Box::new(mismatch),
        };
        model_fs::compare_images(&self.model, &self.subject, self.answered, &mut || machine.drive())
            .map_err(|found| machine.excused(mismatch(found)))
    }

    /// After a restart: whether what is there is allowed; then model and engine go on from it.
    /// `listed` are the snapshots that the engine has, oldest first.
    pub fn recover(&mut self, machine: &mut Machine<'_>, listed: &[u8]) -> Result<(), Finding> {
        self.subject.subject.restarted(&machine.service);
        self.subject.executor.restarted(machine.service.clone());
        let in_flight: Vec<_> = std::mem::take(&mut self.in_flight);
        if self.is_damaged {
            return self.recover_damaged(listed);
        }
        let found = self.capture(machine)?;
        machine.trace.note(format!("{}: found {} paths", self.name, found.nodes.len()));
        let mut operations = Vec::new();
        let mut request = None;
        for one in in_flight {
            // That a snapshot is made or deleted changes nothing of the files.
            let is_restore =
                matches!(one.operation, Operation::Snapshot(SnapshotAction::Restore(_)));
            if is_restore || !matches!(one.operation, Operation::Snapshot(_)) {
                operations.push((one.asked, one.operation));
            }
            match one.wait {
                Wait::Snapshot(one) | Wait::Refused(Some(one)) => request = Some(one),
                Wait::Refused(None) | Wait::Operation(_) => {}
            }
        }
        self.recover_snapshots(machine, request, listed)?;
        if machine.trace.is_verbose() {
            let all = self.model.image(&mut || {}).unwrap_or_default();
            for difference in all.difference(&found) {
                machine.trace.remark(|| format!("lost, or in flight: {difference}"));
            }
        }
        let is_log_suspect = self.neighbour.is_none() && machine.log_faults.is_suspect;
        let verdict =
            self.history.check(operations, &found, is_log_suspect).map_err(|violation| {
                Finding::Crash { volume: self.name.clone(), violation: Box::new(violation) }
            })?;
        machine.trace.note(format!("{}: {verdict:?}", self.name));
        if verdict.surviving < verdict.total {
            machine.trace.meet("crash: operations lost that may be");
        }
        self.model.follow(&self.subject, &found);
        self.history = Self::begin_history(&self.name, &self.model, &self.plan)?;
        self.compare_images(machine)
    }

    /// After a restart of a volume with damage: it goes on with what is there.
    fn recover_damaged(&mut self, listed: &[u8]) -> Result<(), Finding> {
        self.snapshots = listed.to_vec();
        self.history = Self::begin_history(&self.name, &self.model, &self.plan)?;
        Ok(())
    }

    /// Which snapshots there are after a crash with a snapshot operation under way is the engine's
    /// choice, between before and after.
    fn recover_snapshots(
        &mut self,
        machine: &mut Machine<'_>,
        asked: Option<Request>,
        listed: &[u8],
    ) -> Result<(), Finding> {
        let mut before = self.snapshots.clone();
        let mut after = None;
        if let Some(action) = asked.as_ref().map(|request| request.action) {
            machine.trace.meet(match action {
                SnapshotAction::Create(_) => "crash: while a snapshot is created",
                SnapshotAction::Delete(_) => "crash: while a snapshot is deleted",
                SnapshotAction::Restore(_) => "crash: while a snapshot is restored",
            });
            self.note_snapshot(action);
            after = Some(std::mem::replace(&mut self.snapshots, before.clone()));
        }
        if listed != before && Some(listed) != after.as_deref() {
            return Err(Finding::Listing {
                what: format!("snapshots of {}", self.name),
                expected: format!("{before:?} or {after:?}"),
                found: format!("{listed:?}"),
            });
        }
        // What the freeze took in the model has: a snapshot that was made, or a restore.
        if let Some(request) = asked.filter(|request| request.is_taken) {
            match request.action {
                SnapshotAction::Create(snapshot) if !before.contains(&snapshot) => {
                    before.push(snapshot);
                }
                _ if listed == before => request.undo(&mut self.model, &mut self.subject),
                _ => {}
            }
        }
        let gone: Vec<u8> = before.iter().copied().filter(|one| !listed.contains(one)).collect();
        let made: Vec<u8> = listed.iter().copied().filter(|one| !before.contains(one)).collect();
        let deletes = gone.into_iter().map(SnapshotAction::Delete);
        for action in deletes.chain(made.into_iter().map(SnapshotAction::Create)) {
            self.subject.subject.settle(Ok(()));
            self.subject.run(&Operation::Snapshot(action), &mut || {});
            self.model.run(&Operation::Snapshot(action), &mut || {});
        }
        self.snapshots = listed.to_vec();
        Ok(())
    }
}

/// What a right engine may refuse for want of room, and then has not done: whatever makes
/// something. Removing always works, and what was accepted is never refused later.
fn is_left_out(operation: &Operation, found: &Observation) -> bool {
    matches!(found, Observation::Failed(FsError::NoSpace))
        && operation.is_mutation()
        && !matches!(
            operation,
            Operation::Remove { .. }
                | Operation::RemoveDirectory { .. }
                | Operation::Snapshot(SnapshotAction::Delete(_) | SnapshotAction::Restore(_))
        )
}

/// The same without times of last read: to look at a tree, as the model does when it makes a
/// snapshot and when it is compared, is to read it.
fn without_atime(observation: &Observation) -> Observation {
    let mut same = observation.clone();
    let clear = |file: &mut FileView| file.atime = None;
    match &mut same {
        Observation::File(file)
        | Observation::Changed { after: file, .. }
        | Observation::Rights { file, .. }
        | Observation::Text { file, .. }
        | Observation::Wrote { after: file, .. } => clear(file),
        Observation::Made { file, directory } => {
            clear(file);
            clear(directory);
        }
        Observation::Renamed { from, to } => {
            clear(from);
            clear(to);
        }
        Observation::Data { file, .. } => file.iter_mut().for_each(clear),
        Observation::Entries(entries) => {
            entries.iter_mut().filter_map(|entry| entry.file.as_mut()).for_each(clear);
        }
        Observation::Failed(_)
        | Observation::Done
        | Observation::Value(_)
        | Observation::Names(_)
        | Observation::Offset(_)
        | Observation::Broken(_) => {}
    }
    same
}

fn settle_snapshot(
    name: &str,
    subject: &mut Runner<EngineSubject>,
    request: &Request,
    outcome: &Result<(), EngineError>,
) -> Result<Observation, Finding> {
    let action = request.action;
    let Some(settled) = snapshot_outcome(action, outcome) else {
        return Err(Finding::Refused {
            request: format!("{action:?} in {name}"),
            error: outcome.as_ref().err().map(ToString::to_string).unwrap_or_default(),
        });
    };
    // A freeze that took it in has had both sides do it; a restore changes what is held, later.
    if request.is_taken || settled.is_ok() && matches!(action, SnapshotAction::Restore(_)) {
        return Ok(settled.map_or_else(Observation::Failed, |()| Observation::Done));
    }
    subject.subject.settle(settled);
    Ok(subject.run(&Operation::Snapshot(action), &mut || {}))
}

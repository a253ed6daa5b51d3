//! Answers of the engine to what a tenant has in flight: each is the model's, or a refusal that is
//! right.
//!
//! Fails: [`Finding::Mismatch`] and [`Finding::Refused`].

use super::history::Moment;
use super::observed::{is_left_out, without_atime};
use super::snapshots::Request;
use super::subject::{EngineSubject, snapshot_outcome};
use super::{InFlight, Tenant, Wait};
use crate::checks::quotas::check_refusals;
use crate::checks::space::{check_refusal, check_room};
use crate::machine::Machine;
use crate::seed::finding::Finding;
use dblade::{AutogrowMax, EngineError, VolumeChange};
use file_service::{Caller, FileService, FsError, Hold, calls};
use model_fs::operation::SLOT_COUNT;
use model_fs::{Mismatch, Observation, Operation, Runner, Slot, SnapshotAction, Tolerance};

/// Has all that was asked for come to its end, and takes in what was answered.
pub fn settle(machine: &mut Machine<'_>, tenants: &mut [Tenant]) -> Result<(), Finding> {
    machine.settle()?;
    tenants.iter_mut().try_for_each(|tenant| tenant.poll(machine))
}

impl Tenant {
    /// Takes in what was answered.
    pub fn poll(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        self.check_refusals(machine)?;
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

    /// An administrator lets a full volume grow, if the plan says so and it does not yet.
    fn let_grow(&self, machine: &mut Machine<'_>) {
        let maximum = AutogrowMax(self.plan.autogrow_max_blocks);
        let Some(served) = machine.engine.volume_named(&self.name) else { return };
        if maximum.0 <= served.size_blocks() || served.autogrow_max() == maximum {
            return;
        }
        machine.trace.meet("a full volume is let grow");
        let change = VolumeChange { autogrow_max: Some(maximum), ..VolumeChange::default() };
        machine.engine.change_volume(&self.name, change, Box::new(drop));
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
        self.take_scheduled(machine);
        self.look_at_scheduled(machine);
        if matches!(found, Observation::Failed(FsError::NoSpace)) {
            machine.trace.meet("no space");
            check_refusal(machine, &self.name)?;
            // What else is under way may be refused before the volume may grow.
            if self.in_flight.is_empty() {
                // Neither waits for a snapshot to go: fallocate never, and a snapshot not where
                // operations were promised the room.
                if !matches!(operation, Operation::Snapshot(_) | Operation::Allocate { .. }) {
                    self.check_none_could_go(machine)?;
                }
                self.let_grow(machine);
            }
        }
        if matches!(found, Observation::Failed(FsError::OverQuota)) {
            machine.trace.meet("quotas: an operation is refused");
            check_refusals(machine, &self.name)?;
        }
        check_room(machine)?;
        if let Some(size) = &mut self.size {
            size.look(machine, &self.name)?;
        }
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
        let same = match found {
            Observation::Wrote { count, .. } => operation.clone().writing_at_most(*count),
            _ => operation.clone(),
        };
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

//! Requests for a volume's snapshots beside everything else.
//!
//! A snapshot is made, and a restore begins, at the freeze that takes the request in. From then on
//! it is certain what the snapshot has, and that operations which begin now see the restored image;
//! so they begin beside the request, which is answered one or two consistency points later. The
//! model goes on from the freeze, too: it makes the snapshot, or goes back to it, when the freeze
//! is over, and answers come when they come. A snapshot is deleted beside anything.
//!
//! Files that are held over a restore are open for their holders as before. The model closes them:
//! so when a restore is answered some are held anew, all former holds are released, and the next
//! operation begins when nobody is left who would hear of them.
//!
//! Invariants: while a request waits for its freeze nothing else is in flight in the volume, and
//! with files held over a restore until it is answered.
//!
//! Fails: [`Finding`] as operations do; a refusal that is due and does not come.

use crate::machine::Machine;
use crate::seed::finding::Finding;
use crate::tenant::subject::{EngineSubject, snapshot_name, snapshot_request};
use aggregate::{AggregateError, Phase};
use dblade::{EngineError, ServedVolume, SnapshotAutodelete, VolumeKind};
use model_fs::model::SavedImages;
use model_fs::{ExecutorState, Model, Operation, Runner, SnapshotAction};
use platform::completion::{Promise, promise};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{CpNumber, Schedule};
use volume::SnapshotRequest;

type Answer = Promise<Result<(), EngineError>>;

/// A request under way.
pub struct Request {
    /// What was asked for.
    pub action: SnapshotAction,
    answer: Answer,
    /// The consistency point that takes it in.
    taken_by: Option<CpNumber>,
    /// The freeze is over, and the model has done the same.
    pub is_taken: bool,
    /// What is known of snapshots if a restore turns out not to have happened.
    before: Option<Known>,
    /// Asked for in the same breath, to be refused because of a restore.
    refused: Vec<(SnapshotRequest, Answer)>,
    /// What snapshots hold is counted meanwhile, until the request is over. Whatever is told may be
    /// of any moment.
    _counted: Arc<()>,
}

/// What both sides know of snapshots.
struct Known {
    images: SavedImages,
    of_model: BTreeMap<u8, ExecutorState>,
    of_subject: BTreeMap<u8, ExecutorState>,
}

impl Request {
    /// Asks the engine. `is_there`: there is such a snapshot.
    pub fn ask(
        machine: &mut Machine<'_>,
        volume: &str,
        action: SnapshotAction,
        is_there: bool,
    ) -> Self {
        let served = machine.engine.volume_named(volume);
        // A clone that is letting go of its base's trees puts a snapshot off, nobody knows for how
        // many consistency points, and so does a full volume that is to grow, or to delete a
        // snapshot. Nothing else is in flight until it is answered.
        let may_wait = |served: &Arc<ServedVolume>| match &served.kind {
            VolumeKind::Flexible(volume) => {
                volume.is_discarding()
                    || volume.autogrow_max().0 > volume.size_blocks()
                    || volume.autodelete() != SnapshotAutodelete::Off
            }
            VolumeKind::Traditional(_) => false,
        };
        let taken_by = served.filter(|served| !may_wait(served)).map(|served| {
            let aggregate = &served.aggregate;
            let is_next = matches!(aggregate.phase(), Phase::Idle | Phase::Freezing);
            CpNumber(aggregate.committed().get() + if is_next { 1 } else { 2 })
        });
        let engine = &machine.engine;
        let ask = |request| promise(|done| engine.request_snapshot(volume, request, done));
        let answer = ask(snapshot_request(action));
        let mut refused = Vec::new();
        if let (SnapshotAction::Restore(snapshot), true) = (action, is_there) {
            for action in [SnapshotAction::Restore(snapshot), SnapshotAction::Delete(snapshot)] {
                let request = snapshot_request(action);
                refused.push((request.clone(), ask(request)));
            }
            let request = SnapshotRequest::Create("beside".to_owned());
            refused.push((request.clone(), ask(request)));
            machine.trace.meet("snapshots: other requests beside a restore");
        }
        let counted = Arc::default();
        engine.snapshot_spans(volume, &counted, Box::new(drop));
        Self { action, answer, taken_by, is_taken: false, before: None, refused, _counted: counted }
    }

    /// The engine's answer, once.
    pub fn answer(&self) -> Option<Result<(), EngineError>> {
        self.answer.lock().take()
    }

    /// Whether the freeze that takes it in is over, and it was not refused there.
    fn is_over(&self, machine: &Machine<'_>, volume: &str) -> bool {
        let (Some(served), Some(cp)) = (machine.engine.volume_named(volume), self.taken_by) else {
            return false;
        };
        let aggregate = &served.aggregate;
        let is_cleaning =
            !matches!(aggregate.phase(), Phase::Idle | Phase::Freezing | Phase::Failed);
        let committed = aggregate.committed().get();
        committed >= cp.get() || committed + 1 == cp.get() && is_cleaning
    }

    /// Has model and subject do what the freeze has done, if it is over; whether it is now.
    pub fn take(
        &mut self,
        (machine, volume): (&mut Machine<'_>, &str),
        model: &mut Runner<Model>,
        subject: &mut Runner<EngineSubject>,
    ) -> bool {
        let is_deletion = matches!(self.action, SnapshotAction::Delete(_));
        if self.is_taken || is_deletion || machine.log_fails() || !self.is_over(machine, volume) {
            return false;
        }
        if self.answer.lock().as_ref().is_some_and(Result::is_err) {
            return false;
        }
        self.is_taken = true;
        if let SnapshotAction::Restore(_) = self.action {
            self.before = Some(Known {
                images: model.subject.saved_images(),
                of_model: model.saved_states(),
                of_subject: subject.saved_states(),
            });
        }
        let operation = Operation::Snapshot(self.action);
        subject.subject.settle(Ok(()));
        subject.run(&operation, &mut || {});
        model.run(&operation, &mut || {});
        machine.trace.meet("snapshots: taken in, operations go on beside");
        true
    }

    /// A restore has not happened: all snapshots of before are there.
    pub fn undo(self, model: &mut Runner<Model>, subject: &mut Runner<EngineSubject>) {
        if let Some(before) = self.before {
            model.subject.put_images(before.images);
            model.put_states(before.of_model);
            subject.put_states(before.of_subject);
        }
    }

    /// Whether what a restore excludes was refused.
    ///
    /// # Errors
    /// [`Finding::Refused`] if it was not.
    pub fn check_refused(&self, volume: &str) -> Result<(), Finding> {
        for (request, answer) in &self.refused {
            let answer = answer.lock().take();
            let is_refused = matches!(
                answer,
                Some(Err(EngineError::Aggregate(
                    AggregateError::Refused(_) | AggregateError::Full | AggregateError::VolumeFull
                )))
            );
            if !is_refused {
                return Err(Finding::Refused {
                    request: format!("{request:?} of {volume} beside {:?}", self.action),
                    error: format!("it should have been refused: {answer:?}"),
                });
            }
        }
        Ok(())
    }
}

/// The snapshots of operations' small domain that the engine lists, oldest first.
///
/// # Errors
/// [`Finding::Refused`], or [`Finding::Listing`] if it lists others.
pub fn listed_snapshots(machine: &mut Machine<'_>, volume: &str) -> Result<Vec<u8>, Finding> {
    let engine = &machine.engine;
    let listed = promise(|done| engine.snapshots(volume, done));
    let listed = machine.wait("list snapshots", &listed)?.map_err(|error| Finding::Refused {
        request: format!("list snapshots of {volume}"),
        error: error.to_string(),
    })?;
    let names = listed.iter().map(|info| info.name.as_str());
    let names: Vec<&str> = names.filter(|name| Schedule::of_name(name).is_none()).collect();
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

//! A tenant at rest and after a start: its trees are compared, and what a crash left is held
//! against its history.
//!
//! Fails: [`Finding::Crash`], [`Finding::Mismatch`], [`Finding::Listing`].

use super::snapshots::Request;
use super::subject::snapshot_name;
use super::{Tenant, Wait};
use crate::checks::differences::check_differences;
use crate::machine::Machine;
use crate::seed::finding::Finding;
use dblade::Found;
use model_fs::{Image, Operation, SnapshotAction};
use platform::completion::promise;
use std::sync::Arc;
use units::Schedule;
use volume::SnapshotInfo;

impl Tenant {
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

    /// Compares what the engine says of the differences of snapshots with the model's images.
    pub fn compare_snapshots(&self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        if self.is_damaged {
            return Ok(());
        }
        let engine = Arc::clone(&machine.engine);
        let listed = promise(|done| engine.snapshots(&self.name, done));
        let mut listed = machine.wait("list snapshots", &listed)?.unwrap_or_default();
        listed.retain(|one| Schedule::of_name(&one.name).is_none());
        for pair in listed.windows(2) {
            let image = |one: &SnapshotInfo| {
                let number =
                    self.snapshots.iter().find(|number| snapshot_name(**number) == one.name);
                number.and_then(|number| self.model.subject.snapshot_image(*number))
            };
            let [Some(old), Some(new)] = [&pair[0], &pair[1]].map(image) else { continue };
            let (wanted, numbers) = (Arc::default(), [pair[0].id, pair[1].id]);
            let told = promise(|done| {
                engine.snapshot_differences(&self.name, numbers, &wanted, done);
            });
            let told = machine.wait("compare snapshots", &told)?;
            let told = told.map(Found::in_order).map_err(|error| error.to_string());
            if told.as_ref().is_ok_and(|told| !told.files.is_empty()) {
                machine.trace.meet("snapshots: two that differ were compared");
            }
            told.and_then(|told| check_differences(old, new, &told)).map_err(|wrong| {
                machine.excused(Finding::Listing {
                    what: format!(
                        "what differs in {}@{} and {}",
                        self.name, pair[0].name, pair[1].name
                    ),
                    expected: "what the model has".to_owned(),
                    found: wrong,
                })
            })?;
        }
        Ok(())
    }

    /// After a restart: whether what is there is allowed; then model and engine go on from it.
    /// `listed` are the snapshots that the engine has, oldest first.
    pub fn recover(&mut self, machine: &mut Machine<'_>, listed: &[u8]) -> Result<(), Finding> {
        self.subject.subject.restarted(&machine.service);
        self.subject.executor.restarted(machine.service.clone());
        let in_flight: Vec<_> = std::mem::take(&mut self.in_flight);
        self.refusals.clear();
        if self.is_damaged {
            return self.recover_damaged(listed);
        }
        if let Some(size) = &mut self.size {
            size.recover(machine, &self.name)?;
        }
        let found = self.capture(machine)?;
        machine.trace.note(format!("{}: found {} paths", self.name, found.nodes.len()));
        if let Some(path) = self.tree_asked.take() {
            // Nobody was told what became of it.
            let is_made = found.nodes.get(&path).is_some_and(|node| node.is_tree == Some(true));
            machine.trace.meet("crash: while a quota tree is made");
            if is_made {
                self.history.tree(path);
            }
        }
        let mut operations = Vec::new();
        let mut request = None;
        for one in in_flight {
            if let Operation::Append { .. } = one.operation {
                machine.trace.meet("crash: while something is appended to a file");
            }
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
        let is_log_suspect = self.neighbour.is_none() && machine.log_is_suspect;
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

//! A volume of the engine as `model-fs` sees it.
//!
//! Snapshots are made by messages that take many steps, at any of which the power may go; so the
//! simulator asks the engine itself, and gives the outcome to [`EngineSubject::settle`], for the
//! runner to find when it runs the operation.

use aggregate::AggregateError;
use dblade::{EngineError, Service, TreeAnswer};
use file_service::{Caller, FileHandle, FileService, FsError, calls};
use model_fs::answer::Answer;
use model_fs::build::Translation;
use model_fs::{SnapshotAction, Subject};
use std::sync::Arc;
use volume::SnapshotRequest;

/// See the module.
pub struct EngineSubject {
    service: Arc<Service>,
    volume: String,
    /// Directories of it may be quota trees.
    has_trees: bool,
    outcome: Option<Result<(), FsError>>,
}

impl EngineSubject {
    /// A volume.
    #[must_use]
    pub const fn new(service: Arc<Service>, volume: String, has_trees: bool) -> Self {
        Self { service, volume, has_trees, outcome: None }
    }

    /// The engine was started anew.
    pub fn restarted(&mut self, service: &Arc<Service>) {
        self.service = Arc::clone(service);
    }

    /// What the engine said to the snapshot operation that the runner runs next.
    pub fn settle(&mut self, outcome: Result<(), FsError>) {
        self.outcome = Some(outcome);
    }
}

impl Subject for EngineSubject {
    fn service(&self) -> Arc<dyn FileService> {
        Arc::<Service>::clone(&self.service)
    }

    fn volume(&self) -> &str {
        &self.volume
    }

    fn snapshot(&mut self, _: SnapshotAction, _: &mut dyn FnMut()) -> Result<Translation, FsError> {
        let Some(outcome) = self.outcome.take() else {
            unreachable!("the engine is asked before the runner")
        };
        outcome.map(|()| Translation::Identity)
    }

    fn is_tree(&self, path: &[u8], _: FileHandle, drive: &mut dyn FnMut()) -> Option<bool> {
        if !self.has_trees {
            return None;
        }
        let engine = &self.service.0;
        let find = Answer::to(|done| {
            let told = move |answer: Result<TreeAnswer, EngineError>| {
                done(answer.map_err(|_| FsError::Io));
            };
            engine.find_tree(&self.volume, names_of(path), Box::new(told));
        });
        Some(matches!(find.wait(drive)?.ok()?, TreeAnswer::Tree(_)))
    }

    fn snapshot_root(&self, snapshot: u8, drive: &mut dyn FnMut()) -> Option<FileHandle> {
        let service = &*self.service;
        let root = Answer::to(|done| {
            service.root(&Caller::root(), calls::Root { name: self.volume.clone() }, done)
        })
        .wait(drive)?
        .ok()?;
        let caller = Caller::root();
        let mut lookup = |directory: FileHandle, name: &[u8]| {
            let answer = Answer::to(|done| {
                service.lookup(&caller, calls::Lookup { directory, name: name.to_vec() }, done)
            });
            Some(answer.wait(drive)?.ok()?.handle)
        };
        let snapshots = lookup(root.handle, b".snapshot")?;
        lookup(snapshots, snapshot_name(snapshot).as_bytes())
    }
}

/// The names in a path without a leading slash.
#[must_use]
pub fn names_of(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).collect()
}

/// The name of a snapshot of operations' small domain.
#[must_use]
pub fn snapshot_name(snapshot: u8) -> String {
    format!("s{snapshot}")
}

/// The request that an action is.
#[must_use]
pub fn snapshot_request(action: SnapshotAction) -> SnapshotRequest {
    match action {
        SnapshotAction::Create(snapshot) => SnapshotRequest::Create(snapshot_name(snapshot)),
        SnapshotAction::Delete(snapshot) => SnapshotRequest::Delete(snapshot_name(snapshot)),
        SnapshotAction::Restore(snapshot) => SnapshotRequest::Restore(snapshot_name(snapshot)),
    }
}

/// The engine's outcome as the model would put it; `None` if the model knows no such refusal.
#[must_use]
pub fn snapshot_outcome(
    action: SnapshotAction,
    outcome: &Result<(), EngineError>,
) -> Option<Result<(), FsError>> {
    let Err(error) = outcome else { return Some(Ok(())) };
    let EngineError::Aggregate(error) = error else { return None };
    match (error, action) {
        (AggregateError::Full | AggregateError::VolumeFull, SnapshotAction::Create(_)) => {
            Some(Err(FsError::NoSpace))
        }
        (AggregateError::Refused(_), SnapshotAction::Create(_)) => Some(Err(FsError::Exists)),
        (AggregateError::Refused(_), _) => Some(Err(FsError::NotFound)),
        _ => None,
    }
}

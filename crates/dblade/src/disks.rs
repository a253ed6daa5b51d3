//! Changes of an aggregate's disks.

use crate::engine::{Done, Engine};
use crate::error::EngineError;
use media::MediaError;
use platform::Disk;
use raid::{DiskPlace, RaidError};
use std::sync::Arc;

impl Engine {
    /// Takes a disk out of use, as if it had failed. Refused if data would be lost by that.
    pub fn fail_disk(self: &Arc<Self>, aggregate: &str, place: DiskPlace, done: Done<()>) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let store = Arc::clone(&found.parts.store);
        let failed = move |outcome: Result<(), RaidError>| match outcome {
            // It is out of use for good when it lacks a commit: until then the next start would
            // find that it missed nothing.
            Ok(()) => {
                found.force();
                let committed = |outcome: Result<(), _>| done(outcome.map_err(EngineError::from));
                found.request_consistency_point(Some(Box::new(committed)));
            }
            Err(error) => done(Err(error.into())),
        };
        store.fail_disk(place, Box::new(failed));
    }

    /// Gives the place of a disk that failed or is missing to another, and rebuilds what it held in
    /// the background. What is on the other is lost, if `force` says that it may be.
    pub fn replace_disk(
        self: &Arc<Self>,
        aggregate: &str,
        place: DiskPlace,
        (disk, force): (Arc<dyn Disk>, bool),
        done: Done<()>,
    ) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let identity = self.configuration.entropy.next_identity();
        let store = Arc::clone(&found.parts.store);
        let replaced = move |outcome: Result<(), RaidError>| {
            // So that the disk has a superblock.
            found.force();
            found.request_consistency_point(None);
            done(outcome.map_err(EngineError::from));
        };
        let unused = Arc::clone(&disk);
        let checked = move |outcome: Result<(), MediaError>| match outcome {
            Ok(()) => store.replace_disk(place, disk, identity, Box::new(replaced)),
            Err(error) => replaced(Err(error.into())),
        };
        media::check_unused(&unused, force, Box::new(checked));
    }
}

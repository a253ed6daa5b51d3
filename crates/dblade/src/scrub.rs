//! Scrubs of aggregates: orders are passed on to the blocks' store, which does the work.

use crate::engine::{Done, Engine};
use crate::error::EngineError;
use raid::{RaidError, ScrubOrder};

impl Engine {
    /// Starts, pauses, resumes or stops the scrub of an aggregate. Answers when the disks' labels
    /// say it, so that a restart does the same.
    pub fn scrub(&self, aggregate: &str, order: ScrubOrder, done: Done<()>) {
        let Some(found) = self.aggregate_named(aggregate) else {
            let name = aggregate.to_owned();
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let obeyed = |outcome: Result<(), RaidError>| done(outcome.map_err(EngineError::from));
        let wall = self.configuration.clock.wall();
        found.parts.store.scrub(order, wall, Box::new(obeyed));
    }
}

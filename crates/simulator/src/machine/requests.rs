//! What is asked of the engine as a whole: the aggregate is made, opened, and has consistency
//! points; and which refusals are right.

use super::{AGGREGATE, Machine, disk_name};
use crate::seed::finding::Finding;
use dblade::{CreateAggregate, Recovery};
use platform::completion::{Promise, promise};

impl Machine<'_> {
    /// Makes the aggregate.
    pub fn create_aggregate(&mut self, force: bool) -> Result<(), Finding> {
        let disks = (0..self.plan.disks).filter_map(|disk| self.world.disk(&disk_name(disk)));
        let request = CreateAggregate {
            name: AGGREGATE.to_owned(),
            disks: disks.map(|disk| self.watch.over(disk)).collect(),
            kind: self.plan.kind,
            group_size: self.plan.disks,
            force,
            traditional: self.plan.is_traditional,
            media: None,
        };
        let promise = promise(|done| self.engine.create_aggregate(request, done));
        self.wait("create aggregate", &promise)?.map_err(|error| Finding::Refused {
            request: "create aggregate".to_owned(),
            error: error.to_string(),
        })
    }

    /// Begins to open the aggregate.
    #[must_use]
    pub fn open_aggregate(&self) -> Promise<Result<Recovery, dblade::EngineError>> {
        promise(|done| self.engine.open_aggregate_with(self.disks(), self.if_log_is_lost, done))
    }

    /// A consistency point of everything up to now.
    pub fn consistency_point(&mut self) -> Result<(), Finding> {
        let Some(aggregate) = self.aggregate() else {
            return Err(self.refused("consistency point", "the aggregate is not open"));
        };
        let committed = promise(|done| aggregate.request_consistency_point(Some(done)));
        let outcome = self.wait("consistency point", &committed)?;
        match outcome {
            Ok(()) => Ok(()),
            Err(error) => Err(self.refused("consistency point", &error.to_string())),
        }
    }

    /// A request of management was refused: with a log that fails that is right, and only a
    /// restart helps. Nor is it wrong while too many disks are gone.
    pub fn refused(&mut self, request: &str, error: &str) -> Finding {
        if let Err(outage) = self.note_outage() {
            return outage;
        }
        if self.log_fails {
            return Finding::PowerCut;
        }
        Finding::Refused { request: request.to_owned(), error: error.to_owned() }
    }

    /// Something cannot be read: with a log that fails that is right if the aggregate went out of
    /// service, as blocks that move may have it do while nobody asks for anything.
    pub fn excused(&self, finding: Finding) -> Finding {
        let is_failed = self.aggregate().is_some_and(|aggregate| aggregate.is_failed());
        let is_excuse = self.log_fails && is_failed && finding.is_known_loss();
        if is_excuse { Finding::PowerCut } else { finding }
    }
}

//! `stroop sync`: what was answered before is made durable.
//!
//! A consistency point of each aggregate that is meant has it all, whoever wrote it.
//!
//! Invariants: not in the turn of administrators, because nothing is changed: it waits for disks
//! only.
//!
//! Fails: by `AdminError`, once the aggregates that are in service are done.

use crate::volumes::room::Volumes;
use admin_api::{AdminError, Code, Synced, VolumeFilter};
use dblade::EngineError;
use std::sync::Arc;

const MESSAGE: &str = "cannot sync";

impl Volumes {
    /// Makes what was answered before durable, of all volumes or of one.
    pub(crate) fn sync(&self, filter: &VolumeFilter) -> Result<Synced, AdminError> {
        let volumes = self.filtered(MESSAGE, filter)?;
        let mut aggregates = Vec::new();
        for volume in &volumes {
            let aggregate = &volume.aggregate;
            if !aggregates.iter().any(|known| Arc::ptr_eq(known, aggregate)) {
                aggregates.push(Arc::clone(aggregate));
            }
        }
        // All begin before the first is waited for.
        let object = filter.volume.as_deref().unwrap_or("all volumes");
        self.node.waits.request(MESSAGE, object, |done| {
            let gathered = move |outcomes: Vec<Result<(), _>>| {
                let outcome: Result<Vec<()>, _> = outcomes.into_iter().collect();
                done(outcome.map(|_| ()).map_err(EngineError::from));
            };
            let parts = platform::completion::gather(aggregates.len(), gathered);
            for (aggregate, part) in aggregates.iter().zip(parts) {
                aggregate.request_consistency_point(Some(part));
            }
        })?;
        if filter.volume.is_none() {
            self.check_all_in_service()?;
        }
        Ok(Synced { volumes: volumes.iter().map(|volume| volume.name()).collect() })
    }

    /// # Errors
    /// `Failed` if an aggregate is out of service.
    fn check_all_in_service(&self) -> Result<(), AdminError> {
        let outages = self.node.engine.outages().into_iter().map(|outage| outage.summary.name);
        let mut away: Vec<String> = outages.collect();
        away.extend(self.node.offline.lock().iter().map(|aggregate| aggregate.name.clone()));
        away.sort();
        away.dedup();
        if away.is_empty() {
            return Ok(());
        }
        Err(AdminError::new(Code::Failed, MESSAGE, away.join(", "))
            .because(
                "out of service: what was written there, and was not durable before, may be lost; \
                 the volumes of all other aggregates are synced",
            )
            .try_next("stroop status"))
    }
}

//! Scrubs, as administrators order and see them.

use crate::node::Node;
use admin_api::{AdminError, ScrubAction, ScrubChange, ScrubInfo, ScrubState, Time};
use ondisk::scrub::ScrubPhase;
use raid::{ScrubOrder, ScrubStatus};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Timestamp};

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// The scrubs of a node's aggregates.
pub(crate) struct Scrubs {
    pub node: Arc<Node>,
}

impl Scrubs {
    pub(crate) fn change_scrub(&self, wanted: &ScrubChange) -> Result<ScrubInfo, AdminError> {
        let rate = wanted.rate_bytes_per_second;
        let order = match wanted.action {
            ScrubAction::Start => ScrubOrder::Start { rate },
            ScrubAction::Pause => ScrubOrder::Pause,
            ScrubAction::Resume => ScrubOrder::Resume { rate },
            ScrubAction::Stop => ScrubOrder::Stop,
        };
        let (name, action) = (&wanted.aggregate, wanted.action);
        let message = format!("cannot {action} the scrub of");
        self.order(&message, name, order)?;
        tracing::info!(aggregate = *name, rate, "scrub: {action}");
        self.scrub_info(&message, name)
    }

    /// Has the engine do something with the scrub of an aggregate.
    pub(crate) fn order(
        &self,
        message: &str,
        name: &str,
        order: ScrubOrder,
    ) -> Result<(), AdminError> {
        let engine = &self.node.engine;
        if engine.aggregate_named(name).is_none() {
            return Err(AdminError::missing(message, "aggregate", name));
        }
        self.node.waits.request(message, name, |done| engine.scrub(name, order, done))
    }

    /// How it is with the scrub of an aggregate.
    pub(crate) fn scrub_info(&self, message: &str, name: &str) -> Result<ScrubInfo, AdminError> {
        let Some(aggregate) = self.node.engine.aggregate_named(name) else {
            return Err(AdminError::missing(message, "aggregate", name));
        };
        let status = aggregate.parts.store.status();
        Ok(info(name, &status.scrub, self.node.clock.wall()))
    }
}

/// A scrub as administrators see it.
pub(crate) fn info(name: &str, scrub: &ScrubStatus, now: Timestamp) -> ScrubInfo {
    let state = match scrub.phase {
        ScrubPhase::Never => ScrubState::Never,
        ScrubPhase::Running => ScrubState::Running,
        ScrubPhase::Paused => ScrubState::Paused,
        ScrubPhase::Stopped => ScrubState::Stopped,
        ScrubPhase::Finished => ScrubState::Finished,
    };
    let is_known = state != ScrubState::Never;
    let is_over = is_known && state != ScrubState::Running;
    let left = scrub.pace.seconds_left;
    ScrubInfo {
        aggregate: name.to_owned(),
        state,
        started: is_known.then_some(Time(scrub.started)),
        ended: is_over.then_some(Time(scrub.ended)),
        ended_ago_ns: is_over
            .then(|| u64::try_from(now.get().saturating_sub(scrub.ended.get())).unwrap_or(0)),
        active_ns: scrub.active_seconds.saturating_mul(NANOSECONDS_PER_SECOND),
        done_bytes: scrub.read_blocks.saturating_mul(BLOCK_SIZE_U64),
        size_bytes: scrub.blocks.saturating_mul(BLOCK_SIZE_U64),
        rate_bytes_per_second: scrub.rate,
        bytes_per_second: scrub.pace.bytes_per_second,
        left_ns: left.map(|seconds| seconds.saturating_mul(NANOSECONDS_PER_SECOND)),
        repaired_data_blocks: scrub.repaired_data,
        repaired_checksum_blocks: scrub.repaired_checksums,
        repaired_parity_blocks: scrub.repaired_parity,
        damaged_blocks: scrub.damaged,
        findings: scrub.findings.iter().map(ToString::to_string).collect(),
    }
}

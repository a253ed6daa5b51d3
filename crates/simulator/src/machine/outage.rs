//! Outages of the first aggregate: more of its disks are gone at once than the group can do
//! without, and come back with all they had. What must hold then is `life/outage.rs`'s.
//!
//! Invariants: an outage begins once the aggregate is in service, is known when the aggregate is
//! not any more, and ends with the disks back.

use super::Machine;
use super::logs::neighbour_name;
use crate::seed::finding::Finding;
use aggregate::AggregateError;
use raid::MemberState;

/// Where an outage is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum OutagePhase {
    /// There is none.
    #[default]
    None,
    /// The disks are gone, and the aggregate may not know.
    Begun,
    /// It knows.
    Known,
}

/// An outage.
#[derive(Default)]
pub struct Outage {
    phase: OutagePhase,
    /// Disks that are gone though the group cannot do without them.
    away: Vec<String>,
}

impl Machine<'_> {
    /// Whether one may begin now, as far as the aggregate is concerned.
    #[must_use]
    pub fn may_have_outage(&self) -> bool {
        let may_begin = self.plan.has_outages && !self.is_outage();
        may_begin && self.aggregate().is_some_and(|aggregate| !aggregate.is_failed())
    }

    /// As many disks go as the group has parity disks left, and one more.
    pub fn begin_outage(&mut self) {
        let Some(aggregate) = self.aggregate().filter(|_| self.may_have_outage()) else { return };
        let members = self.members();
        let mut online: Vec<String> = members
            .iter()
            .filter(|member| member.state == MemberState::Online)
            .filter_map(|member| member.name.clone())
            .collect();
        let missing = members.len() - online.len();
        let count = (self.plan.kind.parity_disks() + 1).saturating_sub(missing);
        for _ in 0..count.min(online.len()) {
            let name = online.swap_remove(self.choices.index(online.len()));
            self.take_away(&name);
            self.outage.away.push(name);
        }
        self.trace.meet("outage: more disks gone than parity covers");
        self.outage.phase = OutagePhase::Begun;
        aggregate.force();
        aggregate.request_consistency_point(None);
    }

    /// Whether the aggregate is away, or is about to be.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        self.outage.phase != OutagePhase::None
    }

    /// The same of a neighbour, or of the first aggregate.
    #[must_use]
    pub fn is_outage_of(&self, neighbour: Option<usize>) -> bool {
        neighbour.map_or_else(|| self.is_outage(), |_| self.dead_neighbour == neighbour)
    }

    /// Whether a neighbour, or the first aggregate, knows that it is away.
    #[must_use]
    pub fn is_out_of_service_of(&self, neighbour: Option<usize>) -> bool {
        let Some(index) = neighbour else { return self.is_out_of_service() };
        let aggregate = self.engine.aggregate_named(&neighbour_name(index));
        self.is_outage_of(neighbour) && aggregate.is_none_or(|aggregate| aggregate.is_failed())
    }

    /// Whether the aggregate knows.
    #[must_use]
    pub fn is_out_of_service(&self) -> bool {
        self.is_outage() && self.aggregate().is_none_or(|aggregate| aggregate.is_failed())
    }

    /// Raised once: from now on the life sits the outage out.
    pub fn note_outage(&mut self) -> Result<(), Finding> {
        // A clean stop may have ended before the disks were missed: the start finds them back.
        let failure = self.aggregate().and_then(|aggregate| aggregate.failure());
        let is_stopped = matches!(failure, Some(AggregateError::Stopping));
        if self.outage.phase == OutagePhase::Begun && self.is_out_of_service() && !is_stopped {
            self.outage.phase = OutagePhase::Known;
            return Err(Finding::Outage);
        }
        Ok(())
    }

    /// The disks that are gone though the group cannot do without them.
    #[must_use]
    pub fn away_disks(&self) -> &[String] {
        &self.outage.away
    }

    /// The disks are back, whatever came between.
    pub fn end_outage(&mut self) {
        self.answer_late();
        if self.is_outage() {
            self.forget_members();
        }
        self.outage.phase = OutagePhase::None;
        for name in std::mem::take(&mut self.outage.away) {
            self.trace.note(format!("disk {name} is back"));
            self.world.set_gone(&name, false);
        }
    }
}

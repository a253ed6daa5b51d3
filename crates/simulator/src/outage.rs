//! Outages: more disks go at once than the group can do without, and come back with all they had.
//!
//! From the moment that the aggregate knows, nothing that is asked of it may be answered but that
//! it is away; what was asked before may have happened or not, as with a crash. The engine goes on:
//! the aggregate is closed, and opened again when the disks are back, without a new start. Then all
//! must hold that must hold after a crash, and nothing may be left that waits.
//!
//! Invariants: between outages as many disks are there as without them; the power may go at any
//! moment of one, and then the disks are there at the start.

use crate::finding::Finding;
use crate::life::Life;
use crate::losses::Losses;
use crate::machine::{AGGREGATE, Machine};
use crate::neighbours::neighbour_name;
use crate::tenant::Tenant;
use raid::MemberState;

/// Operations that are tried on an aggregate that is away.
const HOPELESS_OPERATIONS: u64 = 6;

/// Where an outage is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OutagePhase {
    /// There is none.
    #[default]
    None,
    /// The disks are gone, and the aggregate may not know.
    Begun,
    /// It knows.
    Known,
}

impl Machine<'_> {
    /// As many disks go as the group has parity disks left, and one more.
    pub fn begin_outage(&mut self) {
        if !self.plan.has_outages || self.losses.outage != OutagePhase::None {
            return;
        }
        let Some(aggregate) = self.aggregate() else { return };
        if aggregate.is_failed() || self.is_replacing() || self.has_recent_loss() {
            return;
        }
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
            self.losses.away.push(name);
        }
        self.trace.meet("outage: more disks gone than parity covers");
        self.losses.outage = OutagePhase::Begun;
        aggregate.force();
        aggregate.request_consistency_point(None);
    }

    /// Whether the aggregate is away, or is about to be.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        self.losses.outage != OutagePhase::None
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
        if self.losses.outage == OutagePhase::Begun && self.is_out_of_service() {
            self.losses.outage = OutagePhase::Known;
            return Err(Finding::Outage);
        }
        Ok(())
    }

    /// The disks are back, whatever came between.
    pub fn end_outage(&mut self) {
        self.answer_late();
        if self.is_outage() {
            self.forget_members();
        }
        let Losses { outage, away, .. } = &mut self.losses;
        *outage = OutagePhase::None;
        for name in std::mem::take(away) {
            self.trace.note(format!("disk {name} is back"));
            self.world.set_gone(&name, false);
        }
    }
}

impl Life<'_> {
    /// The aggregate is away: nothing is answered any more, and when the disks are back everything
    /// is there.
    pub fn sit_out(&mut self) -> Result<(), Finding> {
        self.machine.trace.note("the aggregate is away".to_owned());
        self.machine.arm(None);
        self.machine.forget_requests_for_disks();
        self.machine.forget_growth();
        self.machine.forget_removal();
        self.try_hopeless()?;
        let identity = self.machine.engine.aggregate_named(AGGREGATE);
        let identity = identity.map(|aggregate| aggregate.parts.identity.aggregate);
        let outages = self.machine.engine.outages();
        let known = outages.iter().find(|outage| outage.summary.name == AGGREGATE);
        let known = known.map(|outage| outage.summary.identity);
        let Some(identity) = identity.or(known) else {
            return Err(Finding::Open("the aggregate is away and nobody knows of it".to_owned()));
        };
        self.machine.drive_until("an aggregate to be closed", |machine| {
            machine.aggregate().is_none() && machine.engine.is_closed(&identity)
        })?;
        self.try_hopeless()?;
        if let Some(tenant) = self.tenants.iter().find(|tenant| !tenant.is_refused()) {
            return Err(Finding::Stalled { waiting: tenant.waiting() });
        }
        self.poll_refused();
        if self.events.chance(20) {
            self.machine.trace.meet("outage: the power goes in the middle");
            return self.after(Err(Finding::PowerCut));
        }
        self.machine.end_outage();
        if self.events.chance(25) {
            self.machine.return_disks();
        }
        // As with a disk that is opened for one owner only: what was asked of it has ended.
        self.machine.settle()?;
        let opened = self.machine.open_aggregate();
        self.machine.drive_until("open aggregate", |_| opened.lock().is_some())?;
        let Some(opened) = opened.lock().take() else { unreachable!("it was driven until then") };
        let recovery = opened.map_err(|error| Finding::Open(error.to_string()))?;
        self.machine.trace.note(format!("back: {} operations replayed", recovery.replayed));
        self.machine.trace.meet("outage: back without a start");
        self.check_recovered()
    }

    /// Operations on an aggregate that is away: each is refused.
    fn try_hopeless(&mut self) -> Result<(), Finding> {
        for _ in 0..HOPELESS_OPERATIONS {
            self.start_operation()?;
            self.machine.settle()?;
            for tenant in &mut self.tenants {
                tenant.poll(&mut self.machine)?;
            }
        }
        Ok(())
    }
}

impl Tenant {
    /// Whether everything that was asked for was answered or refused.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.unanswered() == 0
    }
}

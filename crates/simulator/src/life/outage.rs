//! Outages: more disks go at once than the group can do without, and come back with all they had.
//!
//! From the moment that the aggregate knows, nothing that is asked of it may be answered but that
//! it is away; what was asked before may have happened or not, as with a crash. The engine goes on:
//! the aggregate is closed, and opened again when the disks are back, without a new start. Then all
//! must hold that must hold after a crash, and nothing may be left that waits.
//!
//! Invariants: between outages as many disks are there as without them; the power may go at any
//! moment of one, and then the disks are there at the start.

use super::Life;
use crate::machine::AGGREGATE;
use crate::seed::finding::Finding;
use crate::tenant;

/// Operations that are tried on an aggregate that is away.
const HOPELESS_OPERATIONS: u64 = 6;

impl Life<'_> {
    /// The aggregate is away: nothing is answered any more, and when the disks are back everything
    /// is there.
    pub(super) fn sit_out(&mut self) -> Result<(), Finding> {
        self.machine.trace.note("the aggregate is away".to_owned());
        self.machine.arm(None);
        self.forget_requests();
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
        if let Some(tenant) = self.tenants.iter().find(|tenant| tenant.unanswered() > 0) {
            return Err(Finding::Stalled { waiting: tenant.waiting() });
        }
        self.points.clear();
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
            tenant::settle(&mut self.machine, &mut self.tenants)?;
        }
        Ok(())
    }
}

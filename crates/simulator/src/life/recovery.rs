//! The node starts again: opening, through more power cuts if the seed says so, and everything that
//! must hold after it.
//!
//! Invariants: the moments of cuts during recovery are the seed's, like all others. While trees are
//! compared the power stays on: what they show is what the recovery came to.

use super::Life;
use crate::checks::media::check_media;
use crate::faults::damage::check_damage;
use crate::faults::sickness::check_health;
use crate::machine::cut::Cut;
use crate::management::scrubs::Scrubs;
use crate::seed::finding::Finding;
use crate::seed::reduction::Calm;
use crate::tenant::listed_snapshots;
use dblade::{LostLog, Recovery};

/// Cuts during one recovery at most.
const RECOVERY_CUTS_MAX: u32 = 2;

impl Life<'_> {
    /// Opens the aggregate, and checks what is there.
    pub(super) fn recover(&mut self, is_crash: bool) -> Result<(), Finding> {
        self.machine.arm(None);
        self.machine.end_fault();
        self.machine.end_outage();
        if self.events.chance(25) {
            self.machine.return_disks();
        }
        let (recovery, cuts) = self.open()?;
        self.machine.if_log_is_lost = LostLog::Refused;
        if self.log_faults.take_lost_notes() {
            Scrubs::await_parity(&mut self.machine)?;
        }
        if !is_crash && cuts == 0 && (!recovery.clean || recovery.replayed > 0) {
            return Err(Finding::Listing {
                what: "recovery after a clean stop".to_owned(),
                expected: "clean, nothing to replay".to_owned(),
                found: format!("{recovery:?}"),
            });
        }
        if !is_crash && cuts == 0 {
            self.errors.check_kept(&mut self.machine)?;
        }
        check_health(&mut self.machine)?;
        self.check_recovered()?;
        self.neighbours.open(&mut self.machine, is_crash || cuts > 0)
    }

    /// Opens the aggregate; how it was found, and how often the power went on the way.
    fn open(&mut self) -> Result<(Recovery, u32), Finding> {
        // A start relies on one copy of a log on the disks, which a faulty disk may have.
        let plan = &self.machine.plan;
        let is_calm = self.reduction.is_calm(Calm::RecoveryCuts)
            || plan.is_log_on_disks && plan.fault.is_some();
        let cuts_max = if is_calm { 0 } else { RECOVERY_CUTS_MAX };
        let mut cuts = 0;
        loop {
            self.machine.start();
            self.online_check.forget();
            self.log_faults.damage(&mut self.machine);
            self.log_copies.begin_start(&mut self.machine);
            self.slots.begin(&mut self.machine, self.removals.has_begun);
            let opened = self.machine.open_aggregate();
            let is_cut = (self.events.chance(20) || self.kills.cuts_recovery()) && cuts < cuts_max;
            let step = self.machine.trace.step;
            let cut = is_cut.then(|| Cut::At(step + self.events.scaled(9)));
            self.machine.arm(cut);
            let driven = self.machine.drive_until("open aggregate", |_| opened.lock().is_some());
            self.machine.arm(None);
            if driven == Err(Finding::PowerCut) {
                cuts += 1;
                self.machine.trace.meet("cut: during recovery");
                // Most of all the disk that has what the others have not.
                if self.events.chance(70) {
                    self.losses.lose_sealed_disk(&mut self.machine);
                }
                self.cut_power();
                continue;
            }
            driven?;
            let Some(opened) = opened.lock().take() else {
                unreachable!("it was driven until it was opened")
            };
            let recovery = match opened {
                Ok(recovery) => recovery,
                Err(error) if self.retries(&error.to_string()) => continue,
                Err(error) => return Err(Finding::Open(error.to_string())),
            };
            self.slots.end(&self.machine);
            if let Some(aggregate) = self.machine.aggregate()
                && aggregate.parts.log.missing().is_some()
            {
                self.machine.trace.meet("log: lost records are told");
            }
            self.machine.trace.note(format!(
                "open: clean {}, {} operations replayed",
                recovery.clean, recovery.replayed
            ));
            if recovery.replayed > 0 {
                self.machine.trace.meet("replay with records");
                self.machine.trace.meet_times("replay: records", recovery.replayed);
            }
            return Ok((recovery, cuts));
        }
    }

    /// Whether a start that was refused is to be tried again, with the log or the superblocks made
    /// good.
    fn retries(&mut self, error: &str) -> bool {
        let Self { log_faults, slots, machine, .. } = self;
        log_faults.retries(machine, error) || slots.retries(machine, error)
    }

    /// What must hold of everything after a start, or after an outage.
    pub(super) fn check_recovered(&mut self) -> Result<(), Finding> {
        self.points.clear();
        self.recover_volumes()?;
        self.splitting().recover()?;
        check_damage(&mut self.machine, &self.tenants)?;
        for index in 0..self.tenants.len() {
            let Some(tenant) = self.tenants.get_mut(index) else { break };
            let listed = listed_snapshots(&mut self.machine, &tenant.name)?;
            tenant.recover(&mut self.machine, &listed)?;
        }
        if let Some(aggregate) = self.machine.aggregate()
            && aggregate.parts.store.status().is_degraded()
        {
            self.machine.trace.meet("open: degraded");
        }
        self.machine.settle()?;
        self.log_faults.end_damage(&mut self.machine);
        check_media(&mut self.machine)
    }

    /// After a cut while the aggregate was made: it is there, whole and empty, or it is not, and
    /// can be made on the same disks.
    pub(super) fn recover_creation(&mut self) -> Result<(), Finding> {
        self.machine.arm(None);
        self.machine.start();
        let opened = self.machine.open_aggregate();
        self.machine.drive_until("open aggregate", |_| opened.lock().is_some())?;
        let opened = opened.lock().take();
        if matches!(opened, Some(Ok(_))) {
            self.machine.trace.meet("crash: the aggregate was made");
        } else {
            self.machine.trace.meet("crash: the aggregate was not made");
            self.machine.power_cut(platform::simulated::Fate::Each);
            self.machine.start();
            self.machine.create_aggregate(true)?;
        }
        self.tenants_of_aggregate()?;
        self.machine.settle()?;
        check_media(&mut self.machine)
    }
}

//! The node ends and starts again, and what is there is looked at.
//!
//! Fails: [`Finding::Operator`] if what was answered is not there, or half of a call has happened.

use super::desk::{Asked, Desk};
use super::expected::Expected;
use super::life::OperatorLife;
use super::splits;
use super::views;
use crate::machine::cut::Cut;
use crate::seed::finding::Finding;
use crate::seed::reduction::Calm;
use admin_api::{Reply, Request, VolumeFilter};

/// Of 100 ends, those of the process alone.
const KILL_PERCENT: u64 = 30;
/// Cuts during one start at most.
const START_CUTS_MAX: u32 = 2;

impl OperatorLife<'_> {
    fn end(&mut self) {
        if self.events.chance(KILL_PERCENT) {
            self.machine.kill();
        } else {
            self.machine.cut_power(&mut self.events);
        }
    }

    /// The node ends, and starts. What was answered is there; of the call that was under way all
    /// has happened, or nothing.
    pub(super) fn start_again(&mut self, is_crash: bool) -> Result<(), Finding> {
        self.end();
        self.losses.forget();
        let told = self.desk.clients().exports();
        let pending = self.desk.give_up()?;
        let mut after = self.cut_off.take();
        if let Some(Asked::Request(request)) = pending {
            self.machine.trace.note(format!("cut off: {request:?}"));
            self.jobs_seen.note_call(&request, false);
            after = self.expected.after(&request).ok();
            if let Some(after) = &mut after {
                // They join one after the other; those of a new aggregate once it is made.
                spares_of(&request).iter().for_each(|disk| after.disks.doubt(disk));
            }
            after = after.filter(|after| *after != self.expected);
        }
        // A spare that was taking a place may be nobody's.
        self.expected.disks.doubt_unless_clear();
        if let Some(after) = &mut after {
            after.disks.doubt_unless_clear();
        }
        let is_told = self.is_told(after.as_ref(), &told);
        self.machine.end_outage();
        self.machine.heal_disks();
        if self.events.chance(25) {
            self.machine.return_disks();
        }
        self.note_due(after.as_mut());
        self.note_seen(after.as_mut(), true);
        let cuts = self.open()?;
        self.expected.mounts.clear();
        if let Some(after) = &mut after {
            after.mounts.clear();
        }
        self.is_to_look = false;
        self.check_events_of_start(!is_crash && cuts == 0)?;
        self.recover_expected(after, is_told)?;
        if !is_crash && cuts == 0 {
            let Reply::Status(status) = self.read(Request::Status)? else { return Ok(()) };
            if status.recovery.is_some() {
                return Err(Finding::Listing {
                    what: "recovery after a clean stop".to_owned(),
                    expected: "none".to_owned(),
                    found: format!("{:?}", status.recovery),
                });
            }
        }
        self.recover_tenants()?;
        self.machine.settle()?;
        if self.expected.is_made {
            self.check_clients()?;
            self.check_media()?;
            // The engine has the rates of jobs again.
            self.call(Asked::Request(Box::new(Request::JobList)))?;
        }
        Ok(())
    }

    /// Starts the node, through more power cuts if the seed says so; how many.
    fn open(&mut self) -> Result<u32, Finding> {
        let cuts_max = if self.reduction.is_calm(Calm::RecoveryCuts) { 0 } else { START_CUTS_MAX };
        let mut cuts = 0;
        loop {
            self.machine.arm(None);
            self.machine.start();
            self.desk = Desk::start(&self.machine, &self.files);
            if cuts < cuts_max && self.events.chance(20) {
                let at = self.machine.trace.step + self.events.scaled(9);
                self.machine.arm(Some(Cut::At(at)));
            }
            let opened = self.call(Asked::Open);
            self.machine.arm(None);
            if opened != Err(Finding::PowerCut) {
                return opened.map(|()| cuts);
            }
            cuts += 1;
            self.machine.trace.meet("cut: during recovery");
            self.end();
            self.desk.give_up()?;
        }
    }

    /// What is there is what was there, or what a call that was cut off would have made of it.
    pub(super) fn recover_expected(
        &mut self,
        mut after: Option<Expected>,
        is_told: bool,
    ) -> Result<(), Finding> {
        self.note_due(after.as_mut());
        splits::settle(&mut self.machine, &mut self.expected, after.as_mut())?;
        let looks = [
            Request::AggregateList,
            Request::VolumeList,
            Request::SnapshotList(VolumeFilter::default()),
            Request::VolumeListDeleted,
            Request::Status,
        ];
        let mut seen = Vec::new();
        for look in looks {
            seen.push((look.clone(), self.read(look)?));
        }
        let fits = |expected: &Expected| {
            let mut seen = seen.iter();
            seen.try_for_each(|(look, reply)| views::check(expected, look, reply))
        };
        let outcome = self.choose_expected(after, is_told, fits);
        for (_, reply) in &seen {
            if let Reply::VolumeListDeleted(list) = reply {
                self.expected.settle_deleted(list);
            }
        }
        outcome
    }

    fn choose_expected(
        &mut self,
        after: Option<Expected>,
        is_told: bool,
        fits: impl Fn(&Expected) -> views::Checked,
    ) -> Result<(), Finding> {
        let Some(after) = after else {
            return fits(&self.expected).map_err(|wrong| after_start(&wrong));
        };
        match fits(&after) {
            Ok(()) => {
                self.machine.trace.meet("operator: a call that was cut off has happened");
                self.expected = after;
                Ok(())
            }
            Err(_) if is_told => {
                let text = "clients were let in by rules that a crash took back";
                Err(after_start(text))
            }
            Err(other) => {
                self.machine.trace.meet("operator: a call that was cut off has not happened");
                let both = |wrong| format!("{wrong}; and if the call has happened: {other}");
                fits(&self.expected).map_err(|wrong| after_start(&both(wrong)))
            }
        }
    }

    /// Those who work on volumes find what they left, or something that a crash allows.
    pub(super) fn recover_tenants(&mut self) -> Result<(), Finding> {
        self.forget_tenants();
        for tenant in &mut self.tenants {
            tenant.recover(&mut self.machine, &[])?;
        }
        self.add_tenants()
    }
}

/// The disks that a call makes spares.
fn spares_of(request: &Request) -> &[String] {
    match request {
        Request::SpareAdd(wanted) => &wanted.disks,
        Request::AggregateCreate(wanted) => &wanted.spares,
        _ => &[],
    }
}

fn after_start(wrong: &str) -> Finding {
    Finding::Operator { asked: "what is there after a start".to_owned(), wrong: wrong.to_owned() }
}

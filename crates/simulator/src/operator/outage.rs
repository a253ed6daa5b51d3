//! Outages: more disks go at once than the group can do without. The operator looks, types on and
//! attaches the disks again; the watch of management brings the aggregate back into service.
//!
//! Invariants: every call is answered, with the disks or without. Of a call that was under way when
//! the disks went all has happened, or nothing; a call that is refused while they are away changes
//! nothing; what is granted holds. The aggregate is shown once, and never as in service.
//!
//! Fails: [`Finding::Operator`], or [`Finding::Stalled`] if something waits for ever.

use super::calls::wrong;
use super::desk::Asked;
use super::expected::{Expected, Rules, is_of_disks};
use super::life::OperatorLife;
use super::turns::Answer;
use super::views::{Checked, same};
use crate::machine::AGGREGATE;
use crate::seed::finding::Finding;
use crate::tenant;
use admin_api::{AggregateInfo, AggregateState, Reply, Request};

/// Operations of clients that are tried while the aggregate is away.
const HOPELESS_OPERATIONS: u64 = 6;
/// Calls that are typed while it is away.
const HOPELESS_CALLS: u64 = 6;
/// Looks for disks until the aggregate must be back: a minute for what makes it wait for longest.
const WATCHES_MAX: u32 = 120;
const SECOND_NANOSECONDS: u64 = 1_000_000_000;
/// Of 100 outages, those that the power ends.
const POWER_PERCENT: u64 = 20;

impl OperatorLife<'_> {
    /// An answer while disks go: it may be of before or of after.
    pub(super) fn judge_in_outage(&mut self, asked: Asked, answer: Answer) -> Result<(), Finding> {
        let Asked::Request(request) = &asked else {
            // A stop that failed is a crash.
            return match (asked, answer) {
                (Asked::Stop, Err(_)) => Err(Finding::PowerCut),
                _ => Ok(()),
            };
        };
        self.jobs_seen.note_call(request, answer.is_ok());
        let after = self.expected.after(request);
        match (after, answer) {
            (Ok(after), Ok(_)) => self.expected = after,
            (Ok(after), Err(error)) => {
                self.machine.trace.note(format!("refused in an outage: {error}"));
                self.cut_off = Some(after).filter(|after| *after != self.expected);
            }
            (Err(_), Err(_)) => return Ok(()),
            (Err(code), Ok(reply)) => {
                return Err(wrong(&asked, &format!("should be refused ({code}): {reply:?}")));
            }
        }
        self.forget_tenants();
        if self.cut_off.is_some() {
            // What else is typed depends on what became of it.
            self.machine
                .drive_until("an outage to be known", |machine| machine.is_out_of_service())?;
            self.machine.note_outage()?;
        }
        Ok(())
    }

    /// The aggregate is away: calls are answered, and when the disks are back so is everything.
    pub(super) fn sit_out(&mut self) -> Result<(), Finding> {
        let failure = self.machine.aggregate().and_then(|aggregate| aggregate.failure());
        let cause = failure.map(|failure| failure.to_string()).unwrap_or_default();
        self.machine.trace.note(format!("the aggregate is away: {cause}"));
        self.machine.arm(None);
        self.losses.forget();
        if self.desk.is_busy() {
            let (asked, answer) = self.answer()?;
            self.judge_in_outage(asked, answer)?;
        }
        let told = self.desk.clients().exports();
        self.try_operations()?;
        self.type_hopelessly(false)?;
        self.machine.drive_until("an aggregate to be closed", |machine| {
            let outages = machine.engine.outages();
            let mut away = outages.iter().map(|outage| outage.summary.identity);
            machine.aggregate().is_none() && away.all(|one| machine.engine.is_closed(&one))
        })?;
        self.type_hopelessly(true)?;
        self.try_operations()?;
        if let Some(tenant) = self.tenants.iter().find(|tenant| tenant.unanswered() > 0) {
            return Err(Finding::Stalled { waiting: tenant.waiting() });
        }
        if self.events.chance(POWER_PERCENT) {
            self.machine.trace.meet("outage: the power goes in the middle");
            return self.start_again(true);
        }
        self.machine.end_outage();
        if self.events.chance(25) {
            self.machine.return_disks();
        }
        self.watch_until_back()?;
        self.machine.trace.meet("operator: an aggregate is back after an outage");
        self.check_events()?;
        let mut after = self.cut_off.take();
        self.note_seen(after.as_mut(), false);
        let is_told = self.is_told(after.as_ref(), &told);
        self.is_to_look = false;
        self.recover_expected(after, is_told)?;
        self.recover_tenants()?;
        self.machine.settle()?;
        self.check_clients()?;
        self.check_media()
    }

    /// Operations on an aggregate that is away: each is refused.
    fn try_operations(&mut self) -> Result<(), Finding> {
        for _ in 0..HOPELESS_OPERATIONS {
            self.start_operation()?;
            tenant::settle(&mut self.machine, &mut self.tenants)?;
        }
        Ok(())
    }

    /// Calls while the aggregate is away.
    fn type_hopelessly(&mut self, is_closed: bool) -> Result<(), Finding> {
        for _ in 0..HOPELESS_CALLS {
            let asked = match self.typed.below(10) {
                0..3 => Asked::Watch,
                3..5 => Asked::Request(Box::new(Request::AggregateList)),
                5 => Asked::Request(Box::new(Request::Status)),
                6 if self.cut_off.is_some() => Asked::Request(Box::new(Request::DiskList)),
                7 => Asked::Request(Box::new(self.typist().look())),
                _ if self.cut_off.is_some() => continue,
                _ => Asked::Request(Box::new(self.typist().next())),
            };
            if matches!(&asked, Asked::Request(request) if is_of_disks(request)) {
                continue;
            }
            let (asked, answer) = self.wait(asked)?;
            self.judge_hopeless(&asked, answer, is_closed)?;
        }
        Ok(())
    }

    fn judge_hopeless(
        &mut self,
        asked: &Asked,
        answer: Answer,
        is_closed: bool,
    ) -> Result<(), Finding> {
        let Asked::Request(request) = asked else { return Ok(()) };
        self.jobs_seen.note_call(request, answer.is_ok());
        match (self.expected.after(request), answer) {
            (_, Err(error)) => self.machine.trace.note(format!("refused, away: {error}")),
            (Err(code), Ok(reply)) => {
                return Err(wrong(asked, &format!("should be refused ({code}): {reply:?}")));
            }
            (Ok(after), Ok(reply)) => {
                if is_closed {
                    check_away(&reply).map_err(|text| wrong(asked, &text))?;
                }
                if after != self.expected {
                    self.machine.trace.meet("operator: a call granted in an outage");
                }
                self.expected = after;
                self.forget_tenants();
            }
        }
        Ok(())
    }

    /// Management looks once a second, until the aggregate is in service again.
    fn watch_until_back(&mut self) -> Result<(), Finding> {
        for _ in 0..WATCHES_MAX {
            self.machine.settle()?;
            self.call(Asked::Watch)?;
            if self.machine.aggregate().is_some() {
                return Ok(());
            }
            self.machine.world.advance(SECOND_NANOSECONDS);
            self.machine.pass_time();
        }
        let text = format!("not in service again: {:?}", self.read(Request::Status)?);
        Err(wrong(&Asked::Watch, &text))
    }

    /// Whether clients were let in by the rules of a call that was cut off.
    pub(super) fn is_told(&self, after: Option<&Expected>, told: &Rules) -> bool {
        let after = after.map(Expected::exports);
        after.is_some_and(|after| *told == after && after != self.expected.exports())
    }
}

/// What is shown of an aggregate that is away.
fn check_away(reply: &Reply) -> Checked {
    let list: &[AggregateInfo] = match reply {
        Reply::AggregateList(list) => list,
        Reply::Status(status) => &status.aggregates,
        _ => return Ok(()),
    };
    let shown: Vec<(&str, AggregateState)> =
        list.iter().map(|info| (info.name.as_str(), info.state)).collect();
    same("aggregates in an outage", &vec![(AGGREGATE, AggregateState::Offline)], &shown)
}

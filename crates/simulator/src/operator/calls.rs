//! One call after the other: what is typed, what is answered, and whether that is right.
//!
//! Fails: [`Finding::Operator`] if a call is answered otherwise than it should be.

use super::desk::Asked;
use super::disks::path_of;
use super::expected::{Expected, depends_on_background, is_of_disks, takes_room};
use super::jobs::check_engine;
use super::life::OperatorLife;
use super::names::{TYPED_SHORT, disks_of};
use super::splits;
use super::turns::Answer;
use super::typing::Typist;
use super::views;
use crate::seed::finding::Finding;
use crate::tenant::Tenant;
use admin_api::{AdminError, Code, DiskInfo, DiskState, Reply, Request};
use platform::Clock as _;

/// Steps of the machine from one turn of a call to the next, at most.
pub(super) const STEPS_PER_TURN: u32 = 8;

impl OperatorLife<'_> {
    pub(super) const fn typist(&mut self) -> Typist<'_> {
        Typist { choices: &mut self.typed, expected: &self.expected, jobs: &self.jobs_seen }
    }

    /// The operator types something, or looks at what the last call has done.
    pub(super) fn type_next(&mut self) -> Result<(), Finding> {
        let asked = if std::mem::take(&mut self.is_to_look) {
            Asked::Request(Box::new(Request::VolumeList))
        } else if self.typed.chance(10) {
            Asked::Watch
        } else {
            let request = self.typist().next();
            Asked::Request(Box::new(request))
        };
        if let Asked::Request(request) = &asked
            && is_of_disks(request)
            && (self.machine.is_outage() || self.losses.has_recent(&mut self.machine))
        {
            // The aggregate does not know of all disks that it has to do without.
            return Ok(());
        }
        if let Asked::Request(request) = &asked
            && let Request::VolumeDelete(wanted) = &**request
            && self.tenants.iter().any(|one| one.name == wanted.name && !one.is_idle())
        {
            // Somebody works on it just now.
            return Ok(());
        }
        self.ask(asked)
    }

    fn ask(&mut self, asked: Asked) -> Result<(), Finding> {
        self.machine.trace.note(format!("ask: {asked:?}"));
        let typed = self.as_typed(&asked);
        self.desk.ask(asked, typed)
    }

    /// Asks, and works until the answer is there.
    pub(super) fn wait(&mut self, asked: Asked) -> Result<(Asked, Answer), Finding> {
        self.ask(asked)?;
        self.answer()
    }

    /// Works until the answer of what was asked is there.
    pub(super) fn answer(&mut self) -> Result<(Asked, Answer), Finding> {
        let mut idle = 0;
        loop {
            if let Some((asked, answer)) = self.desk.go_on()? {
                self.check_names(&asked, &answer)?;
                return Ok((asked, answer));
            }
            let Self { machine, desk, .. } = self;
            for _ in 0..STEPS_PER_TURN {
                if machine.step() {
                    idle = 0;
                } else {
                    machine.pass_time();
                    idle = if desk.is_pausing() { 0 } else { idle + 1 };
                    break;
                }
                machine.check_progress(0, || desk.waiting())?;
            }
            machine.check_progress(idle, || desk.waiting())?;
        }
    }

    /// Asks, and judges the answer.
    pub(super) fn call(&mut self, asked: Asked) -> Result<(), Finding> {
        let (asked, answer) = self.wait(asked)?;
        self.judge(asked, answer)
    }

    /// Asks for what must be told.
    pub(super) fn read(&mut self, request: Request) -> Result<Reply, Finding> {
        let (asked, answer) = self.wait(Asked::Request(Box::new(request)))?;
        answer.map_err(|error| wrong(&asked, &error.to_string()))
    }

    /// Whether an answer is right; then what follows from it is expected.
    pub(super) fn judge(&mut self, asked: Asked, answer: Answer) -> Result<(), Finding> {
        if self.machine.is_outage() {
            return self.judge_in_outage(asked, answer);
        }
        let Asked::Request(request) = &asked else {
            answer.map_err(|error| wrong(&asked, &error.to_string()))?;
            return if asked == Asked::Watch { self.settle_queue() } else { Ok(()) };
        };
        self.note_due(None);
        self.check_jobs(&asked, request, &answer)?;
        match (self.expected.after(request), answer) {
            (Ok(after), Ok(reply)) => {
                self.machine.trace.note(format!("granted: {}", request.name()));
                let mut after = after;
                if let Reply::AggregateAdd(info) = &reply {
                    let joining = info.disks.iter().filter(|disk| disk.state != DiskState::InUse);
                    let is_taken = |disk: &&DiskInfo| after.disks.is_known(path_of(disk));
                    let joining: Vec<String> =
                        joining.filter(is_taken).map(path_of).cloned().collect();
                    joining.iter().for_each(|disk| after.disks.doubt(disk));
                }
                if let (Request::VolumeDelete(wanted), Reply::VolumeDelete(removal)) =
                    (&**request, &reply)
                {
                    after.note_kept(&wanted.name, removal.kept_until, self.now());
                }
                views::check(&after, request, &reply).map_err(|text| wrong(&asked, &text))?;
                self.is_to_look = after != self.expected;
                self.expected = after;
            }
            (Err(code), Err(error)) if is_refused(code, request, &error) => {
                self.machine.trace.note(format!("refused: {error}"));
                self.machine.trace.meet("operator: a call refused");
                self.is_to_look = true;
            }
            (Ok(_), Err(error))
                if is_excused(request, &error) || self.is_of_gone_disk(request, &error) =>
            {
                self.machine.trace.note(format!("excused: {error}"));
                self.machine.trace.meet(match &**request {
                    _ if is_of_disks(request) => "operator: a call refused by work with disks",
                    Request::ScrubChange(_) => "operator: a call refused by a scrub",
                    Request::JobChange(_) => "operator: a call refused by a job",
                    _ => "operator: a call refused for want of room",
                });
                self.is_to_look = true;
            }
            (Ok(_), Err(error)) => {
                return Err(wrong(&asked, &format!("refused, and should not be: {error}")));
            }
            (Err(code), answer) => {
                return Err(wrong(&asked, &format!("should be refused ({code}): {answer:?}")));
            }
        }
        self.machine.trace.meet(met(request));
        if matches!(**request, Request::CloneSplit(_)) {
            splits::settle(&mut self.machine, &mut self.expected, None)?;
        }
        self.forget_tenants();
        self.add_tenants()?;
        self.check_clients()
    }

    /// Whether a call was refused because a disk is not there, or refuses writes, rightly.
    fn is_of_gone_disk(&self, request: &Request, error: &AdminError) -> bool {
        let is_its =
            |cause: &String| [" is gone", "write error"].iter().any(|of| cause.contains(of));
        let is_said = error.cause.iter().any(is_its);
        is_said && is_of_disks(request) && self.machine.gone_disk().is_some()
    }

    /// Nobody works any more on volumes that are gone, nor on those that are deleted and kept until
    /// they are back.
    pub(super) fn forget_tenants(&mut self) {
        let Self { tenants, absent, expected, .. } = self;
        let is_gone = |tenant: &mut Tenant| !expected.volumes.contains_key(&tenant.name);
        for mut tenant in tenants.extract_if(.., is_gone) {
            let mut kept = expected.deleted.values().filter(|kept| kept.former_name == tenant.name);
            let number = kept
                .find(|kept| !absent.contains_key(&kept.volume.number))
                .map(|kept| kept.volume.number);
            if let Some(number) = number {
                // What was answered before the deletion is durable with it. What an outage cut off
                // is known when the volume is back.
                if tenant.is_idle() {
                    tenant.all_durable();
                }
                absent.insert(number, tenant);
            }
        }
        let kept = expected.deleted.values().map(|kept| &kept.volume);
        let numbers = expected.volumes.values().chain(kept).map(|volume| volume.number);
        let numbers: Vec<u32> = numbers.collect();
        absent.retain(|number, _| numbers.contains(number));
    }

    pub(super) fn now(&self) -> u64 {
        self.machine.world.monotonic_nanoseconds()
    }

    /// A process has begun, or an aggregate is back: what management sees from now on.
    pub(super) fn note_seen(&mut self, after: Option<&mut Expected>, is_new_process: bool) {
        let now = self.now();
        self.expected.note_seen(now, is_new_process);
        if let Some(after) = after {
            after.note_seen(now, is_new_process);
        }
    }

    /// Time has passed: what is expected is that, and what is there if the call has happened that
    /// was cut off.
    pub(super) fn note_due(&mut self, after: Option<&mut Expected>) {
        let now = self.now();
        self.expected.note_due(now);
        if let Some(after) = after {
            after.note_due(now);
        }
    }

    /// After a look of management: which volumes it has purged.
    pub(super) fn settle_queue(&mut self) -> Result<(), Finding> {
        self.note_due(None);
        if !self.expected.is_any_due() || self.machine.aggregate().is_none() {
            return Ok(());
        }
        self.machine.consistency_point()?;
        let before = self.expected.deleted.len();
        self.look_at_queue()?;
        if self.expected.deleted.len() < before {
            self.machine.trace.meet("operator: a deleted volume is purged when its time is over");
            self.forget_tenants();
        }
        Ok(())
    }

    fn look_at_queue(&mut self) -> Result<(), Finding> {
        let Reply::VolumeListDeleted(list) = self.read(Request::VolumeListDeleted)? else {
            return Ok(());
        };
        let asked = Asked::Request(Box::new(Request::VolumeListDeleted));
        self.expected.check_deleted(&list).map_err(|text| wrong(&asked, &text))?;
        self.expected.settle_deleted(&list);
        Ok(())
    }

    /// Clients are let in by the rules that there are.
    pub(super) fn check_clients(&self) -> Result<(), Finding> {
        let (expected, told) = (self.expected.exports(), self.desk.clients().exports());
        if expected == told && !self.desk.clients().is_any_away() {
            return Ok(());
        }
        let text = format!("clients are let in by {told:?}, the rules are {expected:?}");
        Err(Finding::Operator { asked: "who is let in".to_owned(), wrong: text })
    }

    /// Whether the jobs of an answer have the rates and pauses that were set, and the engine too.
    fn check_jobs(
        &mut self,
        asked: &Asked,
        request: &Request,
        answer: &Answer,
    ) -> Result<(), Finding> {
        self.jobs_seen.note_call(request, answer.is_ok());
        let Ok(reply) = answer else { return Ok(()) };
        let is_wrong = |text: String| wrong(asked, &text);
        self.jobs_seen.take_in(reply).map_err(is_wrong)?;
        match reply {
            Reply::JobList(list) => check_engine(&self.machine, list).map_err(is_wrong),
            _ => Ok(()),
        }
    }

    /// What is typed for a call: short names now and then.
    pub(super) fn as_typed(&self, asked: &Asked) -> Asked {
        match asked {
            Asked::Request(request) if self.machine.trace.step.is_multiple_of(TYPED_SHORT) => {
                Asked::Request(Box::new(self.names_seen.short(request)))
            }
            _ => asked.clone(),
        }
    }

    /// Whether the names in an answer are those of before.
    pub(super) fn check_names(&mut self, asked: &Asked, answer: &Answer) -> Result<(), Finding> {
        let shown = answer.as_ref().map(disks_of).unwrap_or_default();
        if shown.iter().any(|disk| disk.name != *path_of(disk)) {
            self.machine.trace.meet("operator: short names of disks");
        }
        let checked = self.names_seen.take_in(&shown, &self.expected.disks);
        checked.map_err(|text| wrong(asked, &text))
    }
}

/// A call in the coverage.
const fn met(request: &Request) -> &'static str {
    match request {
        Request::VolumeCreate(_) => "operator: volume create",
        Request::CloneCreate(_) => "operator: clone create",
        Request::CloneSplit(_) => "operator: clone split",
        Request::VolumeDelete(_) => "operator: volume delete",
        Request::VolumeUndelete(_) => "operator: volume undelete",
        Request::VolumePurge(_) => "operator: volume purge",
        Request::AggregateDelete(_) => "operator: aggr delete",
        Request::VolumeSet(_) => "operator: volume set",
        Request::VolumeResize(_) => "operator: volume resize",
        Request::VolumeRename(_) => "operator: volume rename",
        Request::VolumeOffline(_) => "operator: volume offline",
        Request::VolumeOnline(_) => "operator: volume online",
        Request::SnapshotCreate(_) => "operator: snapshot create",
        Request::SnapshotDiff(_) => "operator: snapshot diff",
        Request::SnapshotHold(_) => "operator: snapshot hold or release",
        Request::SnapshotDelete(_) => "operator: snapshot delete",
        Request::SnapshotRestore(_) => "operator: snapshot restore",
        Request::ExportAdd(_) | Request::ExportRemove(_) => "operator: export rules changed",
        Request::QuotaSet(_) | Request::QuotaDelete(_) => "operator: quotas",
        Request::FuseMount(_) | Request::FuseUnmount(_) => "operator: mounts",
        Request::ScrubChange(_) => "operator: scrub",
        Request::SpareAdd(_) | Request::SpareRemove(_) => "operator: spares",
        Request::DiskFail(_) => "operator: disk fail",
        Request::DiskReplace(_) => "operator: disk replace",
        Request::DiskZero(_) => "operator: disk zero",
        Request::AggregateAdd(_) => "operator: disks join",
        Request::GroupRemove(_) => "operator: a group leaves",
        Request::JobChange(_) => "operator: jobs changed",
        _ => "operator: other calls",
    }
}

/// Whether a call that is granted else may be refused like this.
fn is_excused(request: &Request, error: &AdminError) -> bool {
    let is_full = error.cause.iter().any(|cause| cause.contains(" is full"));
    match error.code {
        Code::Conflict => {
            depends_on_background(request)
                || is_full && takes_room(request)
                || matches!(request, Request::CloneSplit(_)) && has_no_room(error)
                || matches!(request, Request::VolumeResize(_)) && is_too_small(error)
                || has_no_guarantee(error)
        }
        Code::NotFound => is_of_disks(request) || matches!(request, Request::JobChange(_)),
        _ => false,
    }
}

/// Whether what is to be copied has no room.
fn has_no_room(error: &AdminError) -> bool {
    error.cause.iter().any(|cause| cause.ends_with(" are needed"))
}

/// Whether what would be guaranteed to a volume is not free.
fn has_no_guarantee(error: &AdminError) -> bool {
    error.cause.iter().any(|cause| cause.ends_with("needed for blocks that move"))
}

/// Whether a volume uses more than it was to have.
fn is_too_small(error: &AdminError) -> bool {
    error.cause.iter().any(|cause| cause.contains("its files"))
}

/// Whether a call that must be refused was refused rightly.
fn is_refused(code: Code, request: &Request, error: &AdminError) -> bool {
    let is_like_it = matches!(error.code, Code::Conflict | Code::NotFound);
    error.code == code || is_of_disks(request) && is_like_it
}

pub(super) fn wrong(asked: &Asked, wrong: &str) -> Finding {
    Finding::Operator { asked: format!("{asked:?}"), wrong: wrong.to_owned() }
}

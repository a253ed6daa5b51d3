//! The disks of the aggregates as they were at the last look, and what has happened to them since.
//!
//! Invariants:
//! - A disk is known by its aggregate and its identity, whatever path it has at this start; it is
//!   told by its short name, if it has one.
//! - Each change is told once, also if the server was restarted in between.
//! - Of an aggregate that could not be opened nobody can tell: its disks stay as they were known.
//! - Errors of one disk are told once in [`ERRORS_REST_NANOSECONDS`], with their number since.
//!
//! Fails: never; of more than [`DISKS_MAX`] disks the aggregates that are last are not followed.

use crate::disks::shown::unnamed;
use crate::events::ring::Happening;
use crate::pace::more_may_fail;
use admin_api::EventSeverity;
use raid::{ErrorCounts, GroupStatus, MemberState, MemberStatus};
use std::collections::BTreeSet;
use units::{AggregateUuid, DiskUuid};

/// Disks that are followed: some for each aggregate of the largest node.
pub(crate) const DISKS_MAX: usize = 4096;
/// How long after errors of a disk were told more errors of it are collected.
const ERRORS_REST_NANOSECONDS: u64 = 60_000_000_000;

/// What a disk is to its aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Member { group: u32, member: u32 },
    Spare,
}

/// Whether a disk holds what its place must.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    Whole,
    /// It is being filled.
    Filling,
    Missing,
    Failed,
}

impl Presence {
    const fn is_there(self) -> bool {
        matches!(self, Self::Whole | Self::Filling)
    }
}

/// A disk as it was at the last look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KnownDisk {
    pub aggregate: AggregateUuid,
    /// The aggregate's name.
    pub owner: String,
    pub place: Place,
    pub identity: DiskUuid,
    /// Its name.
    pub disk: String,
    pub presence: Presence,
    pub is_sick: bool,
    /// The errors that were told.
    pub told: ErrorCounts,
    /// When errors were told last, by the monotonic clock. Not kept over a restart.
    pub told_nanoseconds: Option<u64>,
}

/// An aggregate that is in sight: in service, or as it was when it lost a disk too many.
pub(crate) struct Sight<'a> {
    pub identity: AggregateUuid,
    pub name: &'a str,
    pub status: &'a raid::Status,
    /// The short name of a disk, if it has one.
    pub short_name: &'a dyn Fn(&DiskUuid) -> Option<String>,
}

/// See the module.
#[derive(Clone, Default, Debug)]
pub(crate) struct Disks(pub Vec<KnownDisk>);

impl Disks {
    /// Takes in a look at the aggregates in sight; what has happened. `unopened` are those that are
    /// known and could not be opened; `is_deleted` tells whether an administrator deleted one.
    pub(crate) fn observe(
        &mut self,
        now: u64,
        sights: &[Sight<'_>],
        unopened: &[AggregateUuid],
        is_deleted: impl Fn(&AggregateUuid) -> bool,
    ) -> Vec<Happening> {
        let mut happened = Vec::new();
        let before = std::mem::take(&mut self.0);
        let is_in_sight =
            |identity: &AggregateUuid| sights.iter().any(|sight| sight.identity == *identity);
        let mut gone: BTreeSet<(AggregateUuid, String)> = BTreeSet::new();
        for known in before.iter().filter(|known| !is_in_sight(&known.aggregate)) {
            if unopened.contains(&known.aggregate) {
                self.0.push(known.clone());
            } else {
                gone.insert((known.aggregate, known.owner.clone()));
            }
        }
        happened.extend(gone.into_iter().map(|(identity, owner)| {
            if is_deleted(&identity) {
                let cause = "an administrator deleted it; disks of it that were missing bring \
                             nothing back";
                return Happening::new(EventSeverity::Info, "AGGR_DELETED", owner, cause);
            }
            let cause = "none of its disks is there any more";
            Happening::new(EventSeverity::Warning, "AGGR_NOT_FOUND", owner, cause).next(
                "attach its disks, and it is opened by itself; nothing, if they were given to \
                 another use",
            )
        }));
        for sight in sights {
            let members = sight.status.groups.iter().map(|group| group.members.len());
            let count = members.sum::<usize>() + sight.status.spares.len();
            if self.0.len() + count > DISKS_MAX {
                // All disks of an aggregate, or none: a disk that is forgotten would be told again.
                continue;
            }
            let known: Vec<&KnownDisk> =
                before.iter().filter(|known| known.aggregate == sight.identity).collect();
            let mut look = Look { sight, known: &known, now, happened: &mut happened };
            let seen = look.members();
            let spares = look.spares(&seen);
            self.0.extend(seen.into_iter().chain(spares));
        }
        happened
    }
}

/// A look at one aggregate.
struct Look<'a> {
    sight: &'a Sight<'a>,
    known: &'a [&'a KnownDisk],
    now: u64,
    happened: &'a mut Vec<Happening>,
}

impl Look<'_> {
    fn tell(&mut self, happening: Happening) {
        self.happened.push(happening);
    }

    /// What a disk is called that is, or was, called `name` inside. At this start `name` may be
    /// another disk's.
    fn called(&self, identity: &DiskUuid, name: &str) -> String {
        (self.sight.short_name)(identity).unwrap_or_else(|| name.to_owned())
    }

    fn known(&self, identity: DiskUuid) -> Option<KnownDisk> {
        let mut known = self.known.iter().filter(|known| known.place != Place::Spare);
        known.find(|known| known.identity == identity).map(|known| (*known).clone())
    }

    /// The disks in their places.
    fn members(&mut self) -> Vec<KnownDisk> {
        let sight = self.sight;
        let mut seen = Vec::new();
        for (group, status) in (0..).zip(&sight.status.groups) {
            for (at, member) in (0..).zip(&status.members) {
                let place = Place::Member { group, member: at };
                seen.push(self.member(place, member, status));
            }
        }
        seen
    }

    fn member(&mut self, place: Place, member: &MemberStatus, group: &GroupStatus) -> KnownDisk {
        let before = self.known(member.identity);
        let known_name = || before.as_ref().map(|known| known.disk.clone());
        let name = member.name.clone().or_else(known_name);
        let name = name.unwrap_or_else(|| unnamed(&member.identity));
        let called = self.called(&member.identity, &name);
        let presence = presence_of(member);
        if before.is_none() {
            self.replaced(place, &called, presence);
        }
        let was = before.as_ref().map_or(Presence::Whole, |known| known.presence);
        self.changed(&called, (was, presence), (member, group));
        let was_sick = before.as_ref().is_some_and(|known| known.is_sick);
        let is_sick = match presence.is_there() {
            true => member.sickness.is_some(),
            false => was_sick,
        };
        self.health(&called, (was_sick, is_sick), member);
        let (told, told_nanoseconds) = self.errors(&called, before.as_ref(), member);
        KnownDisk {
            aggregate: self.sight.identity,
            owner: self.sight.name.to_owned(),
            place,
            identity: member.identity,
            disk: name,
            presence,
            is_sick,
            told,
            told_nanoseconds,
        }
    }

    /// A disk has a place that it had not before: whether another had it.
    fn replaced(&mut self, place: Place, name: &str, presence: Presence) {
        let owner = self.sight.name;
        let Some(old) = self.known.iter().find(|known| known.place == place) else { return };
        let filled = match presence {
            Presence::Filling => ", and is being filled",
            Presence::Whole => ", and holds all of it",
            Presence::Missing | Presence::Failed => "",
        };
        let Place::Member { group, .. } = place else { return };
        let cause = format!("{name} has its place in group {group} of aggregate {owner}{filled}");
        let was_there = old.presence.is_there();
        let old = self.called(&old.identity, &old.disk);
        // A copy has a place when it is whole. A disk that is filled anew took the place of one
        // that was lost, perhaps since the last look.
        if was_there && presence == Presence::Filling {
            let cause = format!("aggregate {owner} does without it; {name} took its place at once");
            self.tell(Happening::new(EventSeverity::Warning, "DISK_FAILED", old.clone(), cause));
        }
        let told = Happening::new(EventSeverity::Info, "DISK_REPLACED", old, cause);
        self.tell(told);
    }

    /// Whether a disk left, failed, or came back.
    fn changed(
        &mut self,
        name: &str,
        (was, is): (Presence, Presence),
        (member, group): (&MemberStatus, &GroupStatus),
    ) {
        let owner = self.sight.name;
        let left = more_may_fail(group.survivable_failures());
        let replace = format!("stroop disk replace {name} NEW");
        let told = match (was, is) {
            (Presence::Missing | Presence::Failed, Presence::Filling) => Happening::new(
                EventSeverity::Info,
                "DISK_RETURNED",
                name,
                format!("aggregate {owner} has it again; what it missed is written to it"),
            ),
            (Presence::Missing | Presence::Failed, Presence::Whole) => Happening::new(
                EventSeverity::Info,
                "DISK_RETURNED",
                name,
                format!("aggregate {owner} has it again, and it lacks nothing"),
            ),
            (was, Presence::Missing) if was != Presence::Missing => {
                let cause = match &member.state {
                    MemberState::Failed { reason } => format!("{reason}; "),
                    _ => String::new(),
                };
                let cause = format!("{cause}aggregate {owner} does without it; {left}");
                Happening::new(EventSeverity::Warning, "DISK_MISSING", name, cause)
                    .next(format!("put it back, and it is taken back by itself; or {replace}"))
            }
            (was, Presence::Failed) if was != Presence::Failed => {
                let cause = match &member.state {
                    MemberState::Failed { reason } => reason.as_str(),
                    _ => "it failed before the server was started",
                };
                let cause = format!("{cause}; aggregate {owner} does without it; {left}");
                Happening::new(EventSeverity::Warning, "DISK_FAILED", name, cause).next(replace)
            }
            _ => return,
        };
        self.tell(told);
    }

    fn health(&mut self, name: &str, (was_sick, is_sick): (bool, bool), member: &MemberStatus) {
        let owner = self.sight.name;
        match (was_sick, is_sick, &member.sickness) {
            (false, true, Some(sickness)) => {
                let cause = format!("{sickness}; aggregate {owner} uses it still");
                let told = Happening::new(EventSeverity::Warning, "DISK_SICK", name, cause);
                self.tell(told.next(format!(
                    "stroop disk spare add DISK, to which it is copied; or stroop disk replace \
                     {name} NEW"
                )));
            }
            (true, false, _) => {
                let cause = "its errors are forgotten";
                let code = "DISK_SICK_CLEARED";
                self.tell(Happening::new(EventSeverity::Info, code, name, cause));
            }
            _ => {}
        }
    }

    /// Which errors of a disk are told by now, and when.
    fn errors(
        &mut self,
        name: &str,
        before: Option<&KnownDisk>,
        member: &MemberStatus,
    ) -> (ErrorCounts, Option<u64>) {
        let found = member.errors;
        // What a disk had when it was first seen was told by somebody else.
        let Some(before) = before else { return (found, None) };
        let (told, at) = (before.told, before.told_nanoseconds);
        let more = |found: u32, told: u32| found.saturating_sub(told);
        let read = more(found.read_errors, told.read_errors);
        let write = more(found.write_errors, told.write_errors);
        let checksum = more(found.checksum_errors, told.checksum_errors);
        if (read, write, checksum) == (0, 0, 0) {
            // They may be fewer: somebody cleared them, or a crash came before the labels.
            return (found, at);
        }
        if at.is_some_and(|at| self.now.saturating_sub(at) < ERRORS_REST_NANOSECONDS) {
            return (told, at);
        }
        let repaired = self.sight.status.counters.repaired_blocks;
        let cause = format!(
            "{read} read, {write} write and {checksum} checksum errors more; {repaired} blocks of \
             aggregate {} were made good from parity since it came into service",
            self.sight.name
        );
        let next = format!("stroop aggr show {}", self.sight.name);
        let told = Happening::new(EventSeverity::Warning, "DISK_ERRORS", name, cause);
        self.tell(told.next(next));
        (found, Some(self.now))
    }

    /// The spares; `members` have the places of the aggregate now.
    fn spares(&mut self, members: &[KnownDisk]) -> Vec<KnownDisk> {
        let sight = self.sight;
        let spare = |disk: &str, identity| KnownDisk {
            aggregate: sight.identity,
            owner: sight.name.to_owned(),
            place: Place::Spare,
            identity,
            disk: disk.to_owned(),
            presence: Presence::Whole,
            is_sick: false,
            told: ErrorCounts::default(),
            told_nanoseconds: None,
        };
        let listed = &sight.status.spares;
        let mut seen: Vec<KnownDisk> =
            listed.iter().map(|one| spare(&one.name, one.identity)).collect();
        let filled = |name: &str| {
            let mut all = sight.status.groups.iter().flat_map(|group| &group.members);
            all.any(|member| member.replacement.as_ref().is_some_and(|copy| copy.name == name))
        };
        for known in self.known.iter().filter(|known| known.place == Place::Spare) {
            let is_listed =
                listed.iter().any(|one| one.identity == known.identity || one.name == known.disk);
            if is_listed {
                continue;
            }
            if sight.status.leaving_disks.contains(&known.disk) {
                // It is about to have a place, or none.
                seen.push((*known).clone());
                continue;
            }
            let name = known.disk.as_str();
            let has_place = members.iter().any(|one| {
                one.identity == known.identity || one.disk == name && one.presence.is_there()
            });
            let (owner, left) = (sight.name, listed.len());
            let called = self.called(&known.identity, name);
            let told = if has_place || filled(name) {
                let cause = format!(
                    "aggregate {owner} uses it in the place of a disk that is lost, sick or \
                     replaced; spares left: {left}"
                );
                let told = Happening::new(EventSeverity::Warning, "SPARE_TAKEN", called, cause);
                told.next(format!("stroop disk spare add DISK --aggr {owner}"))
            } else {
                let cause =
                    format!("it is no spare of aggregate {owner} any more, and has no place");
                Happening::new(EventSeverity::Warning, "SPARE_GONE", called, cause)
                    .next("stroop disk list")
            };
            self.tell(told);
        }
        seen
    }
}

fn presence_of(member: &MemberStatus) -> Presence {
    match member.state {
        MemberState::Online => Presence::Whole,
        MemberState::Rebuilding { .. } => Presence::Filling,
        MemberState::Missing | MemberState::Failed { .. } if member.is_away => Presence::Missing,
        MemberState::Missing | MemberState::Failed { .. } => Presence::Failed,
    }
}

#[cfg(test)]
pub(crate) mod tests;

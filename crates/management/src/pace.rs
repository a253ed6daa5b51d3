//! Figures in words: how far and how fast something is that takes a while (rebuilds, copies, groups
//! that leave), which errors a disk has, how many more may fail.
//!
//! Invariant: what is not known yet is left out, never guessed.

use admin_api::{Activity, DiskInfo, duration};
use dblade::AggregateSummary;
use raid::{MemberState, MemberStatus, Pace, ReplacementStatus};
use std::collections::VecDeque;
use units::ByteSize;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// The pace is that of the last so many nanoseconds: a minute, as raid tells it of rebuilds.
const RECENT_NANOSECONDS: u64 = 60 * NANOSECONDS_PER_SECOND;

/// How something got on of late: how many bytes were done, and when.
#[derive(Clone, Default, Debug)]
pub(crate) struct Recent(VecDeque<(u64, u64)>);

impl Recent {
    /// Notes how much is done. One note a second is kept, and the last.
    pub(crate) fn add(&mut self, now: u64, done_bytes: u64) {
        let before_last = self.0.len().checked_sub(2).and_then(|at| self.0.get(at));
        if before_last.is_some_and(|(at, _)| now.saturating_sub(*at) < NANOSECONDS_PER_SECOND) {
            self.0.pop_back();
        }
        self.0.push_back((now, done_bytes));
        let is_old = |at: u64| now.saturating_sub(at) >= RECENT_NANOSECONDS;
        while self.0.get(1).is_some_and(|(at, _)| is_old(*at)) {
            self.0.pop_front();
        }
    }

    /// How fast it gets on, and when so many bytes more will be done.
    pub(crate) fn pace(&self, left_bytes: u64) -> Pace {
        let (Some((then, before)), Some((now, done))) = (self.0.front(), self.0.back()) else {
            return Pace::default();
        };
        let nanoseconds = u128::from(now.saturating_sub(*then));
        let bytes = u128::from(done.saturating_sub(*before)) * u128::from(NANOSECONDS_PER_SECOND);
        let per_second = bytes.checked_div(nanoseconds).unwrap_or(0);
        let number = |wide: u128| u64::try_from(wide).unwrap_or(u64::MAX);
        let seconds_left = u128::from(left_bytes).checked_div(per_second).map(number);
        Pace { bytes_per_second: number(per_second), seconds_left }
    }
}

/// The disks that take the places of lost ones.
pub(crate) fn rebuilding(summary: &AggregateSummary) -> Vec<Activity> {
    let members = members(summary).filter_map(|member| {
        let MemberState::Rebuilding { rebuilt_regions, regions, pace } = &member.state else {
            return None;
        };
        let name = member.name.as_deref().unwrap_or("a disk");
        Some(activity(format!("rebuilding to {name}"), (*rebuilt_regions, *regions), pace))
    });
    members.collect()
}

/// The spare to which a disk in use is copied, if there is one.
pub(crate) fn copying(summary: &AggregateSummary, disk: &str) -> Vec<Activity> {
    let mut members = members(summary).filter(|member| member.name.as_deref() == Some(disk));
    let replacement = members.find_map(|member| member.replacement.as_ref());
    let copy = replacement.map(|replacement| {
        let what = format!("copying to {}, which takes its place then", replacement.name);
        activity(what, (replacement.copied_regions, replacement.regions), &replacement.pace)
    });
    copy.into_iter().collect()
}

fn members(summary: &AggregateSummary) -> impl Iterator<Item = &MemberStatus> {
    summary.status.groups.iter().flat_map(|group| &group.members)
}

pub(crate) fn activity(what: String, (done, all): (u64, u64), pace: &Pace) -> Activity {
    let nanoseconds = |seconds: u64| seconds.saturating_mul(NANOSECONDS_PER_SECOND);
    Activity {
        what,
        done_percent: 100 * done / all.max(1),
        bytes_per_second: pace.seconds_left.map(|_| pace.bytes_per_second),
        left_ns: pace.seconds_left.map(nanoseconds),
    }
}

/// How fast something gets on, and when it will be over, as far as that is known.
pub(crate) fn outlook(pace: &Pace) -> String {
    let Some(seconds) = pace.seconds_left else { return String::new() };
    let rate = ByteSize(pace.bytes_per_second);
    let left = duration::format(seconds.saturating_mul(1_000_000_000));
    format!(", {rate}/s, about {left}")
}

/// How much of a disk was copied.
pub(crate) const fn copied_percent(replacement: &ReplacementStatus) -> u64 {
    let regions = if replacement.regions == 0 { 1 } else { replacement.regions };
    100 * replacement.copied_regions / regions
}

/// "12 read, 0 write and 3 checksum errors".
pub(crate) fn errors_of(disk: &DiskInfo) -> String {
    let DiskInfo { read_errors, write_errors, checksum_errors, .. } = disk;
    format!("{read_errors} read, {write_errors} write and {checksum_errors} checksum errors")
}

/// "1 more disk may fail".
pub(crate) fn more_may_fail(left: usize) -> String {
    format!("{left} more {} may fail", if left == 1 { "disk" } else { "disks" })
}

//! What is being done about disks: rebuilds and copies, for the health checks.

use admin_api::Activity;
use dblade::AggregateSummary;
use raid::{MemberState, MemberStatus, Pace};

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// The disks that take the places of lost ones.
pub(super) fn rebuilding(summary: &AggregateSummary) -> Vec<Activity> {
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
pub(super) fn copying(summary: &AggregateSummary, disk: &str) -> Vec<Activity> {
    let mut members = members(summary).filter(|member| member.name.as_deref() == Some(disk));
    let successor = members.find_map(|member| member.successor.as_ref());
    let copy = successor.map(|successor| {
        let what = format!("copying to {}, which takes its place then", successor.name);
        activity(what, (successor.copied_regions, successor.regions), &successor.pace)
    });
    copy.into_iter().collect()
}

fn members(summary: &AggregateSummary) -> impl Iterator<Item = &MemberStatus> {
    summary.status.groups.iter().flat_map(|group| &group.members)
}

pub(super) fn activity(what: String, (done, all): (u64, u64), pace: &Pace) -> Activity {
    let nanoseconds = |seconds: u64| seconds.saturating_mul(NANOSECONDS_PER_SECOND);
    Activity {
        what,
        done_percent: 100 * done / all.max(1),
        bytes_per_second: pace.seconds_left.map(|_| pace.bytes_per_second),
        left_ns: pace.seconds_left.map(nanoseconds),
    }
}

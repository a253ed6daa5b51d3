//! `stroop status`: what a person looks at first.

use super::aggregate::table;
use crate::output::Output;
use crate::quantities::count;
use crate::terminal::wrapped;
use admin_api::{
    Activity, AdminError, Administration, AggregateInfo, AggregateState, Code, DiskInfo, Health,
    HealthCheck, StatusReply, duration,
};
use units::ByteSize;

pub(super) fn status(
    node: &dyn Administration,
    check: bool,
    (colour, columns): (bool, Option<usize>),
) -> Result<Output, AdminError> {
    let status = node.status()?;
    let mut output = Output::of(&status.node, &status)?;
    if check && status.health != Health::Ok {
        output.status = Code::Unhealthy.exit_status();
    }
    output.head = head(&status, colour);
    output.table = Some(table(&status.aggregates));
    for line in disks_with_errors(&status) {
        output = output.line(line);
    }
    for volume in &status.offline_volumes {
        output = output.line(format!(
            "volume {volume} is offline, by an administrator: stroop volume online {volume}"
        ));
    }
    for mount in &status.mounts {
        output = output.line(format!("mount {} at {}", mount.volume, mount.mountpoint));
    }
    for activity in &status.now {
        output = output.line(format!("now    {}", doing(activity)));
    }
    for check in &status.checks {
        output.lines.extend(check_lines(check, columns));
    }
    if status.aggregates.is_empty() {
        return Ok(output.next("stroop disk list"));
    }
    // The volumes of an aggregate that is out of service are there, and keep their names.
    let is_online = |one: &AggregateInfo| one.state != AggregateState::Offline;
    if status.volumes == 0 && status.aggregates.iter().all(is_online) {
        let aggregate = match status.aggregates.as_slice() {
            [] | [_] => String::new(),
            [first, ..] => format!(" --aggr {}", units::shell_word(&first.name)),
        };
        return Ok(output.next(format!(
            "stroop volume create home{aggregate} --size 1G --export 127.0.0.1:rw"
        )));
    }
    Ok(output)
}

/// A check, none of its lines wider than the terminal: the text goes on below itself.
fn check_lines(check: &HealthCheck, columns: Option<usize>) -> Vec<String> {
    let HealthCheck { code, object, message, now, action, .. } = check;
    let mut lines = wrapped(&format!("{CHECK}{code}  {object}: {message}"), columns, CHECK.len());
    let below = now.iter().map(|now| format!("{NOW}{}", doing(now)));
    for line in below.chain([format!("{ACTION}{action}")]) {
        lines.extend(wrapped(&line, columns, ACTION.len()));
    }
    lines
}

/// "rebuilding to d7  [#######------]  54%  412MiB/s  about 2h10m".
fn doing(activity: &Activity) -> String {
    let Activity { what, done_percent, bytes_per_second, left_ns } = activity;
    let filled = (*done_percent).min(100) * BAR_COLUMNS / 100;
    let bar: String = (0..BAR_COLUMNS).map(|at| if at < filled { '#' } else { '-' }).collect();
    let mut line = format!("{what}  [{bar}]  {done_percent}%");
    if let Some(rate) = bytes_per_second {
        line.push_str(&format!("  {}/s", ByteSize(*rate)));
    }
    if let Some(left) = left_ns {
        line.push_str(&format!("  about {}", duration::format(*left)));
    }
    line
}

/// How the lines of a check begin.
const CHECK: &str = "check ";
const NOW: &str = "      now:    ";
const ACTION: &str = "      action: ";
/// How long a bar is.
const BAR_COLUMNS: u64 = 13;
/// Disks with errors that are named; the others are in the list of disks.
const DISKS_WITH_ERRORS_MAX: usize = 16;

/// The disks that had errors, in the columns of the list of disks.
fn disks_with_errors(status: &StatusReply) -> Vec<String> {
    let disks = status.aggregates.iter().flat_map(|aggregate| &aggregate.disks);
    let has_errors = |disk: &&DiskInfo| {
        disk.sick || disk.read_errors + disk.write_errors + disk.checksum_errors > 0
    };
    let found: Vec<&DiskInfo> = disks.filter(has_errors).collect();
    let line = |disk: &&DiskInfo| {
        format!(
            "errors {}  READ {}  WRITE {}  CKSUM {}{}",
            disk.name,
            disk.read_errors,
            disk.write_errors,
            disk.checksum_errors,
            if disk.sick { "  sick" } else { "" }
        )
    };
    let mut lines: Vec<String> = found.iter().take(DISKS_WITH_ERRORS_MAX).map(line).collect();
    if found.len() > DISKS_WITH_ERRORS_MAX {
        let more = found.len() - DISKS_WITH_ERRORS_MAX;
        lines.push(format!("errors on {} more: stroop disk list", count(more as u64, "disk")));
    }
    lines
}

fn head(status: &StatusReply, colour: bool) -> Vec<String> {
    let health = match (status.health, colour) {
        (health, false) => health.to_string(),
        (Health::Ok, true) => "\u{1b}[32mOK\u{1b}[0m".to_owned(),
        (Health::Warning, true) => "\u{1b}[33mWARNING\u{1b}[0m".to_owned(),
        (Health::Error, true) => "\u{1b}[31mERROR\u{1b}[0m".to_owned(),
    };
    let mut lines = vec![
        format!(
            "node  {}  state {health}  stroop {}  up {}",
            status.node,
            status.version,
            duration::format(status.uptime_ns)
        ),
        format!(
            "memory  {} of {}, at most {}  volumes {}",
            ByteSize(status.memory.used_bytes),
            ByteSize(status.memory.limit_bytes),
            ByteSize(status.memory.peak_bytes),
            status.volumes
        ),
    ];
    for listener in &status.listeners {
        lines.push(format!("listen  {} {}", listener.protocol, listener.address));
    }
    if let Some(recovery) = status.recovery {
        lines.push(format!(
            "replay  {}, {}, in {} for aggregates that were not stopped cleanly",
            count(recovery.operations, "operation"),
            ByteSize(recovery.bytes),
            duration::format(recovery.duration_ns)
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin_api::Severity;

    #[test]
    fn a_check_is_wrapped_within_the_terminal() {
        let check = HealthCheck {
            code: "AGGR_DEGRADED".to_owned(),
            severity: Severity::Warning,
            object: "a1".to_owned(),
            message: "data is complete, but without d3 (missing); 1 more may fail".to_owned(),
            now: Vec::new(),
            action: "see the cables, then: stroop disk replace d3 NEW".to_owned(),
        };
        let wide = check_lines(&check, None);
        assert_eq!(wide.len(), 2);
        assert_eq!(check_lines(&check, Some(100)), wide);
        let narrow = [
            "check AGGR_DEGRADED  a1: data is",
            "      complete, but without d3",
            "      (missing); 1 more may fail",
            "      action: see the cables, then:",
            "              stroop disk replace d3 NEW",
        ];
        assert_eq!(check_lines(&check, Some(40)), narrow);
        // A command stays whole in the narrowest terminal.
        let narrowest = check_lines(&check, Some(20));
        assert_eq!(narrowest.last().map(|line| line.trim()), Some("stroop disk replace d3 NEW"));
    }

    #[test]
    fn what_is_being_done_is_shown_as_far_as_it_is_known() {
        let mut activity = Activity {
            what: "rebuilding to d7".to_owned(),
            done_percent: 54,
            bytes_per_second: Some(412 << 20),
            left_ns: Some(7_800_000_000_000),
        };
        let line = "rebuilding to d7  [#######------]  54%  412MiB/s  about 2h10m";
        assert_eq!(doing(&activity), line);
        (activity.bytes_per_second, activity.left_ns, activity.done_percent) = (None, None, 100);
        assert_eq!(doing(&activity), "rebuilding to d7  [#############]  100%");
    }
}

//! `stroop status`: what a person looks at first.

use super::aggregate::table;
use super::count;
use crate::duration;
use crate::output::Output;
use admin_api::{AdminError, Administration, Code, Health, StatusReply};
use units::ByteSize;

pub(super) fn status(
    node: &dyn Administration,
    check: bool,
    colour: bool,
) -> Result<Output, AdminError> {
    let status = node.status()?;
    let mut output = Output::of(&status.node, &status)?;
    if check && status.health != Health::Ok {
        output.status = Code::Unhealthy.exit_status();
    }
    output.head = head(&status, colour);
    output.table = Some(table(&status.aggregates));
    for mount in &status.mounts {
        output = output.line(format!("mount {} at {}", mount.volume, mount.mountpoint));
    }
    for check in &status.checks {
        output = output
            .line(format!("check {}  {}: {}", check.code, check.object, check.message))
            .line(format!("      action: {}", check.action));
    }
    if status.aggregates.is_empty() {
        return Ok(output.next("stroop disk list"));
    }
    if status.volumes == 0 {
        return Ok(output.next("stroop volume create home --size 1G --export 127.0.0.1:rw"));
    }
    Ok(output)
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
            "replay  {}, {}, in {} when the server started, which had not been stopped cleanly",
            count(recovery.operations, "operation"),
            ByteSize(recovery.bytes),
            duration::format(recovery.duration_ns)
        ));
    }
    lines
}

//! What is checked, and how it was.

use crate::check_command::beat::Beat;
use crate::lock::StateLock;
use inspect::{Report, Scope};
use platform::Disk;
use serde_json::json;
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// How all errors of a check begin.
pub(crate) const MESSAGE: &str = "cannot check aggregate";

/// How the aggregate is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// In service: the image of a consistency point is held back.
    Online,
    /// Out of service in a server that has its disks open: blocks may be made good from parity.
    Failed,
    /// Out of service because it lost disks: what was being written then is as after a crash.
    Away,
    /// Not opened since the last server that had it ended.
    Offline,
}

impl Mode {
    pub(crate) const fn scope(self, is_clean: bool) -> Scope {
        match (self, is_clean) {
            // A block that is repaired just then is looked at again.
            (Self::Online | Self::Failed, _) => Scope::ONLINE,
            (Self::Offline, true) => Scope::OFFLINE,
            // Stripes that were being written may have parity that is not right yet.
            (Self::Away, _) | (Self::Offline, false) => Scope::AFTER_A_CRASH,
        }
    }
}

/// What is checked.
pub(crate) struct Subject {
    pub name: String,
    pub disks: Vec<Arc<dyn Disk>>,
    /// Disks that could not be opened, and why.
    pub left_out: Vec<String>,
    pub mode: Mode,
    /// The block of the superblock whose image is held back, online.
    pub superblock: Option<units::BlockRef>,
    pub beat: Beat,
    /// Keeps servers from starting, offline.
    #[expect(dead_code, reason = "it is held, not looked at")]
    pub lock: Option<StateLock>,
}

/// How it was checked.
pub(crate) struct Checked {
    pub report: Report,
    pub scope: Scope,
    pub cp: u64,
    pub is_clean: bool,
    pub missing_disks: usize,
    pub nanoseconds: u64,
}

/// What `-o json` says of how it was checked.
pub(crate) fn facts(subject: &Subject, checked: &Checked) -> serde_json::Value {
    let totals = checked.report.totals;
    json!({
        "aggregate": subject.name,
        "mode": if subject.mode == Mode::Online { "online" } else { "offline" },
        "consistency_point": checked.cp,
        "clean_stop": checked.is_clean,
        "parity_checked": checked.scope.has_parity,
        "checked_bytes": totals.blocks.saturating_mul(BLOCK_SIZE_U64),
        "volumes": totals.volumes,
        "snapshots": totals.snapshots,
        "files": totals.files,
        "parity_stripes": totals.stripes,
        "missing_disks": checked.missing_disks,
        "degraded_reads": totals.degraded_reads,
        "left_out_disks": subject.left_out,
        "duration_ns": checked.nanoseconds,
    })
}

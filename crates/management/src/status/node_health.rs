//! The health checks of what the node keeps on its own machine: its mounts, and its files in the
//! state directory. See [`super::health`] for the list of codes.
//!
//! Invariants: pure functions of what status found.

use crate::disks::deleted::Trouble;
use crate::ports::{AuditFailure, LockListTrouble};
use admin_api::{HealthCheck, MemoryUse, MountInfo, Severity};
use units::{ByteSize, shell_word};

/// The check of a mount on this machine.
pub(crate) fn check_mount(mount: &MountInfo) -> Option<HealthCheck> {
    let MountInfo { volume, mountpoint, write_back, missing } = mount;
    let option = if *write_back { " --write-back" } else { "" };
    missing.as_ref().map(|cause| HealthCheck {
        code: "MOUNT_MISSING".to_owned(),
        severity: Severity::Warning,
        object: mountpoint.clone(),
        now: Vec::new(),
        message: format!("volume '{volume}' is to be mounted here, and is not: {cause}"),
        action: format!(
            "stroop mount {} {place}{option}; or stroop unmount {place}, which gives the directory back \
             as it was before",
            shell_word(volume),
            place = shell_word(mountpoint)
        ),
    })
}

/// The check of the list of NFS clients with locks.
pub(crate) fn check_lock_list(trouble: LockListTrouble) -> HealthCheck {
    const LIST: &str = "the list of NFS clients with locks";
    let (code, severity, message, action) = match trouble {
        LockListTrouble::Unreadable(cause) => (
            "LOCKS_REFUSED",
            Severity::Error,
            format!(
                "{LIST} could not be read, so no client gets a lock, and clients that had locks \
                 were not told that these are gone: {cause}"
            ),
            "mend the file 'nfs-locks' in the state directory, and start the server again. If it \
             cannot be mended, move it away, start the server again, and then the clients' \
             programs that lock files",
        ),
        LockListTrouble::Unwritten(cause) => (
            "LOCKS_REFUSED",
            Severity::Error,
            format!(
                "{LIST} cannot be written, so no client gets its first lock since the start: {cause}"
            ),
            "make room in the state directory, or mend what the cause names; it is tried again \
             every 20 seconds",
        ),
        LockListTrouble::Damaged(cause) => (
            "LOCKS_DAMAGED",
            Severity::Warning,
            format!("{LIST} was damaged when the server started: {cause}"),
            "clients that are missing there were not told of the restart, and their locks are gone: \
             start their programs that lock files again",
        ),
    };
    HealthCheck {
        code: code.to_owned(),
        severity,
        object: "NFS locks".to_owned(),
        now: Vec::new(),
        message,
        action: action.to_owned(),
    }
}

/// The check of a record of mounts that cannot be used.
pub(crate) fn check_mount_record(trouble: &str) -> HealthCheck {
    HealthCheck {
        code: "MOUNTS_UNREADABLE".to_owned(),
        severity: Severity::Warning,
        object: "record of mounts".to_owned(),
        now: Vec::new(),
        message: trouble.to_owned(),
        action: "mend the file or move it away, and start the server again".to_owned(),
    }
}

/// The check of short names that cannot be read.
pub(crate) fn check_disk_names(failure: &str) -> HealthCheck {
    HealthCheck {
        code: "DISK_NAMES_UNREADABLE".to_owned(),
        severity: Severity::Warning,
        object: "short names of disks".to_owned(),
        now: Vec::new(),
        message: format!("{failure}. Disks are shown by their paths, and no disk gets a name"),
        action: "mend the file 'disk-names' in the state directory, and start the server again; \
                 if it is moved away, disks that are missing are named anew"
            .to_owned(),
    }
}

/// The check of a list of deleted aggregates that is not as it should be.
pub(crate) fn check_deletions(Trouble { message, action }: Trouble) -> HealthCheck {
    HealthCheck {
        code: "DELETIONS_UNREADABLE".to_owned(),
        severity: Severity::Warning,
        object: "list of deleted aggregates".to_owned(),
        now: Vec::new(),
        message,
        action: action.to_owned(),
    }
}

/// The check of a file that could not be written.
pub(crate) fn check_unwritten(title: &str, cause: &str) -> HealthCheck {
    HealthCheck {
        code: "STATE_UNWRITTEN".to_owned(),
        severity: Severity::Warning,
        object: title.to_owned(),
        now: Vec::new(),
        message: format!(
            "the {title} cannot be written: {cause}. A restart reads the list that was written last"
        ),
        action: "make room in the state directory, or mend it; the file is written as soon as it \
                 can be"
            .to_owned(),
    }
}

/// The check of the record of changes.
pub(crate) fn check_audit(failure: &AuditFailure) -> HealthCheck {
    let AuditFailure { path, cause, lost_records } = failure;
    HealthCheck {
        code: "AUDIT_FAILED".to_owned(),
        severity: Severity::Warning,
        object: path.clone(),
        now: Vec::new(),
        message: format!(
            "changes of administrators are not recorded: {cause}; so many are in the server's log \
             only: {lost_records}"
        ),
        action: "free space in the file's directory, or mend it; the next change tries again"
            .to_owned(),
    }
}

/// What a node may take beyond its memory cap before that is told, as a share of the cap: a few
/// pages more are no alarm.
const OVER_SHARE: u64 = 16;

/// The check of the memory cap.
pub(crate) fn check_memory(memory: &MemoryUse) -> Option<HealthCheck> {
    let MemoryUse { limit_bytes, used_bytes, .. } = *memory;
    let over_bytes = used_bytes.saturating_sub(limit_bytes);
    (over_bytes > limit_bytes / OVER_SHARE).then(|| HealthCheck {
        code: "MEMORY_OVER".to_owned(),
        severity: Severity::Warning,
        object: "memory".to_owned(),
        now: Vec::new(),
        message: format!(
            "{} are in use, {} more than the configuration allows",
            ByteSize(used_bytes),
            ByteSize(over_bytes)
        ),
        action: format!(
            "have fewer volumes, each of which takes a part; or set 'memory' under [node] to more \
             than {}, and start the server again",
            ByteSize(used_bytes)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_the_cap_is_told_with_what_to_set() {
        let check = |used_mib: u64| {
            let (limit_bytes, used_bytes) = (512 << 20, used_mib << 20);
            check_memory(&MemoryUse {
                limit_bytes,
                used_bytes,
                peak_bytes: used_bytes,
                consumers: Vec::new(),
            })
        };
        assert_eq!(check(512), None);
        assert_eq!(check(540), None, "a little more is no alarm");
        let over = check(914).unwrap();
        assert!(over.message.contains("914MiB") && over.message.contains("402MiB"), "{over:?}");
    }
}

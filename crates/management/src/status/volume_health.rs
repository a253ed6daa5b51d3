//! The health checks of volumes. See [`super::health`] for the list of codes.
//!
//! Invariants: pure functions of what status found.

use super::health::is_full;
use admin_api::{DamagedFile, Guarantee, HealthCheck, Severity, VolumeInfo, VolumeState};
use dblade::{ServedVolume, VolumeNames};

/// The check of a volume; `free_bytes` of its aggregate are free for all.
pub(crate) fn check_volume(info: &VolumeInfo, free_bytes: u64) -> Option<HealthCheck> {
    let takes_changes = info.damage.is_none() && info.lacking_feature.is_none();
    // Bytes that the volume may grow by itself count as available if the aggregate has them.
    let growth_bytes = info.autogrow_max_bytes.unwrap_or(0).saturating_sub(info.size_bytes);
    let taken_bytes = match info.guarantee {
        Guarantee::None => info.available_bytes,
        // What is available is the volume's own.
        Guarantee::Volume => 0,
    };
    let beyond_bytes = growth_bytes.min(free_bytes.saturating_sub(taken_bytes));
    let free_bytes = free_bytes + info.guaranteed_bytes;
    let available_bytes = info.available_bytes + beyond_bytes;
    let is_low = takes_changes && is_full(available_bytes, info.size_bytes);
    let own_bytes = info.size_bytes.saturating_sub(info.used_bytes()) + growth_bytes;
    let (name, aggregate) = (&info.name, &info.aggregate);
    let left = units::ByteSize(available_bytes);
    // What operations under way were promised is not there for others, and is not the aggregate's
    // fault.
    let is_own = info.traditional || is_full(own_bytes, info.size_bytes) || own_bytes <= free_bytes;
    let enlarge = match info.autogrow_max_bytes {
        _ if info.traditional => format!("stroop aggr add {aggregate} --disks DISK,..."),
        None => format!("stroop volume resize {name} --size SIZE"),
        Some(_) => format!("stroop volume set {name} --autogrow-max SIZE"),
    };
    let (code, message, action) = match is_own {
        true => (
            "VOLUME_FULL",
            format!("{left} can still be written"),
            format!(
                "delete files, and the snapshots that hold them (deleting works on a full \
                 volume); or {enlarge}"
            ),
        ),
        false => (
            "VOLUME_OVERCOMMITTED",
            format!(
                "{left} can still be written: its {} would allow {} more, which aggregate \
                 {aggregate} does not have",
                if growth_bytes > 0 { "largest size" } else { "size" },
                units::ByteSize(own_bytes)
            ),
            format!(
                "stroop aggr add {aggregate} --disks DISK,..., or delete files and snapshots of \
                 any volume of {aggregate}"
            ),
        ),
    };
    is_low.then(|| HealthCheck {
        code: code.to_owned(),
        severity: Severity::Warning,
        object: name.clone(),
        now: Vec::new(),
        message,
        action,
    })
}

/// The check of a volume of which the last snapshot by a schedule could not be taken, for this
/// cause.
pub(crate) fn check_schedule(volume: &str, cause: Option<String>) -> Option<HealthCheck> {
    let cause = cause?;
    Some(HealthCheck {
        code: "SNAPSHOT_MISSED".to_owned(),
        severity: Severity::Warning,
        object: volume.to_owned(),
        now: Vec::new(),
        message: format!("the last snapshot of its schedule could not be taken: {cause}"),
        action: format!(
            "make room: stroop volume show {volume} --space says where it is; or keep fewer: \
             stroop volume set {volume} --snapshot-policy POLICY; it is tried again every minute"
        ),
    })
}

/// The check of a volume whose name another volume had when it came into service.
pub(crate) fn check_name(volume: &ServedVolume) -> Option<HealthCheck> {
    let VolumeNames { served, given } = volume.names();
    (served != given).then(|| HealthCheck {
        code: "VOLUME_NAME_TAKEN".to_owned(),
        severity: Severity::Warning,
        object: served.clone(),
        now: Vec::new(),
        message: format!(
            "the volume '{given}' of aggregate {} is served under this name: a volume of \
             another aggregate has its own",
            volume.aggregate.parts.identity.name
        ),
        action: format!(
            "give one of the two another name: stroop volume rename {served} NAME, or stroop \
             volume rename {given} NAME"
        ),
    })
}

/// The check of a volume with files that are damaged beyond parity.
pub(crate) fn check_damage(info: &VolumeInfo) -> Option<HealthCheck> {
    if let Some(damage) = &info.damage {
        return Some(check_damaged_volume(info, damage));
    }
    if let Some(feature) = &info.lacking_feature {
        return Some(check_lacking_volume(info, feature));
    }
    let (leaked, quarantined): (Vec<&DamagedFile>, Vec<_>) =
        info.damaged_files.iter().partition(|file| file.leaked_bytes.is_some());
    let mut message = Vec::new();
    if !quarantined.is_empty() {
        message.push(format!(
            "{} since the start: a block that leads to the content cannot be read",
            many(quarantined.len(), "file is quarantined", "files are quarantined")
        ));
    }
    if !leaked.is_empty() {
        let bytes = leaked.iter().filter_map(|file| file.leaked_bytes).sum();
        message.push(format!(
            "up to {} of {} stay in use",
            units::ByteSize(bytes),
            many(leaked.len(), "removed file", "removed files")
        ));
    }
    (!message.is_empty()).then(|| HealthCheck {
        code: "VOLUME_DAMAGED".to_owned(),
        severity: Severity::Error,
        object: info.name.clone(),
        now: Vec::new(),
        message: message.join("; "),
        action: format!(
            "see 'stroop volume show {}' for the inode numbers ('find -inum' finds the names); \
             restore the files from a snapshot or a backup under new names, and delete the damaged \
             ones",
            info.name
        ),
    })
}

/// The check of a volume that takes no changes any more.
fn check_damaged_volume(info: &VolumeInfo, damage: &str) -> HealthCheck {
    let (state, first) = match info.state {
        VolumeState::Offline => ("cannot be served", "restore its files from a backup"),
        _ => ("is read-only", "copy its files, or those of a snapshot,"),
    };
    HealthCheck {
        code: "VOLUME_DAMAGED".to_owned(),
        severity: Severity::Error,
        object: info.name.clone(),
        now: Vec::new(),
        message: format!("the volume {state}: {damage}"),
        action: format!("{first} to a new volume, then: stroop volume delete {}", info.name),
    }
}

/// The check of a volume that a newer build wrote. Nothing of it is damaged: whoever copied its
/// files and deleted it would lose what only the newer build can read.
fn check_lacking_volume(info: &VolumeInfo, feature: &str) -> HealthCheck {
    let state = match info.state {
        VolumeState::Offline => "is not served",
        _ => "is read-only",
    };
    HealthCheck {
        code: "FEATURE_LACKING".to_owned(),
        severity: Severity::Warning,
        object: info.name.clone(),
        now: Vec::new(),
        message: format!(
            "the volume {state}: it uses the feature '{feature}', which this build of Stroop lacks"
        ),
        action: "start the build that wrote the volume, or a later one: see 'stroop upgrade check'"
            .to_owned(),
    }
}

fn many(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin_api::memory::MemoryAdministration;
    use admin_api::{Administration as _, AggregateCreate, RaidKind, VolumeCreate};

    /// A volume as it is when it was just made.
    fn volume(size_bytes: u64) -> VolumeInfo {
        let node = MemoryAdministration::with_disks(1);
        let disks = node.disk_list().unwrap().into_iter().map(|disk| disk.name).collect();
        let create = AggregateCreate::new("a1", disks, RaidKind::None);
        node.aggregate_create(&create).unwrap();
        node.volume_create(&VolumeCreate::new("home", "a1", size_bytes)).unwrap().remove(0)
    }

    /// It is not called damaged, and nobody is told to delete it.
    #[test]
    fn a_volume_that_lacks_a_feature_waits_for_the_build_that_has_it() {
        let mut info = volume(1 << 24);
        info.available_bytes = 0;
        info.lacking_feature = Some("later".to_owned());
        for (state, words) in
            [(VolumeState::Offline, "is not served"), (VolumeState::ReadOnly, "is read-only")]
        {
            info.state = state;
            assert!(check_volume(&info, 0).is_none(), "it takes no changes, full or not");
            let check = check_damage(&info).unwrap();
            assert_eq!(check.code, "FEATURE_LACKING");
            assert!(check.message.contains(words) && check.message.contains("'later'"));
            assert!(!check.action.contains("delete"), "{}", check.action);
        }
    }

    #[test]
    fn a_volume_that_can_grow_is_not_full() {
        let size_bytes = 1 << 30;
        let mut info = volume(size_bytes);
        (info.available_bytes, info.live_bytes) = (0, size_bytes);
        let check = |info: &VolumeInfo, free_bytes| {
            check_volume(info, free_bytes).map(|check| (check.code, check.action))
        };
        let full = check(&info, 1 << 40).unwrap();
        assert!(
            full.0 == "VOLUME_FULL" && full.1.ends_with("stroop volume resize home --size SIZE")
        );
        info.autogrow_max_bytes = Some(2 * size_bytes);
        assert_eq!(check(&info, 1 << 40), None);
        assert_eq!(check(&info, 1 << 20).unwrap().0, "VOLUME_OVERCOMMITTED");
        info.autogrow_max_bytes = Some(size_bytes);
        let grown = check(&info, 1 << 40).unwrap();
        assert!(
            grown.0 == "VOLUME_FULL" && grown.1.ends_with("volume set home --autogrow-max SIZE")
        );
    }
}

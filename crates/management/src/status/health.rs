//! The health checks: what does not pass, how bad it is, and what to do about it.
//!
//! Codes are an interface: scripts match on them, so one is added, never renamed.
//!
//! | code | means |
//! | --- | --- |
//! | `AGGR_OFFLINE` | an aggregate waits for disks, or could not be opened |
//! | `AGGR_FAILED` | an aggregate went out of service since, for another reason |
//! | `JOURNAL_FAILED` | the journal of an aggregate is gone or fails: nothing is acknowledged |
//! | `JOURNAL_DEGRADED` | a copy of an aggregate's journal is not written; another one has everything |
//! | `AGGR_DEGRADED` | a disk is gone; data is complete, and how many more may go |
//! | `AGGR_FULL` | hardly any free space is left in an aggregate |
//! | `GUARANTEE_LACKING` | room that an aggregate guarantees to volumes is not free |
//! | `DISK_UNREADABLE` | a disk that the configuration names could not be read at the start |
//! | `DISK_SICK` | a disk has too many errors: it is to be replaced, or has been by a spare |
//! | `DATA_DAMAGED` | blocks were read that nothing makes good |
//! | `VOLUME_NAME_TAKEN` | a volume is served under another name than its own |
//! | `VOLUME_FULL` | hardly any room is left in a volume |
//! | `VOLUME_OVERCOMMITTED` | a volume has room left, and its aggregate hardly any |
//! | `SNAPSHOT_MISSED` | the last snapshot of a volume's schedule could not be taken |
//! | `VOLUME_DAMAGED` | files of a volume are quarantined, or their blocks stay in use; or all of it is read-only |
//! | `MOUNTS_UNREADABLE` | the record of mounts, or a part of it, cannot be read |
//! | `MOUNT_MISSING` | a mount on this machine is to be there, and is not |
//! | `DELETIONS_UNREADABLE` | the list of deleted aggregates cannot be read, or not all of it |
//! | `DISK_NAMES_UNREADABLE` | the short names of disks cannot be read |
//! | `STATE_UNWRITTEN` | a list that the node keeps of its own cannot be written |
//! | `LOCKS_REFUSED` | the list of NFS clients with locks cannot be read or written |
//! | `LOCKS_DAMAGED` | parts of that list made no sense at the start |
//! | `AUDIT_FAILED` | changes that administrators make are not recorded |
//! | `MEMORY_OVER` | the node takes more memory than its cap |
//! | `FEATURE_LACKING` | a newer build wrote a volume, and this build lacks a feature of it |
//!
//! Checks of volumes are in [`super::volume_health`], those of the node's own files and mounts in
//! [`super::node_health`].
//!
//! Invariants: pure functions of what status found, in order of object.

use crate::node::{LeftOut, OfflineAggregate};
use crate::pace::{copying, errors_of, more_may_fail, rebuilding};
use admin_api::{
    Activity, AggregateInfo, AggregateState, DiskInfo, DiskState, HealthCheck, JournalCopyState,
    RaidKind, Severity, Time,
};
use aggregate::AggregateError;
use dblade::{AggregateSummary, Outage};
use media::Profile;
use raid::{FillingStatus, FillingWay};

/// Something is as good as full when less than one part in this many is left: there is time to act
/// still.
const FULL_SHARE: u64 = 50;

/// Checks of an aggregate that could not be opened.
pub(crate) fn check_offline(offline: &OfflineAggregate) -> HealthCheck {
    HealthCheck {
        code: "AGGR_OFFLINE".to_owned(),
        severity: Severity::Error,
        object: offline.name.clone(),
        now: Vec::new(),
        message: format!("could not be opened: {}", offline.error.cause.join("; ")),
        action: offline.error.next.clone().unwrap_or_else(|| {
            "see the server's log; nothing was changed on its disks; it is opened by itself when \
             the cause is gone"
                .to_owned()
        }),
    }
}

/// The check of an aggregate that lost more disks than it can do without; `retry` is why it could
/// not be opened again with those that are there.
pub(crate) fn check_outage(
    outage: &Outage,
    info: &AggregateInfo,
    retry: Option<&OfflineAggregate>,
) -> HealthCheck {
    let cause = outage.summary.failure.as_ref().map(ToString::to_string).unwrap_or_default();
    let (since, without) = (Time(outage.since), lost(&info.disks));
    let mut message = format!("out of service since {since}, without {without}: {cause}");
    if let Some(retry) = retry {
        message.push_str(&format!("; opening it again failed: {}", retry.error.cause.join("; ")));
    }
    // Its disks are there, and its journal is lost as well.
    let lost_journal = retry.filter(|retry| retry.journal_lost.is_some());
    let action = lost_journal.and_then(|retry| retry.error.next.clone());
    let names: Vec<&str> =
        info.disks.iter().filter(|disk| is_lost(disk)).map(|disk| disk.name.as_str()).collect();
    let disks = match names.as_slice() {
        [] => "its disks".to_owned(),
        names => names.join(", "),
    };
    HealthCheck {
        code: "AGGR_OFFLINE".to_owned(),
        severity: Severity::Error,
        object: info.name.clone(),
        now: Vec::new(),
        message,
        action: action.unwrap_or_else(|| {
            format!(
                "put back {disks}, or make them work: the aggregate comes back by itself; what was \
                 acknowledged is safe"
            )
        }),
    }
}

/// The check of a disk that could not be used; `None` if its aggregate's own check names it.
pub(crate) fn check_left_out(disk: &LeftOut) -> Option<HealthCheck> {
    disk.identity.is_none().then(|| HealthCheck {
        code: "DISK_UNREADABLE".to_owned(),
        severity: if disk.is_of_another_build { Severity::Error } else { Severity::Warning },
        object: disk.name.clone(),
        now: Vec::new(),
        message: format!("left out when the server started: {}", disk.reason),
        action: match disk.is_of_another_build {
            true => {
                "start the build again that wrote it, or a later one that reads it: nothing \
                     was changed"
            }
            false => {
                "once it can be read, start the server again; or name it no more under [node] disks"
            }
        }
        .to_owned(),
    })
}

/// What to do about an aggregate that failed.
fn way_back(name: &str, failure: &AggregateError, journal: &str) -> String {
    if failure.is_of_journal() {
        return journal_back(name, journal);
    }
    format!(
        "see 'stroop disk list' and 'stroop check aggr {name}'; once its disks work, start the \
         server again: what was acknowledged is replayed from the log"
    )
}

fn journal_back(name: &str, journal: &str) -> String {
    format!(
        "bring {journal} back, which may be the only place of acknowledged changes; then type \
         'stroop shutdown', and start the server again ('stroop serve', or its service): the \
         start replays the journal. If it is lost, start the server without it, and see 'stroop \
         aggr online {name} --without-journal --dry-run'"
    )
}

/// What is wrong with copies of the journal, and what to do.
fn lost_copies(info: &AggregateInfo, is_log_on_disks: bool) -> Option<(String, String)> {
    let copies = &info.journal_copies;
    let lost: Vec<_> = copies.iter().filter(|copy| copy.state == JournalCopyState::Lost).collect();
    let names: Vec<&str> = lost.iter().map(|copy| copy.name.as_str()).collect();
    let causes: Vec<String> = lost
        .iter()
        .map(|copy| format!("{}: {}", copy.name, copy.cause.as_deref().unwrap_or_default()))
        .collect();
    let whole = copies.len() - lost.len();
    (!lost.is_empty()).then(|| {
        let message = format!(
            "its journal has {whole} of {} copies, and everything is acknowledged as before; {}",
            copies.len(),
            causes.join("; ")
        );
        let action = match is_log_on_disks {
            true => "nothing, if it goes within a minute: another disk gets a copy; else see \
                     'stroop disk list'"
                .to_owned(),
            false => format!(
                "bring {} back: it is taken back within seconds; or name another place under \
                 [node] journal, and start the server again",
                names.join(", ")
            ),
        };
        (message, action)
    })
}

/// Checks of an aggregate that was opened; `journal` says in words where its journal is.
pub(crate) fn check_aggregate(
    info: &AggregateInfo,
    summary: &AggregateSummary,
    journal: &str,
) -> Vec<HealthCheck> {
    let mut checks = Vec::new();
    let mut add_with = |now: Vec<Activity>, code: &str, severity, message, action: &str| {
        let (code, object) = (code.to_owned(), info.name.clone());
        let action = action.to_owned();
        checks.push(HealthCheck { code, severity, object, message, now, action });
    };
    if let Some(failure) = &summary.failure {
        // At the next tick it is an outage.
        let code = if failure.is_of_disks() { "AGGR_OFFLINE" } else { "AGGR_FAILED" };
        add_with(
            Vec::new(),
            code,
            Severity::Error,
            format!("out of service: {failure}"),
            &way_back(&info.name, failure, journal),
        );
    }
    if let (None, Some(cause)) = (&summary.failure, &summary.log_failure) {
        let message = format!("its journal has failed, and nothing is acknowledged: {cause}");
        let action = journal_back(&info.name, journal);
        add_with(Vec::new(), "JOURNAL_FAILED", Severity::Error, message, &action);
    }
    if let (None, None, Some((message, action))) =
        (&summary.failure, &summary.log_failure, lost_copies(info, summary.is_log_on_disks))
    {
        add_with(Vec::new(), "JOURNAL_DEGRADED", Severity::Warning, message, &action);
    }
    if info.state == AggregateState::Degraded {
        let is_rebuild = |filling: &&FillingStatus| filling.way != FillingWay::Copy;
        let action = match is_rebuilding(&info.disks) {
            true => nothing_unless_paused(summary, is_rebuild),
            false => replace_lost(info, summary),
        };
        let message = format!(
            "data is complete, but without {}; {}",
            lost(&info.disks),
            more_may_fail(survivable(summary))
        );
        let now = rebuilding(summary);
        add_with(now, "AGGR_DEGRADED", Severity::Warning, message, &action);
    }
    for disk in info.disks.iter().filter(|disk| disk.sick && disk.state == DiskState::InUse) {
        let now = copying(summary, &disk.name);
        let is_copy = |filling: &&FillingStatus| is_copy_of(summary, &disk.name, filling);
        let cure = match now.is_empty() {
            true => cure(&disk.name),
            false => nothing_unless_paused(summary, is_copy),
        };
        add_with(now, "DISK_SICK", Severity::Warning, sick(disk), &cure);
    }
    let mut add = |code, severity, message, action: &str| {
        add_with(Vec::new(), code, severity, message, action);
    };
    for disk in &summary.status.retired {
        let (name, replacement) = (&disk.name, &disk.replacement);
        let message = format!(
            "disk {name} was replaced by spare {replacement}, because {}; no aggregate uses it",
            disk.sickness
        );
        let action = format!(
            "take {name} out; 'stroop disk spare add DISK' for the next; then: stroop disk clear {}",
            units::shell_word(name)
        );
        add("DISK_SICK", Severity::Warning, message, &action);
    }
    // Where all that is free is guaranteed, volumes without a guarantee say so themselves.
    let free_bytes = info.free_bytes + info.guaranteed_bytes;
    if info.state != AggregateState::Offline && is_full(free_bytes, info.size_bytes) {
        let free = units::ByteSize(free_bytes);
        let queue = match info.deleted_volumes {
            0 => String::new(),
            _ => format!(
                "purge deleted volumes, which hold {} (stroop volume list --deleted); ",
                units::ByteSize(info.deleted_bytes)
            ),
        };
        let action = format!(
            "{queue}delete snapshots, files or volumes, these with --queue-for 0s (deleting works on \
             a full aggregate); or stroop aggr add {} --disks DISK,... (a whole group, or with \
             --group 0 one disk)",
            info.name
        );
        add("AGGR_FULL", Severity::Warning, format!("{free} are free"), &action);
    }
    // Promises to others take a little of it for a moment.
    if info.guarantee_lacking_bytes > info.guaranteed_bytes / GUARANTEE_SHARE {
        let lacking = units::ByteSize(info.guarantee_lacking_bytes);
        let message = format!("{lacking} that it guarantees to volumes are not free");
        let action = format!(
            "stroop aggr add {} --disks DISK,..., delete snapshots, or give volumes no guarantee: \
             stroop volume set VOLUME --guarantee none",
            info.name
        );
        add("GUARANTEE_LACKING", Severity::Warning, message, &action);
    }
    if let Some(message) = damage(summary) {
        let find = format!(
            "stroop check aggr {} names the files that lost data: restore them from a copy, and \
             scrub again",
            info.name
        );
        let action = match info.raid {
            RaidKind::None => find,
            RaidKind::Raid4 | RaidKind::Dp | RaidKind::Tp => {
                let more = "more of one stripe are wrong than parity makes good";
                format!("{find}; {more}: see 'stroop disk list'")
            }
        };
        add("DATA_DAMAGED", Severity::Error, message, &action);
    }
    checks
}

/// What to do about a disk that is gone and for which none is being filled.
fn replace_lost(info: &AggregateInfo, summary: &AggregateSummary) -> String {
    let lost = info.disks.iter().find(|disk| is_lost(disk));
    let name = lost.map_or_else(|| "OLD".to_owned(), |disk| units::shell_word(&disk.name));
    let group = lost.and_then(|disk| summary.status.groups.get(disk.group? as usize));
    let regions = group.map_or(0, |group| group.regions);
    let is_urgent = survivable(summary) == 0;
    if summary.status.spares.iter().any(|spare| spare.regions >= regions) {
        let urgent = if is_urgent { "; one more lost disk loses data" } else { "" };
        return format!(
            "none, if the spare takes its place: of a disk that failed at once, of one that went \
             after a minute, for it may come back; sooner with: stroop disk replace {name}{urgent}"
        );
    }
    match is_urgent {
        true => format!("at once: stroop disk replace {name} NEW; one more lost disk loses data"),
        false => format!("stroop disk replace {name} NEW"),
    }
}

/// The damage that is known: blocks that were read in vain since the start, and places that the
/// present or last scrub found, whose count outlives the start. Another scrub counts anew.
fn damage(summary: &AggregateSummary) -> Option<String> {
    let (read, scrubbed) = (summary.lost_blocks, summary.status.scrub.damaged);
    let read =
        (read > 0).then(|| format!("{read} blocks could not be read or made good since the start"));
    let scrubbed = (scrubbed > 0)
        .then(|| format!("the last scrub found {scrubbed} places that nothing makes good"));
    match (read, scrubbed) {
        (Some(read), Some(scrubbed)) => Some(format!("{read}; {scrubbed}")),
        (read, scrubbed) => read.or(scrubbed),
    }
}

/// What is to be done while disks are being filled: nothing, unless somebody paused it, or it got
/// stuck.
fn nothing_unless_paused(
    summary: &AggregateSummary,
    is_meant: impl FnMut(&&FillingStatus) -> bool,
) -> String {
    let meant: Vec<&FillingStatus> = summary.status.fillings.iter().filter(is_meant).collect();
    if let Some(held) = meant.iter().find(|filling| filling.is_held) {
        return format!(
            "stroop job resume JOB: filling {} is paused (see stroop job list for its number)",
            held.disk
        );
    }
    match meant.iter().find(|filling| filling.is_stuck) {
        Some(stuck) => format!(
            "see 'stroop disk list' for errors: blocks of other disks that {} needs cannot be read; \
             make those disks work, and start the server again: it goes on then",
            stuck.disk
        ),
        None => "none needed".to_owned(),
    }
}

/// Whether a disk in use is copied by this.
fn is_copy_of(summary: &AggregateSummary, disk: &str, filling: &FillingStatus) -> bool {
    let group = summary.status.groups.get(filling.place.group as usize);
    let member = group.and_then(|group| group.members.get(filling.place.member));
    filling.way == FillingWay::Copy && member.is_some_and(|one| one.name.as_deref() == Some(disk))
}

/// What is wrong with a sick disk.
fn sick(disk: &DiskInfo) -> String {
    let note = disk.note.as_deref().unwrap_or("sick");
    format!("disk {} should be replaced: {note}; it has {}", disk.name, errors_of(disk))
}

/// What to do about a sick disk to which no spare is filled.
fn cure(name: &str) -> String {
    let name = units::shell_word(name);
    format!(
        "stroop disk spare add DISK, to which it is copied while it is used; or stroop disk \
         replace {name} NEW; if it was a cable: stroop disk clear {name}"
    )
}

/// Whether something is being done, and nothing else is left to do.
fn is_rebuilding(disks: &[DiskInfo]) -> bool {
    disks.iter().any(|disk| disk.state == DiskState::Rebuilding) && !disks.iter().any(is_lost)
}

const fn is_lost(disk: &DiskInfo) -> bool {
    matches!(disk.state, DiskState::Missing | DiskState::Failed)
}

/// Disks that every group can still lose.
fn survivable(summary: &AggregateSummary) -> usize {
    // What is in an object store is as safe as the store.
    let is_object = |group: &raid::GroupStatus| {
        group.members.iter().any(|member| member.media == Some(Profile::Object))
    };
    let groups = summary.status.groups.iter();
    let groups = groups.filter(|group| !group.is_removed() && !is_object(group));
    groups.map(raid::GroupStatus::survivable_failures).min().unwrap_or(0)
}

/// The disks that an aggregate does without.
fn lost(disks: &[DiskInfo]) -> String {
    let gone = |disk: &&DiskInfo| {
        matches!(disk.state, DiskState::Missing | DiskState::Failed | DiskState::Rebuilding)
    };
    let words = |disk: &DiskInfo| match &disk.note {
        Some(note) => format!("{} ({note})", disk.name),
        None => disk.name.clone(),
    };
    disks.iter().filter(gone).map(words).collect::<Vec<_>>().join(", ")
}

/// What is lacking of guarantees is told when it is more than this part of them.
const GUARANTEE_SHARE: u64 = 64;

/// Whether hardly anything is left.
pub(crate) const fn is_full(left_bytes: u64, size_bytes: u64) -> bool {
    left_bytes < size_bytes / FULL_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Seen;
    use admin_api::JournalCopy;
    use admin_api::memory::MemoryAdministration;
    use admin_api::{AdminError, Administration as _, AggregateCreate, Code};
    use units::{AggregateUuid, DiskUuid};

    const JOURNAL: &str = "journal file /journal/1.log";

    fn aggregate() -> (AggregateInfo, AggregateSummary) {
        let node = MemoryAdministration::with_disks(3);
        let disks = node.disk_list().unwrap().into_iter().map(|disk| disk.name).collect();
        let info =
            node.aggregate_create(&AggregateCreate::new("a1", disks, RaidKind::Raid4)).unwrap();
        let summary = AggregateSummary {
            name: "a1".to_owned(),
            identity: AggregateUuid([1; 16]),
            size_blocks: 1000,
            used_blocks: 10,
            status: raid::Status::default(),
            failure: None,
            consistency_points: 1,
            lost_blocks: 0,
            last_cp_nanoseconds: 1,
            log_used_ratio: 0.0,
            log_failure: None,
            log_copies: Vec::new(),
            is_log_on_disks: false,
            traditional: false,
        };
        (info, summary)
    }

    fn codes(info: &AggregateInfo, summary: &AggregateSummary) -> Vec<String> {
        check_aggregate(info, summary, JOURNAL).into_iter().map(|check| check.code).collect()
    }

    #[test]
    fn a_sound_aggregate_passes_and_each_fault_has_its_code() {
        let (sound, summary) = aggregate();
        assert!(codes(&sound, &summary).is_empty());
        let mut degraded = sound.clone();
        degraded.state = AggregateState::Degraded;
        degraded.disks[1].state = DiskState::Missing;
        degraded.disks[1].note = Some("not found".to_owned());
        assert_eq!(codes(&degraded, &summary), ["AGGR_DEGRADED"]);
        let checks = check_aggregate(&degraded, &summary, JOURNAL);
        assert!(checks[0].message.contains("/disks/d2 (not found)"), "{}", checks[0].message);
        degraded.disks[1].state = DiskState::Rebuilding;
        let action = &check_aggregate(&degraded, &summary, JOURNAL)[0].action;
        assert_eq!(action, "none needed");
        let mut gone = sound.clone();
        gone.disks[1].state = DiskState::Missing;
        gone.state = AggregateState::Degraded;
        let action = |summary: &_| check_aggregate(&gone, summary, JOURNAL)[0].action.clone();
        let alone = action(&summary);
        assert!(alone.starts_with("at once: stroop disk replace /disks/d2 NEW"), "{alone}");
        let mut beside_spare = summary.clone();
        beside_spare.status.spares.push(raid::SpareStatus {
            name: "/disks/d9".to_owned(),
            identity: DiskUuid([9; 16]),
            regions: 9,
            media: Profile::Hdd,
        });
        let spared = action(&beside_spare);
        assert!(spared.starts_with("none, if the spare takes its place"), "{spared}");
        assert!(spared.contains("stroop disk replace /disks/d2; one more"), "{spared}");
        let mut paused = summary.clone();
        paused.status.fillings.push(FillingStatus {
            place: raid::DiskPlace { group: 0, member: 1 },
            disk: "/disks/d2".to_owned(),
            identity: DiskUuid([2; 16]),
            way: FillingWay::Anew,
            is_held: true,
            rate: None,
            is_stuck: true,
            done_regions: 1,
            regions: 2,
        });
        let action = &check_aggregate(&degraded, &paused, JOURNAL)[0].action;
        assert!(action.starts_with("stroop job resume JOB: filling /disks/d2 is"), "{action}");
        paused.status.fillings[0].is_held = false;
        let action = &check_aggregate(&degraded, &paused, JOURNAL)[0].action;
        assert!(action.contains("other disks that /disks/d2 needs cannot be read"), "{action}");
        let full = AggregateInfo { free_bytes: sound.size_bytes / 100, ..sound.clone() };
        assert_eq!(codes(&full, &summary), ["AGGR_FULL"]);
        let guaranteed = AggregateInfo { guaranteed_bytes: sound.size_bytes / 2, ..full };
        assert!(codes(&guaranteed, &summary).is_empty());
        let lacking = AggregateInfo { guarantee_lacking_bytes: 4096, ..sound.clone() };
        assert_eq!(codes(&lacking, &summary), ["GUARANTEE_LACKING"]);
        let mut damaged = summary.clone();
        damaged.lost_blocks = 2;
        assert_eq!(codes(&sound, &damaged), ["DATA_DAMAGED"]);
        // What a scrub found is known after a start, too.
        let mut scrubbed = summary.clone();
        scrubbed.status.scrub.damaged = 5;
        let checks = check_aggregate(&sound, &scrubbed, JOURNAL);
        assert!(checks[0].message.contains("the last scrub found 5"), "{}", checks[0].message);
        assert!(checks[0].action.contains("stroop check aggr"), "{}", checks[0].action);
        let mut sick = sound.clone();
        sick.disks[2].sick = true;
        sick.disks[2].checksum_errors = 77;
        let checks = check_aggregate(&sick, &summary, JOURNAL);
        assert_eq!((checks.len(), checks[0].code.as_str()), (1, "DISK_SICK"));
        assert!(checks[0].message.contains("/disks/d3"), "{}", checks[0].message);
        assert!(checks[0].message.contains("77 checksum errors"), "{}", checks[0].message);
        assert!(checks[0].action.contains("stroop disk spare add"), "{}", checks[0].action);
        sick.disks[2].state = DiskState::Failed;
        assert!(!codes(&sick, &summary).contains(&"DISK_SICK".to_owned()));
        let mut retired = summary.clone();
        retired.status.retired.push(raid::RetiredDisk {
            name: "/disks/d9".to_owned(),
            sickness: ondisk::label::Sickness::Rotten,
            errors: raid::ErrorCounts::default(),
            replacement: "/disks/d1".to_owned(),
        });
        let checks = check_aggregate(&sound, &retired, JOURNAL);
        assert!(checks[0].message.contains("/disks/d9 was replaced by spare /disks/d1"));
        assert!(checks[0].action.contains("stroop disk clear /disks/d9"));
        let mut failed = summary;
        failed.failure = Some(aggregate::AggregateError::Stopping);
        assert_eq!(codes(&sound, &failed), ["AGGR_FAILED"]);
    }

    #[test]
    fn regression_an_aggregate_without_its_journal_is_told_which_file_to_bring_back() {
        let (info, mut summary) = aggregate();
        let cause = platform::DiskError::Gone { disk: "/journal/1.log".to_owned() };
        summary.failure = Some(raid::StoreError::Journal { cause }.into());
        let check = check_aggregate(&info, &summary, JOURNAL).remove(0);
        let action = &check.action;
        assert_eq!(check.code, "AGGR_FAILED");
        assert!(action.starts_with("bring journal file /journal/1.log back"), "{action}");
        assert!(action.contains("stroop shutdown") && action.contains("stroop serve"), "{action}");
        assert!(!action.contains("disk list"), "{action}");
    }

    #[test]
    fn a_copy_of_a_journal_on_the_disks_is_not_to_be_brought_back_by_hand() {
        let (mut info, mut summary) = aggregate();
        let (name, cause) = ("/dev/a".to_owned(), Some("it is gone".to_owned()));
        info.journal_copies = vec![JournalCopy { name, state: JournalCopyState::Lost, cause }];
        let action = |info: &AggregateInfo, summary: &AggregateSummary| {
            let check = check_aggregate(info, summary, JOURNAL).remove(0);
            assert_eq!(check.code, "JOURNAL_DEGRADED");
            check.action
        };
        assert!(action(&info, &summary).starts_with("bring /dev/a back"));
        summary.is_log_on_disks = true;
        assert!(action(&info, &summary).contains("another disk gets a copy"));
    }

    #[test]
    fn an_aggregate_that_was_not_opened_says_why_and_what_to_do() {
        let error = AdminError::new(Code::Failed, "cannot open aggregate", "a1")
            .because("its journal is gone")
            .try_next("bring it back");
        let offline = OfflineAggregate {
            identity: AggregateUuid([1; 16]),
            name: "a1".to_owned(),
            seen: Seen::default(),
            error,
            journal_lost: None,
        };
        let check = check_offline(&offline);
        assert_eq!((check.code.as_str(), check.severity), ("AGGR_OFFLINE", Severity::Error));
        assert!(check.message.contains("its journal is gone"));
        assert_eq!(check.action, "bring it back");
    }

    #[test]
    fn an_outage_names_the_disks_and_the_way_back() {
        let (mut info, mut summary) = aggregate();
        info.disks[1].state = DiskState::Failed;
        info.disks[1].note = Some("disk /disks/d2 is gone".to_owned());
        summary.failure = Some(aggregate::AggregateError::Stopping);
        let outage = Outage { summary, since: units::Timestamp(0) };
        let check = check_outage(&outage, &info, None);
        assert_eq!((check.code.as_str(), check.severity), ("AGGR_OFFLINE", Severity::Error));
        assert!(check.message.contains("since 1970-01-01T00:00:00Z, without /disks/d2 (disk"));
        assert!(check.action.starts_with("put back /disks/d2, or make"), "{}", check.action);
        let error = AdminError::new(Code::Failed, "cannot open", "a1").because("no journal");
        let name = "a1".to_owned();
        let retry = OfflineAggregate {
            identity: AggregateUuid([1; 16]),
            name,
            seen: Seen::default(),
            error,
            journal_lost: None,
        };
        let check = check_outage(&outage, &info, Some(&retry));
        assert!(check.message.ends_with("failed: no journal") && check.action.contains("is safe"));
        let error = retry.error.clone().try_next("stroop aggr online a1 --without-journal");
        let lost = OfflineAggregate { error, journal_lost: Some(units::Timestamp(1)), ..retry };
        let action = check_outage(&outage, &info, Some(&lost)).action;
        assert_eq!(action, "stroop aggr online a1 --without-journal");
    }

    #[test]
    fn a_disk_is_reported_once() {
        let mut disk = LeftOut {
            name: "d1".to_owned(),
            identity: None,
            reason: "in use".to_owned(),
            is_of_another_build: false,
        };
        assert_eq!(check_left_out(&disk).unwrap().code, "DISK_UNREADABLE");
        disk.is_of_another_build = true;
        let check = check_left_out(&disk).unwrap();
        assert_eq!(check.severity, Severity::Error);
        assert!(check.action.contains("the build again that wrote it"), "{}", check.action);
        disk.identity = Some(DiskUuid([1; 16]));
        assert_eq!(check_left_out(&disk), None);
    }
}

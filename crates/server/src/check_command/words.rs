//! What was found, in sentences for people and in fields for scripts.
//!
//! Invariants: each finding says where (volume, snapshot, file, block), what is wrong, and what to
//! do about it. The kind of a finding is stable; scripts may rely on it.
//!
//! Fails: `Failed` if the answer cannot be written as JSON.

use super::subject::{Checked, Mode, Subject, facts};
use admin_api::{AdminError, Code, duration};
use cli::output::Output;
use inspect::{Finding, ImageName, Names, SlotFault};
use serde_json::{Map, Value, json};
use units::{BLOCK_SIZE_U64, ByteSize, SnapshotId, VolumeId, shell_word};

/// Findings that are printed for people; `-o json` has all that the reader kept.
const SHOWN_MAX: usize = 1000;

/// What a finding means for whoever has the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Parity has the right content.
    Repairable,
    /// Content is lost.
    Lost,
    /// The server refuses a file.
    Quarantined,
    /// The server keeps a volume read-only.
    ReadOnly,
    /// Blocks are in use and nothing reaches them.
    Leaked,
    /// A block is used twice, or may be given while it is in use.
    DoublyUsed,
    /// Parity, or a checksum beside a block, does not fit.
    Redundancy,
    /// A superblock slot.
    Superblock,
    /// Counts, maps, names or records contradict one another.
    Inconsistent,
}

impl Kind {
    fn of(finding: &Finding) -> Self {
        match finding {
            Finding::Damaged { repairable: true, .. } => Self::Repairable,
            Finding::Damaged { .. } | Finding::InodeDamaged { .. } => Self::Lost,
            Finding::Quarantined { .. } => Self::Quarantined,
            Finding::ReadOnly { .. } => Self::ReadOnly,
            Finding::MapExtra { .. }
            | Finding::SummaryExtra { .. }
            | Finding::ContainerExtra { .. } => Self::Leaked,
            Finding::ReachedTwice { .. }
            | Finding::SharedDiffers { .. }
            | Finding::MapMissing { .. }
            | Finding::SummaryMissing { .. }
            | Finding::DelayedInUse { .. } => Self::DoublyUsed,
            Finding::Parity { .. } | Finding::Identity { .. } | Finding::Unreadable { .. } => {
                Self::Redundancy
            }
            Finding::Slot { .. } => Self::Superblock,
            _ => Self::Inconsistent,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Repairable => "repairable",
            Self::Lost => "lost",
            Self::Quarantined => "quarantined",
            Self::ReadOnly => "read_only",
            Self::Leaked => "leaked",
            Self::DoublyUsed => "doubly_used",
            Self::Redundancy => "redundancy",
            Self::Superblock => "superblock",
            Self::Inconsistent => "inconsistent",
        }
    }

    /// What to do.
    fn action(self, aggregate: &str, finding: &Finding) -> String {
        match (self, finding) {
            (Self::Repairable | Self::Redundancy, _) => {
                format!("stroop scrub start {aggregate}, which repairs what parity allows")
            }
            (Self::Lost, _) => {
                "copy the file back from a snapshot or a backup, under a new name".to_owned()
            }
            (Self::Quarantined, _) => "copy the file from a snapshot or a backup to a new name, \
                                       and delete this one"
                .to_owned(),
            (Self::ReadOnly, _) => "copy what can be read, or a snapshot, to a new volume, and \
                                    delete this one"
                .to_owned(),
            (Self::Leaked, _) => "nothing is lost but the room; it comes back when the volume is \
                                  copied to a new one and deleted"
                .to_owned(),
            (Self::DoublyUsed, _) => "write nothing more to the volume: copy it to a new one from \
                                      a snapshot or a backup"
                .to_owned(),
            (Self::Superblock, Finding::Slot { disk, fault: SlotFault::Unreadable(_) }) => {
                format!("stroop disk replace {}", shell_word(disk))
            }
            (Self::Superblock, _) => "start the server: it writes superblocks anew at each \
                                      consistency point; check again after it"
                .to_owned(),
            (Self::Inconsistent, _) => "copy the volume to a new one, and report this with \
                                        -o json: the server must not write such media"
                .to_owned(),
        }
    }
}

/// The answer.
pub(crate) fn output(subject: &Subject, checked: &Checked) -> Result<Output, AdminError> {
    let report = &checked.report;
    let aggregate = &subject.name;
    let count = report.findings.len() as u64 + report.omitted;
    let mut json = facts(subject, checked);
    let findings = report.findings.iter();
    let findings = findings.map(|finding| fields(aggregate, finding, &report.names));
    if let Value::Object(all) = &mut json {
        all.insert("findings".to_owned(), findings.collect());
        all.insert("findings_omitted".to_owned(), report.omitted.into());
    }
    let mut output = Output::of(aggregate, &json)?;
    output.head = head(subject, checked);
    for finding in report.findings.iter().take(SHOWN_MAX) {
        let kind = Kind::of(finding);
        let (at, what) = (place(finding, &report.names), what(finding));
        output = output.line(format!("{}: {at}{what}", kind.name().replace('_', "-")));
        output = output.line(format!("    do: {}", kind.action(aggregate, finding)));
    }
    let hidden = count.saturating_sub(SHOWN_MAX as u64);
    if hidden > 0 {
        output = output.line(format!("and {hidden} more, of which -o json names the first"));
    }
    output = output.line(summary(subject, checked, count));
    if count > 0 {
        output.status = Code::Unhealthy.exit_status();
    }
    Ok(output)
}

fn head(subject: &Subject, checked: &Checked) -> Vec<String> {
    let (name, cp) = (&subject.name, checked.cp);
    let mut head = vec![match (subject.mode, checked.is_clean) {
        (Mode::Online, _) => format!("{name}: online, as of consistency point {cp}"),
        (Mode::Failed | Mode::Away, _) => {
            format!("{name}: out of service, as of consistency point {cp}")
        }
        (Mode::Offline, true) => {
            format!("{name}: offline, after a clean stop at consistency point {cp}")
        }
        (Mode::Offline, false) => {
            format!("{name}: offline, after a crash behind consistency point {cp}")
        }
    }];
    if subject.mode == Mode::Online {
        head.push("parity is not looked at while the server writes; a scrub does that".to_owned());
    } else if !checked.scope.has_parity {
        head.push(
            "parity is not looked at: the log notes stripes that the next start makes right"
                .to_owned(),
        );
    }
    if checked.missing_disks > 0 {
        let missing = counted(checked.missing_disks as u64, "disk");
        let reads = counted(checked.report.totals.degraded_reads, "block");
        head.push(format!(
            "missing: {missing}; read from parity: {reads}; a group that lacks a disk has no parity \
             to look at"
        ));
    }
    head.extend(subject.left_out.iter().map(|cause| format!("left out: {cause}")));
    head
}

fn summary(subject: &Subject, checked: &Checked, count: u64) -> String {
    let totals = &checked.report.totals;
    let found = match count {
        0 => "nothing found".to_owned(),
        _ => format!("{} found", counted(count, "problem")),
    };
    let parity = match checked.scope.has_parity {
        true => format!(", parity of {}", counted(totals.stripes, "stripe")),
        false => String::new(),
    };
    format!(
        "{}: {found} in {}: {}, {}, {}{parity}; took {}",
        subject.name,
        ByteSize(totals.blocks.saturating_mul(BLOCK_SIZE_U64)),
        counted(totals.volumes, "volume"),
        counted(totals.snapshots, "snapshot"),
        counted(totals.files, "file"),
        duration::format(checked.nanoseconds)
    )
}

/// "1 disk", "2 disks".
fn counted(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// `home@nightly`.
fn image_title(image: ImageName, names: &Names) -> String {
    let volume = match (names.volumes.get(&image.volume), image.volume) {
        (Some(name), _) => name.clone(),
        (None, VolumeId(0)) => "the aggregate itself".to_owned(),
        (None, volume) => volume.to_string(),
    };
    match names.snapshots.get(&(image.volume, image.snapshot)) {
        Some(snapshot) => format!("{volume}@{snapshot}"),
        None if image.snapshot != SnapshotId::ACTIVE => format!("{volume} {}", image.snapshot),
        None => volume,
    }
}

fn path(file: (ImageName, u64), names: &Names) -> Option<String> {
    let path = names.paths.get(&file)?;
    Some(if path.is_empty() { "/".to_owned() } else { path.escape_ascii().to_string() })
}

/// Where it is, before what it is.
fn place(finding: &Finding, names: &Names) -> String {
    if let Some((image, inode)) = finding.file() {
        let title = image_title(image, names);
        return match path((image, inode), names) {
            Some(path) => format!("{title}: {path} (inode {inode}): "),
            None => format!("{title}: inode {inode}: "),
        };
    }
    match (finding.image(), finding.volume()) {
        (Some(image), _) => format!("{}: ", image_title(image, names)),
        (None, Some(volume)) => {
            format!("{}: ", image_title(ImageName { volume, snapshot: SnapshotId::ACTIVE }, names))
        }
        (None, None) => String::new(),
    }
}

/// What is wrong, behind where.
fn what(finding: &Finding) -> String {
    let block = |at: &inspect::Place| match at.level {
        0 => format!("block {}", at.index),
        level => format!("node {} of level {level}", at.index),
    };
    match finding {
        Finding::Damaged { at, pvbn, repairable: true } => format!(
            "{} at {pvbn} is damaged or cannot be read; parity has the right content",
            block(at)
        ),
        Finding::Damaged { at, pvbn, .. } => format!(
            "{} at {pvbn} is damaged or cannot be read, and nothing makes it good",
            block(at)
        ),
        Finding::ReachedTwice { at, vbn } => {
            format!("{} has number {vbn}, which another block of the image has, too", block(at))
        }
        Finding::SharedDiffers { at, vbn } => {
            format!("{} has number {vbn}, which is another block in another image", block(at))
        }
        Finding::Quarantined { .. } => {
            "the server refuses its content, because damage made it drop changes".to_owned()
        }
        Finding::ReadOnly { .. } => {
            "the volume is read-only: a block that it cannot live without was lost".to_owned()
        }
        Finding::MapExtra { blocks, .. } => {
            format!("{blocks}: in use by the map, and nothing reaches them")
        }
        Finding::MapMissing { blocks, .. } => {
            format!("{blocks}: in use, and free by the map, so they may be overwritten")
        }
        Finding::BlockCount { recorded, counted, .. } => {
            format!("it counts {recorded} blocks, and has {counted}")
        }
        Finding::Links { recorded, counted, .. } => {
            format!("it counts {recorded} names, and has {counted}")
        }
        Finding::Unreachable { .. } => "no name leads to it".to_owned(),
        Finding::Directory { fault, .. } => fault.to_string(),
        Finding::Entry { name, fault, .. } => format!("'{}' {fault}", name.escape_ascii()),
        Finding::InodeDamaged { damage, .. } | Finding::VolInfo { damage, .. } => {
            damage.to_string()
        }
        // They say where, too, by numbers.
        other => other.to_string(),
    }
}

/// A finding for scripts.
fn fields(aggregate: &str, finding: &Finding, names: &Names) -> Value {
    let kind = Kind::of(finding);
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    set("kind", kind.name().into());
    set("text", format!("{}{}", place(finding, names), what(finding)).into());
    set("action", kind.action(aggregate, finding).into());
    let file = finding.file();
    let image = file.map(|(image, _)| image).or_else(|| finding.image());
    if let Some(volume) = image.map(|image| image.volume).or_else(|| finding.volume()) {
        set("volume", names.volumes.get(&volume).cloned().into());
    }
    if let Some(image) = image.filter(|image| image.snapshot != SnapshotId::ACTIVE) {
        set("snapshot", names.snapshots.get(&(image.volume, image.snapshot)).cloned().into());
    }
    if let Some((image, inode)) = file {
        set("inode", inode.into());
        set("path", path((image, inode), names).into());
    }
    if let Some(at) = finding.place() {
        set("level", at.level.into());
        set("block", at.index.into());
    }
    match finding {
        Finding::Damaged { pvbn, .. } | Finding::Identity { pvbn, .. } => {
            set("pvbn", pvbn.get().into());
        }
        Finding::Parity { group, region, row } => {
            set("group", (*group).into());
            set("region", (*region).into());
            set("row", (*row).into());
        }
        Finding::Unreadable { group, disk, block } => {
            set("group", (*group).into());
            set("disk_index", (*disk).into());
            set("disk_block", (*block).into());
        }
        Finding::Slot { disk, .. } => set("disk", disk.clone().into()),
        Finding::MapExtra { blocks, .. }
        | Finding::MapMissing { blocks, .. }
        | Finding::SummaryExtra { blocks, .. }
        | Finding::SummaryMissing { blocks, .. }
        | Finding::ContainerExtra { blocks, .. }
        | Finding::ContainerMissing { blocks, .. }
        | Finding::DelayedInUse { blocks, .. } => {
            set("first_number", blocks.first.into());
            set("numbers", blocks.count.into());
        }
        _ => {}
    }
    json!(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use inspect::{Blocks, Place};
    use units::Pvbn;

    fn names() -> (ImageName, Names) {
        let image = ImageName { volume: VolumeId(1), snapshot: SnapshotId(3) };
        let mut names = Names::default();
        names.volumes.insert(VolumeId(1), "home".to_owned());
        names.snapshots.insert((VolumeId(1), SnapshotId(3)), "nightly".to_owned());
        names.paths.insert((image, 97), b"/a/b\n".to_vec());
        (image, names)
    }

    #[test]
    fn a_finding_says_where_and_what_and_what_to_do() {
        let (image, names) = names();
        let at = Place { image, inode: 97, level: 0, index: 5 };
        let lost = Finding::Damaged { at, pvbn: Pvbn(7), repairable: false };
        assert_eq!(place(&lost, &names), "home@nightly: /a/b\\n (inode 97): ");
        assert!(what(&lost).starts_with("block 5 at "), "{}", what(&lost));
        let found = fields("a1", &lost, &names);
        let of = |name: &str| found[name].clone();
        assert_eq!((of("kind"), of("pvbn"), of("block")), ("lost".into(), 7.into(), 5.into()));
        assert_eq!((of("volume"), of("snapshot")), ("home".into(), "nightly".into()));
        assert!(of("action").as_str().unwrap().contains("backup"), "{found}");
        let wrong = Finding::Parity { group: 0, region: 3, row: 9 };
        assert_eq!(place(&wrong, &names), "");
        assert!(Kind::of(&wrong).action("a1", &wrong).contains("stroop scrub start a1"));
        let leaked = Finding::MapExtra { image, blocks: Blocks { first: 8, count: 2 } };
        assert_eq!(place(&leaked, &names), "home@nightly: ");
        assert_eq!(fields("a1", &leaked, &names)["numbers"], 2);
    }
}

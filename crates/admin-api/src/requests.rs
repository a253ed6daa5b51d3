//! What can be asked.
//!
//! Invariants: every request is checked by its [`Validate`] before an implementation sees it;
//! unknown fields are refused, so that a flag of a newer client is never silently ignored.
//!
//! Fails: `Usage`, naming the value and its limit.

use crate::exports::{ExportRule, Network};
use crate::names::validate_name;
use crate::rate::validate_rate;
use crate::schedules::Schedule;
use crate::{AdminError, Code};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Disks of one RAID group: larger ones would rebuild for days.
pub const GROUP_DISKS_MAX: u64 = 32;
/// Disks of one aggregate: what an operator can still look over; a label names 32 of one group.
pub const AGGREGATE_DISKS_MAX: usize = 1024;
/// Bytes of a medium as users write it: the longest word and a size.
const MEDIA_BYTES_MAX: usize = 64;
/// Longest path, as in Linux (`PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;

/// Checks what the types do not.
pub trait Validate {
    /// # Errors
    /// `Usage` if a value is out of its limits.
    fn validate(&self) -> Result<(), AdminError>;
}

/// How an aggregate protects its data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RaidKind {
    /// Not at all: any lost disk loses data.
    None,
    /// One parity disk: survives the loss of any one disk.
    Raid4,
    /// Two parity disks: survives the loss of any two disks.
    Dp,
    /// Three parity disks: survives the loss of any three disks.
    Tp,
}

impl RaidKind {
    /// Disks that hold parity, in each group.
    #[must_use]
    pub const fn parity_disks(self) -> usize {
        match self {
            Self::None => 0,
            Self::Raid4 => 1,
            Self::Dp => 2,
            Self::Tp => 3,
        }
    }

    /// Fewest disks of a group.
    #[must_use]
    pub const fn disks_min(self) -> usize {
        match self {
            Self::None => 1,
            Self::Raid4 => 3,
            Self::Dp => 4,
            Self::Tp => 5,
        }
    }
}

impl fmt::Display for RaidKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::None => "none",
            Self::Raid4 => "raid4",
            Self::Dp => "dp",
            Self::Tp => "tp",
        })
    }
}

/// An object by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Its name.
    pub name: String,
}

/// All volumes, or one.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeFilter {
    /// The one, if not all.
    pub volume: Option<String>,
}

/// Makes an aggregate out of disks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregateCreate {
    /// Its name.
    pub name: String,
    /// The disks, by the names that `disk_list` gives them.
    pub disks: Vec<String>,
    /// Disks that wait for the place of one that fails.
    #[serde(default)]
    pub spares: Vec<String>,
    /// Its protection.
    pub raid: RaidKind,
    /// Disks of a RAID group at most, parity included; as many as can be if nothing is said.
    #[serde(default)]
    pub group_size: Option<u64>,
    /// What the disks are, as users write it (`ssd:4MiB`); what each tells of itself if not given.
    #[serde(default)]
    pub media: Option<String>,
    /// Take disks that hold something else; what they hold is lost.
    #[serde(default)]
    pub force: bool,
    /// Aggregates out of service that may lose disks by this: each is degraded or lost then.
    #[serde(default)]
    pub abandoned: Vec<String>,
    /// Make a traditional volume of the aggregate's own name, instead of room for many.
    #[serde(default)]
    pub traditional: bool,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

impl AggregateCreate {
    /// An aggregate of these disks, with nothing chosen that need not be.
    #[must_use]
    pub fn new(name: &str, disks: Vec<String>, raid: RaidKind) -> Self {
        Self {
            name: name.to_owned(),
            disks,
            spares: Vec::new(),
            raid,
            group_size: None,
            media: None,
            force: false,
            abandoned: Vec::new(),
            traditional: false,
            dry_run: false,
        }
    }
}

/// Makes an aggregate larger.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregateAdd {
    /// The aggregate.
    pub name: String,
    /// The disks, by the names that `disk_list` gives them.
    pub disks: Vec<String>,
    /// The group that they join as data disks; groups of their own if nothing is said.
    #[serde(default)]
    pub group: Option<u32>,
    /// The protection of groups of their own; that of the first group if nothing is said.
    #[serde(default)]
    pub raid: Option<RaidKind>,
    /// Disks of a new group at most, parity included.
    #[serde(default)]
    pub group_size: Option<u64>,
    /// What the disks are, as users write it; what each tells of itself if not given.
    #[serde(default)]
    pub media: Option<String>,
    /// Take disks that hold something else; what they hold is lost.
    #[serde(default)]
    pub force: bool,
    /// Aggregates out of service that may lose disks by this: each is degraded or lost then.
    #[serde(default)]
    pub abandoned: Vec<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// The longest that a disk shows itself, a day: by then nobody is looking any more.
pub const LOCATE_SECONDS_MAX: u64 = 86_400;

/// Takes a disk out of its aggregate's use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskFail {
    /// The disk, by the name that `aggregate_show` gives it.
    pub disk: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Forgets the errors that were counted for a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskClear {
    /// The disk, by the name that `aggregate_show` gives it; or one that was replaced because of
    /// its errors.
    pub disk: String,
    /// Only say what would be forgotten.
    #[serde(default)]
    pub dry_run: bool,
}

/// Gives a disk's place in its aggregate to another disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskReplace {
    /// The disk, by the name that `aggregate_show` gives it.
    pub disk: String,
    /// The one that takes its place, by the name that `disk_list` gives it; a spare if none is
    /// named. The disk itself is taken back if it went and is there again.
    #[serde(default)]
    pub replacement: Option<String>,
    /// Take it even if it holds something else; what it holds is lost.
    #[serde(default)]
    pub force: bool,
    /// Aggregates out of service that may lose disks by this: each is degraded or lost then.
    #[serde(default)]
    pub abandoned: Vec<String>,
    /// Bytes of it that are filled a second at most; `None` is no limit.
    #[serde(default)]
    pub rate_bytes_per_second: Option<u64>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Has a disk show where it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskLocate {
    /// The disk, by the name that `disk_list` gives it.
    pub disk: String,
    /// For how many seconds; 0 to end it.
    pub seconds: u64,
}

/// Has a disk that no aggregate uses hold nothing but zeros.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskZero {
    /// The disk, by the name that `disk_list` gives it.
    pub disk: String,
    /// Only say what would be lost.
    #[serde(default)]
    pub dry_run: bool,
}

/// Makes disks spares of an aggregate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpareAdd {
    /// The aggregate.
    pub aggregate: String,
    /// The disks, by the names that `disk_list` gives them.
    pub disks: Vec<String>,
    /// Take disks that hold something else; what they hold is lost.
    #[serde(default)]
    pub force: bool,
    /// Aggregates out of service that may lose disks by this: each is degraded or lost then.
    #[serde(default)]
    pub abandoned: Vec<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Lets go of a spare.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpareRemove {
    /// The disk, by the name that `disk_list` gives it.
    pub disk: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// User and group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Takes a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotName {
    /// The volume.
    pub volume: String,
    /// The snapshot's name.
    pub name: String,
}

/// Holds a snapshot, so that it is not deleted, or releases it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotHold {
    /// The volume.
    pub volume: String,
    /// The snapshot's name.
    pub name: String,
    /// Whether it is to be held.
    pub held: bool,
}

/// Deletes a snapshot, or several that follow each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotDelete {
    /// The volume.
    pub volume: String,
    /// The snapshot's name.
    pub name: String,
    /// The newest of several: those between the two go as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// Only say what would go.
    #[serde(default)]
    pub dry_run: bool,
    /// The plan that was shown: nothing is done if it is another one by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
}

/// Takes a whole volume back to a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRestore {
    /// The volume.
    pub volume: String,
    /// The snapshot's name.
    pub name: String,
    /// Let the snapshots taken since go, which a restore cannot keep.
    #[serde(default)]
    pub discard_newer: bool,
    /// Only say what would go.
    #[serde(default)]
    pub dry_run: bool,
    /// The plan that was shown: nothing is done if it is another one by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
}

/// Adds an export rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportAdd {
    /// The volume.
    pub volume: String,
    /// The rule.
    pub rule: ExportRule,
    /// Where among the rules, from 0; at the end if not given.
    pub index: Option<usize>,
}

/// Removes the export rule of a client network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportRemove {
    /// The volume.
    pub volume: String,
    /// The rule's network, exactly.
    pub client: Network,
}

/// Mounts a volume on this machine, with FUSE.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountCreate {
    /// The volume.
    pub volume: String,
    /// An empty directory, by its absolute path.
    pub mountpoint: String,
    /// Whether this machine keeps writes in its page cache and sends them later. Not sent if not:
    /// servers before this field refuse it.
    #[serde(default, skip_serializing_if = "is_off")]
    pub write_back: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_off(option: &bool) -> bool {
    !*option
}

/// Ends a mount.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountRemove {
    /// The directory, by its absolute path.
    pub mountpoint: String,
}

/// Requests whose check is a matter of a line.
macro_rules! validate {
    ($($request:ty: |$it:ident| $check:expr;)*) => {
        $(impl Validate for $request {
            fn validate(&self) -> Result<(), AdminError> {
                let $it = self;
                $check
            }
        })*
    };
}

validate! {
    Named: |it| validate_name("object", &it.name);
    VolumeFilter: |it| it.volume.as_ref().map_or(Ok(()), |name| validate_name("volume", name));
    DiskFail: |it| validate_disk("cannot fail disk", &it.disk);
    DiskZero: |it| validate_disk("cannot zero disk", &it.disk);
    DiskClear: |it| validate_disk("cannot clear disk", &it.disk);
    SpareRemove: |it| validate_disk("cannot remove spare", &it.disk);
    ExportAdd: |it| validate_name("volume", &it.volume);
    ExportRemove: |it| validate_name("volume", &it.volume);
    MountRemove: |it| validate_path(&it.mountpoint);
    SnapshotName: |it| {
        validate_snapshot(&it.volume, &it.name)?;
        let is_free = Schedule::of_name(&it.name).is_none();
        let object = format!("{}@{}", it.volume, it.name);
        let taken = AdminError::usage("cannot create snapshot", object)
            .because("names of this form are those of snapshots that the node takes by itself");
        if is_free { Ok(()) } else { Err(taken) }
    };
    SnapshotHold: |it| validate_snapshot(&it.volume, &it.name);
    crate::differences::SnapshotDiff: |it| {
        validate_snapshot(&it.volume, &it.from)?;
        validate_name("snapshot", &it.to)
    };
    SnapshotDelete: |it| {
        validate_snapshot(&it.volume, &it.name)?;
        it.through.as_ref().map_or(Ok(()), |name| validate_name("snapshot", name))
    };
    SnapshotRestore: |it| validate_snapshot(&it.volume, &it.name);
    MountCreate: |it| {
        validate_name("volume", &it.volume)?;
        validate_path(&it.mountpoint)
    };
}

fn validate_snapshot(volume: &str, name: &str) -> Result<(), AdminError> {
    validate_name("volume", volume)?;
    validate_name("snapshot", name)
}

fn validate_disk(action: &str, name: &str) -> Result<(), AdminError> {
    if name.is_empty() || name.len() > PATH_BYTES_MAX {
        return Err(AdminError::usage(action, name)
            .because(format!("a disk has a name of 1 to {PATH_BYTES_MAX} bytes")));
    }
    Ok(())
}

impl Validate for DiskLocate {
    fn validate(&self) -> Result<(), AdminError> {
        validate_disk("cannot locate disk", &self.disk)?;
        if self.seconds > LOCATE_SECONDS_MAX {
            return Err(AdminError::usage("cannot locate disk", &self.disk)
                .because(format!("a disk shows itself for {LOCATE_SECONDS_MAX} seconds at most")));
        }
        Ok(())
    }
}

impl Validate for DiskReplace {
    fn validate(&self) -> Result<(), AdminError> {
        validate_disk("cannot replace disk", &self.disk)?;
        let error = || AdminError::usage("cannot replace disk", &self.disk);
        validate_abandoned(&self.abandoned, error)?;
        validate_rate(self.rate_bytes_per_second, error)?;
        let replacement = self.replacement.as_ref();
        replacement.map_or(Ok(()), |name| validate_disk("cannot replace disk", name))
    }
}

impl Validate for SpareAdd {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("aggregate", &self.aggregate)?;
        let error = || AdminError::usage("cannot add spares to", &self.aggregate);
        if self.disks.is_empty() || self.disks.len() > AGGREGATE_DISKS_MAX {
            return Err(error().because(format!("1 to {AGGREGATE_DISKS_MAX} disks at a time")));
        }
        validate_abandoned(&self.abandoned, error)?;
        validate_disks(&self.disks, error)
    }
}

impl Validate for AggregateCreate {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("aggregate", &self.name)?;
        let error = || AdminError::usage("cannot create aggregate", &self.name);
        if self.disks.len() < self.raid.disks_min() {
            return Err(error().because(format!(
                "raid {} needs {} disks or more, {} given",
                self.raid,
                self.raid.disks_min(),
                self.disks.len()
            )));
        }
        validate_media(self.media.as_ref(), error)?;
        validate_abandoned(&self.abandoned, error)?;
        validate_disks(&self.disks, error)?;
        validate_disks(&self.spares, error)?;
        if let Some(disk) = self.spares.iter().find(|spare| self.disks.contains(spare)) {
            return Err(error().because(format!("disk {disk} is named twice, as a spare, too")));
        }
        validate_group_size(self.group_size, Some(self.raid), error)
    }
}

impl Validate for AggregateAdd {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("aggregate", &self.name)?;
        let error = || AdminError::usage("cannot add disks to aggregate", &self.name);
        if self.disks.is_empty() {
            return Err(error().because("no disk is named").try_next("stroop disk list"));
        }
        if self.group.is_some() && (self.raid.is_some() || self.group_size.is_some()) {
            return Err(error().because(
                "disks join a group and take its protection, or they are groups of their own; name \
                 the group, or protection and size of new ones",
            ));
        }
        validate_media(self.media.as_ref(), error)?;
        validate_abandoned(&self.abandoned, error)?;
        validate_disks(&self.disks, error)?;
        validate_group_size(self.group_size, self.raid, error)
    }
}

fn validate_media(
    media: Option<&String>,
    error: impl Fn() -> AdminError,
) -> Result<(), AdminError> {
    if media.is_some_and(|media| media.len() > MEDIA_BYTES_MAX) {
        return Err(error().because("its media is one of hdd, ssd, smr, object"));
    }
    Ok(())
}

fn validate_group_size(
    group_size: Option<u64>,
    raid: Option<RaidKind>,
    error: impl Fn() -> AdminError,
) -> Result<(), AdminError> {
    let minimum = raid.map_or(1, RaidKind::disks_min) as u64;
    match group_size {
        Some(size) if !(minimum..=GROUP_DISKS_MAX).contains(&size) => {
            Err(error().because(format!(
                "a group has {minimum} to {GROUP_DISKS_MAX} disks, parity included, not {size}"
            )))
        }
        _ => Ok(()),
    }
}

fn validate_abandoned(
    abandoned: &[String],
    error: impl Fn() -> AdminError,
) -> Result<(), AdminError> {
    if abandoned.len() > AGGREGATE_DISKS_MAX {
        return Err(error().because(format!("at most {AGGREGATE_DISKS_MAX} aggregates lose disks")));
    }
    Ok(())
}

fn validate_disks(disks: &[String], error: impl Fn() -> AdminError) -> Result<(), AdminError> {
    if disks.len() > AGGREGATE_DISKS_MAX {
        return Err(error().because(format!("at most {AGGREGATE_DISKS_MAX} disks")));
    }
    for (index, disk) in disks.iter().enumerate() {
        if disk.is_empty() || disk.len() > PATH_BYTES_MAX {
            return Err(error().because(format!("disk {} has no usable name", index + 1)));
        }
        if disks.iter().take(index).any(|earlier| earlier == disk) {
            return Err(error().because(format!("disk {disk} is named twice")));
        }
    }
    Ok(())
}

fn validate_path(path: &str) -> Result<(), AdminError> {
    let cause = if !path.starts_with('/') {
        "the server needs an absolute path"
    } else if path.len() > PATH_BYTES_MAX {
        "the path is too long"
    } else if path.contains('\0') {
        "the path has a NUL in it"
    } else {
        return Ok(());
    };
    Err(AdminError::new(Code::Usage, "cannot use this mountpoint", path).because(cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aggregate(disks: &[&str], raid: RaidKind) -> AggregateCreate {
        let disks = disks.iter().map(|disk| (*disk).to_owned()).collect();
        AggregateCreate::new("a1", disks, raid)
    }

    #[test]
    fn disks_join_a_group_or_are_new_ones() {
        let add = |group, raid, group_size| {
            let disks = vec!["a".to_owned()];
            let name = "a1".to_owned();
            let request = AggregateAdd {
                name,
                disks,
                group,
                raid,
                group_size,
                media: None,
                force: false,
                abandoned: Vec::new(),
                dry_run: false,
            };
            request.validate().map_err(|error| error.cause)
        };
        assert_eq!(add(None, None, None), Ok(()));
        assert_eq!(add(Some(1), None, None), Ok(()));
        assert_eq!(add(None, Some(RaidKind::Dp), Some(4)), Ok(()));
        assert!(add(Some(1), Some(RaidKind::Dp), None).is_err());
        assert!(add(Some(1), None, Some(8)).is_err());
        assert!(add(None, Some(RaidKind::Dp), Some(3)).is_err());
        assert!(add(None, None, Some(33)).is_err());
    }

    #[test]
    fn aggregates_have_disks_enough_and_each_once() {
        assert!(aggregate(&["a"], RaidKind::None).validate().is_ok());
        assert!(aggregate(&["a", "b", "c"], RaidKind::Raid4).validate().is_ok());
        for (disks, raid, cause) in [
            (&["a", "b"][..], RaidKind::Raid4, "needs 3 disks"),
            (&[], RaidKind::None, "needs 1 disks"),
            (&["a", "b", "a"], RaidKind::None, "a is named twice"),
            (&["a", "b", "c"], RaidKind::Dp, "needs 4 disks"),
            (&["a", "b", "c", "d"], RaidKind::Tp, "needs 5 disks"),
            (&["a", "", "c"], RaidKind::Raid4, "disk 2"),
        ] {
            let error = aggregate(disks, raid).validate().unwrap_err();
            assert!(error.to_string().contains(cause), "{error}");
        }
    }

    #[test]
    fn regression_spares_are_named_once() {
        let spares = |spares: &[&str]| {
            let spares = spares.iter().map(|disk| (*disk).to_owned()).collect();
            let create = AggregateCreate { spares, ..aggregate(&["a", "b"], RaidKind::None) };
            create.validate().map_err(|error| error.to_string())
        };
        assert_eq!(spares(&["c", "d"]), Ok(()));
        assert!(spares(&["c", "c"]).unwrap_err().contains("c is named twice"));
        assert!(spares(&["c", "b"]).unwrap_err().contains("b is named twice"));
        let add = |disks: &[&str]| {
            let disks = disks.iter().map(|disk| (*disk).to_owned()).collect();
            let (aggregate, abandoned) = ("a1".to_owned(), Vec::new());
            SpareAdd { aggregate, disks, force: true, abandoned, dry_run: false }.validate()
        };
        assert!(add(&["a", "b"]).is_ok() && add(&["a", ""]).is_err());
        assert!(add(&["a", "a"]).unwrap_err().to_string().contains("a is named twice"));
    }

    /// A server older than the field refuses a request with it: it is sent only where it is on.
    #[test]
    fn an_option_that_is_off_is_not_sent() {
        let text = |write_back| {
            let (volume, mountpoint) = ("home".to_owned(), "/m".to_owned());
            serde_json::to_string(&MountCreate { volume, mountpoint, write_back }).unwrap()
        };
        assert_eq!(text(false), r#"{"volume":"home","mountpoint":"/m"}"#);
        for write_back in [false, true] {
            let read: MountCreate = serde_json::from_str(&text(write_back)).unwrap();
            assert_eq!(read.write_back, write_back);
        }
    }

    #[test]
    fn mountpoints_are_absolute() {
        let mount = |path: &str| MountRemove { mountpoint: path.to_owned() }.validate();
        assert!(mount("/mnt").is_ok());
        for wrong in ["", "mnt", "/m\0", &format!("/{}", "x".repeat(PATH_BYTES_MAX))] {
            assert!(mount(wrong).is_err());
        }
    }

    #[test]
    fn unknown_fields_are_refused() {
        let text = r#"{"name":"home","dry_run":true,"purge":true}"#;
        let error = serde_json::from_str::<crate::VolumeDelete>(text).unwrap_err();
        assert!(error.to_string().contains("purge"));
    }
}

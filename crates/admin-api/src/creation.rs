//! Volumes that are to be made.
//!
//! Invariants and failures: as those of [`crate::requests`].

use crate::AdminError;
use crate::exports::{EXPORT_RULES_MAX, ExportRule, ID_MAX};
use crate::names::validate_name;
use crate::policies::{Guarantee, Reallocation, SnapshotAutodelete, TieringPolicy};
use crate::requests::{Owner, Validate};
use crate::schedules::SnapshotPolicy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use units::ByteSize;

/// Smallest volume: room for its metadata and some files.
pub const VOLUME_BYTES_MIN: u64 = 16 << 20;
/// Largest volume: 64 PiB, the size to design for.
pub const VOLUME_BYTES_MAX: u64 = 64 << 50;
/// Volumes made with one request: as many as an aggregate can have.
pub const VOLUMES_CREATED_MAX: usize = 1000;

/// Makes volumes, alike but for their names: all of them or none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// Their names, no two the same; one to [`VOLUMES_CREATED_MAX`].
    pub names: Vec<String>,
    /// The aggregate that they live in.
    pub aggregate: String,
    /// The size of each. The sum may exceed the aggregate where none is guaranteed.
    pub size_bytes: u64,
    /// Who owns their root directories; root if not given.
    pub owner: Option<Owner>,
    /// Who may mount them over NFS.
    #[serde(default)]
    pub exports: Vec<ExportRule>,
    /// Which of their blocks lie in object stores.
    #[serde(default)]
    pub tiering_policy: TieringPolicy,
    /// Days after which a block is cold; the policy's if not given.
    #[serde(default)]
    pub tiering_minimum_cooling_days: Option<u16>,
    /// Whether reads reallocate.
    #[serde(default)]
    pub reallocate: Reallocation,
    /// The size that each grows to by itself where room is short, rounded up to whole blocks; if
    /// not given, or 0, they do not grow.
    #[serde(default)]
    pub autogrow_max_bytes: Option<u64>,
    /// The snapshots of each that the node takes by itself.
    #[serde(default)]
    pub snapshot_policy: SnapshotPolicy,
    /// Which snapshots of each are deleted where room is short.
    #[serde(default)]
    pub snapshot_autodelete: SnapshotAutodelete,
    /// How much room their aggregate keeps for each.
    #[serde(default)]
    pub guarantee: Guarantee,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

impl VolumeCreate {
    /// One volume, with nothing chosen but its size.
    #[must_use]
    pub fn new(name: &str, aggregate: &str, size_bytes: u64) -> Self {
        Self {
            names: vec![name.to_owned()],
            aggregate: aggregate.to_owned(),
            size_bytes,
            owner: None,
            exports: Vec::new(),
            tiering_policy: TieringPolicy::default(),
            tiering_minimum_cooling_days: None,
            reallocate: Reallocation::default(),
            autogrow_max_bytes: None,
            snapshot_policy: SnapshotPolicy::default(),
            snapshot_autodelete: SnapshotAutodelete::default(),
            guarantee: Guarantee::default(),
            dry_run: false,
        }
    }
}

/// Makes clones of a snapshot: volumes that begin with its image and share its blocks. All of them
/// or none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloneCreate {
    /// Their names, no two the same; one to [`VOLUMES_CREATED_MAX`].
    pub names: Vec<String>,
    /// The volume.
    pub volume: String,
    /// Its snapshot.
    pub snapshot: String,
    /// Who may mount them over NFS. The volume's own rules are not taken over.
    #[serde(default)]
    pub exports: Vec<ExportRule>,
    /// How much room their aggregate keeps for each; as for the volume, if not given.
    #[serde(default)]
    pub guarantee: Option<Guarantee>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

impl CloneCreate {
    /// One clone, with nothing chosen.
    #[must_use]
    pub fn new(name: &str, volume: &str, snapshot: &str) -> Self {
        Self {
            names: vec![name.to_owned()],
            volume: volume.to_owned(),
            snapshot: snapshot.to_owned(),
            exports: Vec::new(),
            guarantee: None,
            dry_run: false,
        }
    }
}

impl Validate for CloneCreate {
    fn validate(&self) -> Result<(), AdminError> {
        let message = "cannot create clone";
        validate_new_names(message, &self.names)?;
        validate_name("volume", &self.volume)?;
        validate_name("snapshot", &self.snapshot)?;
        validate_rules_count(message, &self.names, &self.exports)
    }
}

/// Whether so many volumes may be made together under these names.
fn validate_new_names(message: &str, names: &[String]) -> Result<(), AdminError> {
    let count = names.len();
    if !(1..=VOLUMES_CREATED_MAX).contains(&count) {
        let first = names.first().map_or("", String::as_str);
        let cause = format!("{count} names are given; 1 to {VOLUMES_CREATED_MAX} can be at a time");
        return Err(AdminError::usage(message, first).because(cause));
    }
    let mut known = BTreeSet::new();
    for name in names {
        validate_name("volume", name)?;
        if !known.insert(name) {
            return Err(AdminError::usage(message, name).because("it is named twice"));
        }
    }
    Ok(())
}

fn validate_rules_count(
    message: &str,
    names: &[String],
    rules: &[ExportRule],
) -> Result<(), AdminError> {
    if rules.len() > EXPORT_RULES_MAX {
        let first = names.first().map_or("", String::as_str);
        let error = AdminError::usage(message, first);
        return Err(error.because(format!("at most {EXPORT_RULES_MAX} export rules")));
    }
    Ok(())
}

impl Validate for VolumeCreate {
    fn validate(&self) -> Result<(), AdminError> {
        let message = "cannot create volume";
        let first = self.names.first().map_or("", String::as_str);
        validate_new_names(message, &self.names)?;
        validate_name("aggregate", &self.aggregate)?;
        validate_volume_size(message, first, self.size_bytes)?;
        if let Some(maximum_bytes) = self.autogrow_max_bytes.filter(|bytes| *bytes > 0) {
            validate_autogrow_max(message, first, maximum_bytes)?;
            if maximum_bytes < self.size_bytes {
                return Err(AdminError::usage(message, first).because(format!(
                    "it is to grow to {}, which is less than its size, {}",
                    ByteSize(maximum_bytes),
                    ByteSize(self.size_bytes)
                )));
            }
        }
        let policy = self.snapshot_policy.check();
        policy.map_err(|cause| AdminError::usage(message, first).because(cause))?;
        let ids = self.owner.map(|owner| [owner.uid, owner.gid]).into_iter().flatten();
        if let Some(id) = ids.into_iter().find(|id| *id > ID_MAX) {
            let cause = format!("{id} is no number of a user or group (0 to {ID_MAX})");
            return Err(AdminError::usage(message, first).because(cause));
        }
        validate_rules_count(message, &self.names, &self.exports)
    }
}

/// Whether a volume may have this size.
pub(crate) fn validate_volume_size(
    message: &str,
    name: &str,
    size_bytes: u64,
) -> Result<(), AdminError> {
    validate_size((message, name), "its size is", size_bytes)
}

/// Whether a volume may grow to this size.
pub(crate) fn validate_autogrow_max(
    message: &str,
    name: &str,
    maximum_bytes: u64,
) -> Result<(), AdminError> {
    validate_size((message, name), "it is to grow to", maximum_bytes)
}

fn validate_size(
    (message, name): (&str, &str),
    what: &str,
    size_bytes: u64,
) -> Result<(), AdminError> {
    if (VOLUME_BYTES_MIN..=VOLUME_BYTES_MAX).contains(&size_bytes) {
        return Ok(());
    }
    Err(AdminError::usage(message, name).because(format!(
        "{what} {}; sizes from {} to {} are possible",
        ByteSize(size_bytes),
        ByteSize(VOLUME_BYTES_MIN),
        ByteSize(VOLUME_BYTES_MAX)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(size_bytes: u64) -> VolumeCreate {
        VolumeCreate::new("home", "a1", size_bytes)
    }

    #[test]
    fn volumes_have_a_size_within_limits() {
        assert!(volume(VOLUME_BYTES_MIN).validate().is_ok());
        assert!(volume(VOLUME_BYTES_MAX).validate().is_ok());
        assert!(volume(VOLUME_BYTES_MIN - 1).validate().is_err());
        assert!(volume(VOLUME_BYTES_MAX + 1).validate().is_err());
    }

    #[test]
    fn volumes_are_made_many_at_a_time_each_with_a_name_of_its_own() {
        let cause = |names: Vec<String>| {
            let wanted = VolumeCreate { names, ..volume(VOLUME_BYTES_MIN) };
            wanted.validate().err().map(|error| error.cause.join("; "))
        };
        let numbered = |count| (0..count).map(|number| format!("v{number}")).collect();
        assert_eq!(cause(numbered(VOLUMES_CREATED_MAX)), None);
        assert!(cause(numbered(VOLUMES_CREATED_MAX + 1)).unwrap().contains("1001 names"));
        assert!(cause(numbered(0)).unwrap().contains("0 names"));
        let twice = ["a", "b", "a"].map(str::to_owned).to_vec();
        assert!(cause(twice).unwrap().contains("named twice"));
        assert!(cause(vec!["a".to_owned(), "a/b".to_owned()]).is_some());
    }
}

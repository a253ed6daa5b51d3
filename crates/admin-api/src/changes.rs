//! Changes of what is there: of an aggregate a group that leaves, settings, and its way into
//! service; of a volume its tiering policy, its size, its name, and whether it
//! is online.
//!
//! Invariants and failures: as those of [`crate::requests`].

use crate::AdminError;
use crate::creation::{validate_autogrow_max, validate_volume_size};
use crate::names::validate_name;
use crate::policies::{Guarantee, Reallocation, SnapshotAutodelete, TieringPolicy};
use crate::rate::validate_rate;
use crate::requests::Validate;
use crate::schedules::SnapshotPolicy;
use serde::{Deserialize, Serialize};

/// Has a RAID group leave its aggregate: it is emptied, and its disks are free then.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRemove {
    /// The aggregate.
    pub name: String,
    /// The group, counted from 0.
    pub group: u32,
    /// Have it stay, if it is being emptied.
    #[serde(default)]
    pub cancel: bool,
    /// Bytes of it that are moved a second at most; `None` is no limit.
    #[serde(default)]
    pub rate_bytes_per_second: Option<u64>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// A RAID group that is being emptied to leave its aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeavingGroup {
    /// Its number, counted from 0.
    pub group: u32,
    /// What is in use in it still, and is part of the aggregate's used; nothing while it is being
    /// counted. The rest of the group is neither free nor reserved: nothing is placed there.
    pub used_bytes: Option<u64>,
    /// Its size.
    pub size_bytes: u64,
}

/// Brings an aggregate that is out of service back into service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregateOnline {
    /// The aggregate.
    pub name: String,
    /// Do without a journal that is lost, and without the operations that only it had.
    #[serde(default)]
    pub without_journal: bool,
    /// Only say what would be lost.
    #[serde(default)]
    pub dry_run: bool,
}

/// Deletes an aggregate: its disks are free then.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregateDelete {
    /// The aggregate.
    pub name: String,
    /// What it holds may be lost, too, where nobody can look at it or it is a traditional volume.
    #[serde(default)]
    pub force: bool,
    /// Only say what would go.
    #[serde(default)]
    pub dry_run: bool,
    /// The plan that was shown: nothing is done if it is another one by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
}

impl Validate for AggregateDelete {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("aggregate", &self.name)
    }
}

/// Changes an aggregate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregateSet {
    /// The aggregate.
    pub name: String,
    /// Whether allocation areas are emptied ahead of being filled; as before if not given.
    #[serde(default)]
    pub area_cleaning: Option<bool>,
}

/// Changes a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeSet {
    /// Its name.
    pub name: String,
    /// Which of its blocks lie in object stores; as before if not given.
    #[serde(default)]
    pub tiering_policy: Option<TieringPolicy>,
    /// Days after which a block is cold; with another policy, if not given, as that has it, else as
    /// before.
    #[serde(default)]
    pub tiering_minimum_cooling_days: Option<u16>,
    /// Whether reads reallocate; as before if not given.
    #[serde(default)]
    pub reallocate: Option<Reallocation>,
    /// The size that it grows to by itself where room is short, rounded up to whole blocks; 0: it
    /// does not grow; as before if not given.
    #[serde(default)]
    pub autogrow_max_bytes: Option<u64>,
    /// The snapshots that the node takes by itself; as before if not given.
    #[serde(default)]
    pub snapshot_policy: Option<SnapshotPolicy>,
    /// Which snapshots are deleted where room is short; as before if not given.
    #[serde(default)]
    pub snapshot_autodelete: Option<SnapshotAutodelete>,
    /// How much room its aggregate keeps for it; as before if not given.
    #[serde(default)]
    pub guarantee: Option<Guarantee>,
}

/// Gives a volume another size, larger or smaller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeResize {
    /// The volume.
    pub name: String,
    /// The size that users see, in bytes; rounded up to whole blocks.
    pub size_bytes: u64,
    /// Only say how it would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Gives a volume another name. Clients that have it mounted go on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRename {
    /// The volume.
    pub name: String,
    /// The name that it gets.
    pub new_name: String,
    /// Only say how it would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Takes a volume offline: its clients are turned away until it is brought back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeOffline {
    /// The volume.
    pub name: String,
    /// Only say how it would be.
    #[serde(default)]
    pub dry_run: bool,
}

impl Validate for VolumeOffline {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("volume", &self.name)
    }
}

impl Validate for VolumeRename {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("volume", &self.name)?;
        validate_name("volume", &self.new_name)?;
        if self.name == self.new_name {
            return Err(AdminError::usage("cannot rename volume", &self.name)
                .because("it has this name already"));
        }
        Ok(())
    }
}

impl VolumeSet {
    /// Whether the tiering policy, or its days, are chosen anew.
    #[must_use]
    pub const fn changes_tiering(&self) -> bool {
        self.tiering_policy.is_some() || self.tiering_minimum_cooling_days.is_some()
    }
}

impl Validate for VolumeSet {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("volume", &self.name)?;
        let message = "cannot change volume";
        let is_other = self.autogrow_max_bytes.is_some()
            || self.snapshot_policy.is_some()
            || self.snapshot_autodelete.is_some()
            || self.guarantee.is_some();
        if !self.changes_tiering() && self.reallocate.is_none() && !is_other {
            return Err(AdminError::usage(message, &self.name)
                .because("no change is named")
                .try_next(format!("stroop volume set {} --autogrow-max 100G", self.name)));
        }
        let policy = self.snapshot_policy.unwrap_or(SnapshotPolicy::NONE).check();
        policy.map_err(|cause| AdminError::usage(message, &self.name).because(cause))?;
        match self.autogrow_max_bytes {
            None | Some(0) => Ok(()),
            Some(maximum_bytes) => validate_autogrow_max(message, &self.name, maximum_bytes),
        }
    }
}

impl Validate for VolumeResize {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("volume", &self.name)?;
        validate_volume_size("cannot resize volume", &self.name, self.size_bytes)
    }
}

impl Validate for GroupRemove {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("aggregate", &self.name)?;
        if self.cancel && self.dry_run {
            return Err(AdminError::usage("cannot keep a group of", &self.name)
                .because("nothing would change"));
        }
        let error = || AdminError::usage("cannot remove a group of", &self.name);
        if self.cancel && self.rate_bytes_per_second.is_some() {
            return Err(error().because("a group that stays has no rate"));
        }
        validate_rate(self.rate_bytes_per_second, error)
    }
}

impl Validate for AggregateOnline {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("aggregate", &self.name)?;
        if self.dry_run && !self.without_journal {
            return Err(AdminError::usage("cannot show the plan for aggregate", &self.name)
                .because("without --without-journal nothing is lost"));
        }
        Ok(())
    }
}

impl Validate for AggregateSet {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("aggregate", &self.name)?;
        if self.area_cleaning.is_none() {
            return Err(AdminError::usage("cannot change aggregate", &self.name)
                .because("no change is named")
                .try_next(format!("stroop aggr set {} --area-cleaning on", self.name)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_of_what_would_be_lost() {
        let online = |without_journal, dry_run| {
            AggregateOnline { name: "a1".to_owned(), without_journal, dry_run }.validate()
        };
        assert!(online(true, true).is_ok() && online(false, false).is_ok());
        assert!(online(false, true).is_err());
    }

    #[test]
    fn a_new_name_is_a_name_and_another() {
        let rename = |new_name: &str| {
            let (name, new_name) = ("home".to_owned(), new_name.to_owned());
            VolumeRename { name, new_name, dry_run: false }.validate()
        };
        assert!(rename("work").is_ok());
        assert!(rename("home").is_err() && rename("a/b").is_err() && rename("").is_err());
    }

    #[test]
    fn a_change_changes_something() {
        let set = |area_cleaning| AggregateSet { name: "a1".to_owned(), area_cleaning };
        assert!(set(Some(false)).validate().is_ok());
        assert!(set(None).validate().is_err());
        let remove = |cancel, dry_run, rate_bytes_per_second| {
            let name = "a1".to_owned();
            GroupRemove { name, group: 1, cancel, rate_bytes_per_second, dry_run }.validate()
        };
        assert!(remove(true, false, None).is_ok() && remove(false, true, None).is_ok());
        assert!(remove(true, true, None).is_err());
        let rate = Some(crate::RATE_BYTES_MIN);
        assert!(remove(false, false, rate).is_ok() && remove(false, true, rate).is_ok());
        assert!(remove(true, false, rate).is_err() && remove(false, false, Some(0)).is_err());
    }
}

//! Volumes that are deleted: kept in the recovery queue for a while, brought back, or purged.
//!
//! In the queue a volume is called `NAME~NUMBER`, so that its name is free for another. A request
//! may name it so, or by the name that it had, if no other volume of the queue had that.
//!
//! Invariants and failures: as those of [`crate::requests`].

use crate::AdminError;
use crate::duration;
use crate::error::Code;
use crate::names::{NAME_BYTES_MAX, validate_name};
use crate::requests::Validate;
use crate::time::Time;
use crate::titles::SEPARATOR;
use serde::{Deserialize, Serialize};

/// How long a deleted volume is kept unless the request says otherwise.
pub const QUEUE_SECONDS_DEFAULT: u64 = 12 * 3600;
/// How long a deleted volume is kept at least, if it is kept.
pub const QUEUE_SECONDS_MIN: u64 = 600;
/// How long a deleted volume is kept at most: a year.
pub const QUEUE_SECONDS_MAX: u64 = 366 * 86_400;

/// Deletes a volume with its snapshots.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeDelete {
    /// Its name.
    pub name: String,
    /// Seconds that it is kept in the recovery queue, [`QUEUE_SECONDS_MIN`] at least; with 0 it is
    /// gone at once. If not given, [`QUEUE_SECONDS_DEFAULT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_for_seconds: Option<u64>,
    /// Only say what would go.
    #[serde(default)]
    pub dry_run: bool,
    /// The plan that was shown: nothing is done if it is another one by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
}

impl VolumeDelete {
    /// Seconds that the volume is kept.
    #[must_use]
    pub fn kept_seconds(&self) -> u64 {
        self.queue_for_seconds.unwrap_or(QUEUE_SECONDS_DEFAULT)
    }
}

/// Brings a volume back that was deleted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeUndelete {
    /// The volume's name in the queue, or the name that it had before.
    pub name: String,
    /// The name that the volume gets; if not given, the name that it had before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_name: Option<String>,
    /// Only say how it would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Deletes a volume of the recovery queue for good.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumePurge {
    /// The volume's name in the queue, or the name that it had before.
    pub name: String,
    /// Only say what would go.
    #[serde(default)]
    pub dry_run: bool,
    /// The plan that was shown: nothing is done if it is another one by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
}

/// A volume in the recovery queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeletedVolume {
    /// The volume's name in the queue: `NAME~NUMBER`.
    pub name: String,
    /// The name that the volume had before it was deleted.
    pub former_name: String,
    /// Its number within the aggregate.
    pub id: u32,
    /// The aggregate that it lives in.
    pub aggregate: String,
    /// Files and directories.
    pub files: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Why it takes no changes, or could not be served: it is damaged, or a newer build's.
    #[serde(default)]
    pub damage: Option<String>,
    /// Space that comes back when it is purged.
    pub held_bytes: u64,
    /// When it was deleted.
    pub deleted: Time,
    /// From when on it is purged.
    pub purge_after: Time,
}

/// The volume of the queue that a request names.
///
/// # Errors
/// `NotFound` if there is none, `Conflict` if several had the name.
pub fn find_deleted<'a>(
    message: &str,
    volumes: &'a [DeletedVolume],
    name: &str,
) -> Result<&'a DeletedVolume, AdminError> {
    if let Some(found) = volumes.iter().find(|volume| volume.name == name) {
        return Ok(found);
    }
    let had: Vec<&DeletedVolume> = volumes.iter().filter(|one| one.former_name == name).collect();
    match had[..] {
        [found] => Ok(found),
        [] => Err(AdminError::missing(message, "deleted volume", name)
            .try_next("stroop volume list --deleted")),
        [.., last] => {
            let names: Vec<&str> = had.iter().map(|one| one.name.as_str()).collect();
            Err(AdminError::new(Code::Conflict, message, name)
                .because(format!("several deleted volumes had the name: {}", names.join(", ")))
                .try_next(format!("name one as the list does, such as {}", last.name)))
        }
    }
}

fn validate_queue_name(name: &str) -> Result<(), AdminError> {
    let Some((former, rest)) = name.split_once(SEPARATOR) else {
        return validate_name("volume", name);
    };
    validate_name("volume", former)?;
    // Where two aggregates have a volume of this name and number, the name of one's follows.
    let (number, aggregate) = rest.split_once('.').unwrap_or((rest, "a"));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_named = aggregate.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'~');
    if is_number && is_named && rest.len() <= 2 * NAME_BYTES_MAX {
        return Ok(());
    }
    Err(AdminError::usage("cannot use this volume name", name)
        .because("a deleted volume is called NAME~NUMBER, such as home~7")
        .try_next("stroop volume list --deleted"))
}

impl Validate for VolumeDelete {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("volume", &self.name)?;
        let seconds = self.kept_seconds();
        if seconds == 0 || (QUEUE_SECONDS_MIN..=QUEUE_SECONDS_MAX).contains(&seconds) {
            return Ok(());
        }
        if seconds < QUEUE_SECONDS_MIN {
            return Err(AdminError::usage("cannot delete", &self.name)
                .because("a deleted volume is kept for ten minutes at least, or not at all")
                .try_next(format!("stroop volume delete {} --queue-for 10m, or 0s", self.name)));
        }
        let longest = duration::format(QUEUE_SECONDS_MAX * 1_000_000_000);
        Err(AdminError::usage("cannot delete", &self.name)
            .because(format!("a deleted volume is kept for {longest} at most"))
            .try_next(format!("stroop volume offline {}, to keep it for longer", self.name)))
    }
}

impl Validate for VolumeUndelete {
    fn validate(&self) -> Result<(), AdminError> {
        validate_queue_name(&self.name)?;
        self.new_name.as_ref().map_or(Ok(()), |name| validate_name("volume", name))
    }
}

impl Validate for VolumePurge {
    fn validate(&self) -> Result<(), AdminError> {
        validate_queue_name(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deleted(name: &str, id: u32) -> DeletedVolume {
        DeletedVolume {
            name: format!("{name}~{id}"),
            former_name: name.to_owned(),
            id,
            aggregate: "a1".to_owned(),
            files: 1,
            snapshots: 0,
            damage: None,
            held_bytes: 0,
            deleted: Time::default(),
            purge_after: Time::default(),
        }
    }

    #[test]
    fn a_deleted_volume_is_found_by_either_name_if_one_had_it() {
        let volumes = [deleted("home", 3), deleted("home", 7), deleted("work", 4)];
        let find = |name| find_deleted("cannot undelete", &volumes, name);
        assert_eq!(find("work").unwrap().id, 4);
        assert_eq!(find("home~7").unwrap().id, 7);
        let several = find("home").unwrap_err();
        assert_eq!(several.code, Code::Conflict);
        assert!(several.to_string().contains("home~3, home~7"), "{several}");
        assert_eq!(find("home~4").unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn names_of_the_queue_are_of_no_other_volume() {
        let purge = |name: &str| {
            VolumePurge { name: name.to_owned(), dry_run: false, plan: None }.validate()
        };
        for good in ["home", "home~7", "home~7.a1", "home~7.a1-2"] {
            assert!(purge(good).is_ok(), "{good}");
        }
        for wrong in ["", "~7", "home~", "home~x", "home~7~8", "home~/7", "Home~7", "home~7x"] {
            assert_eq!(purge(wrong).unwrap_err().code, Code::Usage, "{wrong}");
        }
        let is_queue_name = crate::titles::is_queue_name;
        assert!(is_queue_name("home~7") && !is_queue_name("home"));
    }

    #[test]
    fn a_volume_is_kept_for_a_time_that_a_person_may_mean() {
        let delete = |queue_for_seconds| {
            let name = "home".to_owned();
            VolumeDelete { name, queue_for_seconds, dry_run: false, plan: None }
        };
        assert_eq!(delete(None).kept_seconds(), 43_200);
        for good in [None, Some(0), Some(QUEUE_SECONDS_MIN), Some(QUEUE_SECONDS_MAX)] {
            assert!(delete(good).validate().is_ok(), "{good:?}");
        }
        for wrong in [1, QUEUE_SECONDS_MIN - 1, QUEUE_SECONDS_MAX + 1] {
            assert!(delete(Some(wrong)).validate().is_err(), "{wrong}");
        }
    }
}

//! Splitting clones from their parents: the request, and what a split takes.
//!
//! Fails: see [`Validate`].

use crate::error::AdminError;
use crate::names::validate_name;
use crate::rate::validate_rate;
use crate::replies::CloneOf;
use crate::requests::Validate;
use serde::{Deserialize, Serialize};

/// Has a clone copy the blocks that it shares with its parent, in the background. The clone is then
/// a volume like others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloneSplit {
    /// The clone.
    pub name: String,
    /// Have the split that is under way end where it is.
    #[serde(default)]
    pub stop: bool,
    /// Bytes that are copied a second at most; `None` is no limit.
    #[serde(default)]
    pub rate_bytes_per_second: Option<u64>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// The room that a split takes. Of a split that was stopped: the blocks that are still shared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SplitInfo {
    /// The clone.
    pub name: String,
    /// The volume and the snapshot that it is a clone of.
    pub clone_of: CloneOf,
    /// The aggregate.
    pub aggregate: String,
    /// Bytes that it shares with its parent, which are to be copied.
    pub shared_bytes: u64,
    /// Bytes of the aggregate that the copies take, with what says where they are.
    pub cost_bytes: u64,
    /// Bytes of the aggregate that are free.
    pub free_bytes: u64,
    /// Whether nothing was done.
    pub dry_run: bool,
}

impl Validate for CloneSplit {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("volume", &self.name)?;
        let error = || AdminError::usage("cannot split clone", &self.name);
        if self.stop && self.dry_run {
            return Err(error().because("nothing would change"));
        }
        if self.stop && self.rate_bytes_per_second.is_some() {
            return Err(error().because("a split that ends has no rate"));
        }
        validate_rate(self.rate_bytes_per_second, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_that_ends_has_neither_rate_nor_plan() {
        let split = |stop, rate_bytes_per_second, dry_run| {
            let name = "dev".to_owned();
            CloneSplit { name, stop, rate_bytes_per_second, dry_run }.validate()
        };
        let rate = Some(crate::RATE_BYTES_MIN);
        assert!(split(false, rate, true).is_ok() && split(true, None, false).is_ok());
        assert!(split(true, rate, false).is_err() && split(true, None, true).is_err());
        assert!(split(false, Some(0), false).is_err());
    }
}

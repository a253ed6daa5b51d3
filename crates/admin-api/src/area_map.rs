//! How much of which allocation area is free: what can be asked, and what is answered.
//!
//! Invariants: of every group there are at most as many cells as were asked for; bytes of areas
//! whose free blocks were not counted yet are in no sum.
//!
//! Fails: `Usage` if more cells are asked for than anyone looks at.

use crate::error::AdminError;
use crate::names::validate_name;
use crate::requests::Validate;
use serde::{Deserialize, Serialize};

/// Cells of a group at most: sixteen lines of a screen. With a thousand groups an answer is still a
/// third of the longest.
pub const AREA_CELLS_MAX: u64 = 1024;

/// Asks for the areas of an aggregate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapShow {
    /// The aggregate.
    pub name: String,
    /// Into how many cells the areas of a group are put at most.
    pub cells: u64,
}

impl Validate for MapShow {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("aggregate", &self.name)?;
        if !(1..=AREA_CELLS_MAX).contains(&self.cells) {
            return Err(AdminError::usage("cannot show the areas of", &self.name).because(
                format!(
                    "they are put into 1 to {AREA_CELLS_MAX} cells a group, not {}",
                    self.cells
                ),
            ));
        }
        Ok(())
    }
}

/// The allocation areas of an aggregate.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AggregateMap {
    /// The aggregate.
    pub aggregate: String,
    /// Its groups, in order.
    pub groups: Vec<GroupAreas>,
}

/// The allocation areas of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupAreas {
    /// The group, counted from 0.
    pub group: u64,
    /// What its disks are, if all are the same.
    pub media: Option<String>,
    /// How many areas there are.
    pub areas: u64,
    /// Bytes of an area; the first and the last may have fewer.
    pub area_bytes: u64,
    /// The area that is being filled, counted from 0.
    pub filling: Option<u64>,
    /// Nothing is written to it: other groups have much emptier areas.
    pub left_out: bool,
    /// Bytes of the areas in cells that were counted.
    pub counted_bytes: u64,
    /// Of these, free ones.
    pub free_bytes: u64,
    /// The areas in order; none of a group in an object store, of which only the best are known.
    pub cells: Vec<AreaCell>,
    /// Areas by the range of their free share, in equal parts from the emptiest: those that were
    /// counted and are not full.
    pub by_free_share: Vec<u64>,
    /// Areas that were counted and are full.
    pub full: u64,
}

impl GroupAreas {
    /// Areas whose free blocks were not counted yet.
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        let counted = self.by_free_share.iter().fold(self.full, |sum, areas| sum + areas);
        self.areas.saturating_sub(counted)
    }
}

/// Some areas that follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AreaCell {
    /// How many.
    pub areas: u64,
    /// Bytes of those that were counted.
    pub counted_bytes: u64,
    /// Of these, free ones.
    pub free_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_within_limits() {
        let asked = |cells| MapShow { name: "a1".to_owned(), cells }.validate();
        assert!(asked(1).is_ok() && asked(AREA_CELLS_MAX).is_ok());
        for cells in [0, AREA_CELLS_MAX + 1] {
            assert!(asked(cells).unwrap_err().to_string().contains("1 to 1024 cells"));
        }
    }

    #[test]
    fn what_is_in_no_range_was_not_counted() {
        let group =
            GroupAreas { areas: 10, by_free_share: vec![3, 0, 4], full: 1, ..Default::default() };
        assert_eq!(group.uncounted(), 2);
    }
}

//! What is wrong with bytes that should be one of our structures.

use crate::feature_name::FeatureName;
use crate::versions::{self, FORMAT_VERSION};
use thiserror::Error;

/// Why bytes are not the structure they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Damage {
    /// A field holds what it cannot hold.
    #[error("{structure}: field '{field}' is out of range")]
    Field {
        /// The structure.
        structure: &'static str,
        /// The field.
        field: &'static str,
    },
    /// The checksum does not match the bytes.
    #[error("{structure}: checksum is {found:#010x}, the bytes give {computed:#010x}")]
    Checksum {
        /// The structure.
        structure: &'static str,
        /// What the structure says.
        found: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// Written in a version of the format that this build does not read.
    #[error("{structure}: {}", versions::refusal(*found))]
    Version {
        /// The structure.
        structure: &'static str,
        /// The version found.
        found: u16,
    },
    /// It uses a feature that this build does not have.
    #[error(
        "{structure}: uses the feature '{feature}', which this build of Stroop lacks; a newer \
         build wrote it"
    )]
    Feature {
        /// The structure.
        structure: &'static str,
        /// The feature, as the structure names it.
        feature: FeatureName,
    },
    /// Bytes that are zero in everything that this build writes are not.
    #[error(
        "{structure}: bytes are in use that this build of Stroop knows as reserved; a newer build \
         wrote them"
    )]
    Reserved {
        /// The structure.
        structure: &'static str,
    },
}

impl Damage {
    /// What was to be read.
    #[must_use]
    pub const fn structure(&self) -> &'static str {
        match self {
            Self::Field { structure, .. }
            | Self::Checksum { structure, .. }
            | Self::Version { structure, .. }
            | Self::Feature { structure, .. }
            | Self::Reserved { structure } => structure,
        }
    }

    /// Whether a build wrote the structure that this one does not read: nothing is broken.
    #[must_use]
    pub const fn is_of_another_build(&self) -> bool {
        matches!(self, Self::Version { .. } | Self::Feature { .. } | Self::Reserved { .. })
    }

    /// Whether a build wrote the structure that has more than this one: nothing is broken.
    #[must_use]
    pub const fn is_of_newer_build(&self) -> bool {
        match self {
            Self::Version { found, .. } => *found > FORMAT_VERSION,
            Self::Feature { .. } | Self::Reserved { .. } => true,
            Self::Field { .. } | Self::Checksum { .. } => false,
        }
    }

    /// An error unless this build reads a structure of the version `found`.
    ///
    /// # Errors
    /// [`Damage::Version`].
    pub fn unless_read(structure: &'static str, found: u16) -> Result<(), Self> {
        if versions::is_read(found) { Ok(()) } else { Err(Self::Version { structure, found }) }
    }

    /// An error unless all of these bytes are zero: reserved fields of a structure.
    ///
    /// # Errors
    /// [`Damage::Reserved`].
    pub fn unless_zero(structure: &'static str, fields: &[&[u8]]) -> Result<(), Self> {
        let is_zero = fields.iter().all(|field| field.iter().all(|byte| *byte == 0));
        if is_zero { Ok(()) } else { Err(Self::Reserved { structure }) }
    }
}

//! What is wrong with bytes that should be one of our structures.

use thiserror::Error;

/// Why bytes are not the structure they should be.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
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
    /// Written by a version of the format that this build does not know.
    #[error("{structure}: format version {found} is not known; this build knows up to {known}")]
    Version {
        /// The structure.
        structure: &'static str,
        /// The version found.
        found: u16,
        /// The latest version known.
        known: u16,
    },
}

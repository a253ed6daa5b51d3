//! The versions of the format: one number for all structures, in one table that only grows.
//!
//! A structure says in its header which version wrote it. The number changes when a structure
//! changes its layout. Most changes do not change a layout: they add a feature
//! ([`crate::features`]).
//!
//! Invariants: a row is never changed. In version 5 and before each structure had numbers of its
//! own, none above 5: a build of then refuses what this one writes, and says the version.
//!
//! Fails: [`refusal`] says why this build does not read a version.

/// A version of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormatVersion {
    /// Its number.
    pub number: u16,
    /// When it came.
    pub date: &'static str,
    /// What is new in this version.
    pub news: &'static str,
}

/// All versions. Append only.
pub const FORMAT_VERSIONS: &[FormatVersion] = &[
    FormatVersion {
        number: 5,
        date: "2026-11",
        news: "before the first release; each structure had numbers of its own; not read any more",
    },
    FormatVersion {
        number: 6,
        date: "2026-11",
        news: "one number for all structures, features, identities of volumes and snapshots",
    },
];

/// The oldest version that this build reads.
pub const FORMAT_VERSION_MIN: u16 = 6;
/// The version that this build writes.
pub const FORMAT_VERSION: u16 = FORMAT_VERSIONS[FORMAT_VERSIONS.len() - 1].number;

/// Whether this build reads the version.
#[must_use]
pub const fn is_read(version: u16) -> bool {
    FORMAT_VERSION_MIN <= version && version <= FORMAT_VERSION
}

/// Why this build does not read the version: a sentence, for users.
#[must_use]
pub fn refusal(found: u16) -> String {
    if found < FORMAT_VERSION_MIN {
        return format!(
            "format version {found} is older than what this build of Stroop reads, which is \
             version {FORMAT_VERSION_MIN} and later; copy the files away with the build that \
             wrote it"
        );
    }
    format!(
        "format version {found} is newer than this build of Stroop, which reads up to version \
         {FORMAT_VERSION}; use the build that wrote it, or a later one"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_ascend_and_only_the_latest_is_written() {
        assert!(FORMAT_VERSIONS.is_sorted_by_key(|version| version.number));
        assert!(is_read(FORMAT_VERSION) && is_read(FORMAT_VERSION_MIN));
    }

    #[test]
    fn versions_of_older_and_newer_builds_are_refused() {
        for found in [0, FORMAT_VERSION_MIN - 1] {
            assert!(!is_read(found) && refusal(found).contains("is older than"));
        }
        for found in [FORMAT_VERSION + 1, u16::MAX] {
            assert!(!is_read(found) && refusal(found).contains("is newer than"));
        }
    }
}

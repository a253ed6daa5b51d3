//! Damage that a volume cannot live without: of its maps, its inode file or its container map.
//!
//! A file whose tree cannot be read costs itself (`cowfs::image`). Without what belongs to all
//! files no consistency point can go on, so the volume stays as its last commit has it, and is
//! *read-only* from then on. What clients changed after that commit is dropped, and they are told:
//! the write verifier changes, and each change is refused. The container says so on media (its
//! inode's `INODE_QUARANTINED`), by the very consistency point that left the volume out: replay
//! after a crash finds either all of the changes in the log, or none that it may apply.
//!
//! Invariants: a damaged volume places and frees nothing. Damage is not taken back while the
//! aggregate is in service.
//!
//! What another build wrote is no damage: nothing on media says that the volume is read-only, and
//! none of its operations in the log is dropped (decision 34).
//!
//! A volume that cannot even be loaded is *unreadable*: it is listed and can be deleted, and all
//! else is refused.

use cowfs::reader::Stop;
use ondisk::damage::Damage;
use ondisk::features::FeatureName;
use std::fmt;
use units::Pvbn;

/// Why a volume is read-only, or not in service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeDamage {
    /// This block of its metafiles cannot be read.
    Unreadable(Pvbn),
    /// Its metafiles contradict one another.
    Contradiction(&'static str),
    /// It was found before the last start; the server log of then has more.
    Known,
    /// Nothing is damaged: a newer build wrote the volume, and this one lacks the feature.
    Feature(FeatureName),
    /// The same, of a part of the volume: this build cannot read it, and no feature says why.
    OtherBuild(Damage),
}

impl VolumeDamage {
    /// What this build lacks of a volume of which nothing is damaged: the feature's name, or where
    /// one without a name shows. Nobody is to copy the files of such a volume and delete it.
    #[must_use]
    pub fn lacking(&self) -> Option<String> {
        match self {
            Self::Feature(feature) => Some(feature.to_string()),
            Self::OtherBuild(damage) => Some(format!("unnamed, in its {}", damage.structure())),
            Self::Unreadable(_) | Self::Contradiction(_) | Self::Known => None,
        }
    }

    /// What kept work on a volume from going on.
    ///
    /// # Panics
    /// If that is no damage.
    #[must_use]
    pub fn of(stop: &Stop) -> Self {
        match stop {
            Stop::Damaged(pvbn) | Stop::MetafileDamaged(pvbn) => Self::Unreadable(*pvbn),
            Stop::Contradiction(problem) => Self::Contradiction(problem),
            Stop::OtherBuild(damage) => Self::OtherBuild(*damage),
            Stop::Wait(_) | Stop::NoSpace | Stop::OverQuota | Stop::Quarantined(_) => {
                unreachable!("a volume's own work neither asks for promises nor for content")
            }
        }
    }
}

impl fmt::Display for VolumeDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(pvbn) => write!(f, "block {pvbn} of its metafiles cannot be read"),
            Self::Contradiction(problem) => write!(f, "its metafiles contradict: {problem}"),
            Self::Feature(feature) => write!(
                f,
                "it uses the feature '{feature}', which this build of Stroop lacks; start the \
                 build that wrote it, or a later one"
            ),
            Self::OtherBuild(damage) => {
                write!(f, "{damage}; start the build that wrote it, or a later one")
            }
            Self::Known => write!(f, "its metafiles were found damaged before the last start"),
        }
    }
}

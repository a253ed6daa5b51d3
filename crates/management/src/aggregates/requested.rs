//! What requests name, in the engine's words, and whether the disks in them may be taken.
//!
//! Invariants: disks are only read here.

use crate::aggregates::room::Aggregates;
use crate::refusals::refusal;
use admin_api::{AdminError, RaidKind};
use dblade::EngineError;
use media::{MediaError, ParseProfileError, Profile};
use platform::Disk;
use platform::completion::gather;
use raid::RaidError;
use std::sync::Arc;

pub(crate) const fn stored_kind(kind: RaidKind) -> ondisk::label::RaidKind {
    match kind {
        RaidKind::None => ondisk::label::RaidKind::None,
        RaidKind::Raid4 => ondisk::label::RaidKind::Raid4,
        RaidKind::Dp => ondisk::label::RaidKind::Dp,
        RaidKind::Tp => ondisk::label::RaidKind::Tp,
    }
}

pub(crate) const fn shown_kind(kind: ondisk::label::RaidKind) -> RaidKind {
    match kind {
        ondisk::label::RaidKind::None => RaidKind::None,
        ondisk::label::RaidKind::Raid4 => RaidKind::Raid4,
        ondisk::label::RaidKind::Dp => RaidKind::Dp,
        ondisk::label::RaidKind::Tp => RaidKind::Tp,
    }
}

/// What the disks are, if it is given.
/// `message` and `name` begin the error.
pub(crate) fn given_media(
    (message, name): (&str, &str),
    media: Option<&str>,
) -> Result<Option<Profile>, AdminError> {
    let parsed = media.map(str::parse).transpose();
    parsed.map_err(|error: ParseProfileError| {
        AdminError::usage(message, name).because(error.to_string())
    })
}

impl Aggregates {
    /// Refuses disks that hold something, unless they may be erased.
    /// `message` and `name` begin the error.
    pub(crate) fn check_unused(
        &self,
        (message, name): (&str, &str),
        force: bool,
        disks: &[Arc<dyn Disk>],
    ) -> Result<(), AdminError> {
        let checked = self.node.waits.wait_for(|done| {
            let parts = gather(disks.len(), done);
            for (disk, part) in disks.iter().zip(parts) {
                media::check_unused(disk, force, part);
            }
        });
        let results: Vec<Result<(), MediaError>> = checked.unwrap_or_default();
        let failed = results.into_iter().find_map(Result::err);
        failed.map_or(Ok(()), |error| {
            let error = EngineError::from(RaidError::from(error));
            Err(refusal(message, name, &error))
        })
    }
}

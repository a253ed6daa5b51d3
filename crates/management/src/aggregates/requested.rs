//! What requests name, in the engine's words.

use admin_api::{AdminError, RaidKind};
use media::{ParseProfileError, Profile};

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

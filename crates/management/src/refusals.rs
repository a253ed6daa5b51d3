//! The engine's errors as administrators get them: code, object, cause, next step.
//!
//! Invariants: the text of the layer that knows is passed on as the cause, never replaced; what
//! must be done next is added where there is one thing to do.

use admin_api::{AdminError, Code};
use aggregate::{AggregateError, EvacuationError};
use dblade::EngineError;
use file_service::FsError;
use media::MediaError;
use platform::DiskError;
use raid::RaidError;

/// `error` for whoever asked; `message` and `object` begin it.
pub(crate) fn refusal(message: &str, object: &str, error: &EngineError) -> AdminError {
    let refused = AdminError::new(code_of(error), message, object).because(error.to_string());
    match next_of(error) {
        Some(next) => refused.try_next(next),
        None => refused,
    }
}

fn code_of(error: &EngineError) -> Code {
    match error {
        EngineError::NotFound { .. } => Code::NotFound,
        EngineError::Exists { .. } | EngineError::Conflict(_) => Code::Conflict,
        EngineError::Files(FsError::NoSpace | FsError::OverQuota) => Code::Conflict,
        EngineError::Aggregate(AggregateError::Raid(error)) => code_of_raid(error),
        EngineError::Aggregate(AggregateError::Evacuation(EvacuationError::NoGroup { .. })) => {
            Code::NotFound
        }
        EngineError::Aggregate(AggregateError::TooSmall { .. }) => Code::Usage,
        EngineError::Aggregate(
            AggregateError::Evacuation(_)
            | AggregateError::Refused(_)
            | AggregateError::NotUnderstood { .. }
            | AggregateError::Full
            | AggregateError::VolumeFull,
        ) => Code::Conflict,
        _ => Code::Failed,
    }
}

fn code_of_raid(error: &RaidError) -> Code {
    match error {
        RaidError::Media(error) => code_of_media(error),
        RaidError::DiskCount { .. } | RaidError::GroupCount { .. } | RaidError::Name { .. } => {
            Code::Usage
        }
        RaidError::Duplicate { .. }
        | RaidError::InUse { .. }
        | RaidError::NotInUse { .. }
        | RaidError::ScrubUnderWay
        | RaidError::ScrubPaused
        | RaidError::NoScrub
        | RaidError::RemovedGroup { .. }
        | RaidError::LastGroup { .. }
        | RaidError::Filling { .. }
        | RaidError::Written { .. }
        | RaidError::Copying { .. }
        | RaidError::Growing
        | RaidError::NotMissed { .. }
        | RaidError::Unsettled { .. }
        | RaidError::Indispensable { .. } => Code::Conflict,
        RaidError::NoSuchGroup { .. }
        | RaidError::NoSuchPlace { .. }
        | RaidError::NoSuchSpare { .. } => Code::NotFound,
        _ => Code::Failed,
    }
}

/// The code of what is wrong with a disk.
pub(crate) fn code_of_media(error: &MediaError) -> Code {
    match error {
        MediaError::Disk(DiskError::InUse { .. }) | MediaError::Occupied { .. } => Code::Conflict,
        MediaError::TooSmall { .. } => Code::Usage,
        _ => Code::Failed,
    }
}

/// How the refusal of a guarantee ends.
const UNGUARANTEED: &str = "needed for blocks that move";

fn next_of(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::NotFound { kind: "aggregate", .. } => Some("stroop aggr list"),
        EngineError::NotFound { .. } => Some("stroop volume list"),
        EngineError::Aggregate(AggregateError::Raid(RaidError::Media(MediaError::Occupied {
            ..
        }))) => Some("other disks (stroop disk list), or --force to erase what is there"),
        EngineError::Aggregate(AggregateError::Raid(RaidError::TooFewDisks { .. })) => {
            Some("attach the disks that are missing; the aggregate is opened by itself then")
        }
        EngineError::Aggregate(AggregateError::Refused(text)) if text.ends_with(UNGUARANTEED) => {
            Some(
                "more disks (stroop aggr add), a smaller size, or fewer guarantees (stroop volume set \
                 VOLUME --guarantee none)",
            )
        }
        EngineError::Aggregate(AggregateError::Stopping) => Some("start the server again"),
        EngineError::Aggregate(AggregateError::Store(_) | AggregateError::Log(_)) => {
            Some("stroop status")
        }
        _ => None,
    }
}

/// There is one already.
pub(crate) fn taken(noun: &str, name: &str) -> AdminError {
    AdminError::new(Code::Conflict, format!("cannot create {noun}"), name)
        .because(format!("there is {} of this name", with_article(noun)))
}

fn with_article(noun: &str) -> String {
    let vowel = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if vowel { "an" } else { "a" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::Found;

    #[test]
    fn errors_have_code_cause_and_next_step() {
        let check = |error: EngineError, code: Code, next: Option<&str>| {
            let refused = refusal("cannot do it to", "a1", &error);
            assert_eq!((refused.code, refused.next.as_deref()), (code, next), "{refused}");
            assert_eq!(refused.cause, [error.to_string()]);
        };
        let name = "x".to_owned();
        check(
            EngineError::NotFound { kind: "volume", name: name.clone() },
            Code::NotFound,
            Some("stroop volume list"),
        );
        check(EngineError::Exists { kind: "volume", name: name.clone() }, Code::Conflict, None);
        let occupied = MediaError::Occupied { disk: name, found: Found::Data { block: 1 } };
        check(
            RaidError::Media(occupied).into(),
            Code::Conflict,
            Some("other disks (stroop disk list), or --force to erase what is there"),
        );
        let copying =
            RaidError::Copying { group: 0, disk: "d1".to_owned(), replacement: "d2".to_owned() };
        check(copying.into(), Code::Conflict, None);
        check(
            RaidError::NoSuchSpare { identity: units::DiskUuid([7; 16]) }.into(),
            Code::NotFound,
            None,
        );
        let small = AggregateError::TooSmall { found_blocks: 1, minimum_blocks: 2 };
        check(small.into(), Code::Usage, None);
        check(AggregateError::Refused("no".to_owned()).into(), Code::Conflict, None);
    }
}

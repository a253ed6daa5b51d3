//! The events of users and groups that came to a limit.
//!
//! An owner at a hard limit may try again and again, and one near a soft limit may pass it again
//! and again: an hour passes before the same is told anew.
//!
//! Invariants: what was told is remembered of few owners. Where more come to limits within an hour,
//! nothing is told of the others.

use crate::events::ring::Happening;
use crate::volumes::quotas::{shown, shown_kind};
use admin_api::quotas::quota_title;
use admin_api::{EventSeverity, QuotaLimits};
use dblade::{QuotaKey, ServedVolume};
use platform::sync::Mutex;
use std::collections::BTreeMap;
use units::{AggregateUuid, BLOCK_SIZE_U64, ByteSize, VolumeId, shell_word};

/// How long the same is not told again.
const QUIET_NANOSECONDS: u64 = 3600 * 1_000_000_000;
/// Owners and codes that are remembered.
const TOLD_MAX: usize = 1024;

const PASSED: &str = "QUOTA_SOFT_PASSED";
const REFUSED: &str = "QUOTA_REFUSED";

/// What is told: the code, and of whom.
type Told = (&'static str, AggregateUuid, VolumeId, QuotaKey);

/// When what was told last, on the monotonic clock.
#[derive(Default)]
pub(crate) struct ToldQuotas(Mutex<BTreeMap<Told, u64>>);

impl ToldQuotas {
    /// What happened in a volume since it was asked last.
    pub fn happened(&self, now: u64, volume: &ServedVolume) -> Vec<Happening> {
        let ledger = volume.quota_ledger();
        if !ledger.is_counting() {
            return Vec::new();
        }
        let (aggregate, number) =
            (volume.aggregate.parts.identity.aggregate, volume.environment.volume);
        let name = volume.name();
        let mut happened = Vec::new();
        for passed in ledger.take_passed() {
            if self.is_new(now, (PASSED, aggregate, number, passed.key)) {
                let cause = passed_cause(&shown(&passed.limits), passed.used);
                happened.push(happening(PASSED, (&name, passed.key), cause));
            }
        }
        for refusal in ledger.take_refusals() {
            if self.is_new(now, (REFUSED, aggregate, number, refusal.key)) {
                let cause = refused_cause(&shown(&refusal.limits), refusal.used, refusal.more);
                happened.push(happening(REFUSED, (&name, refusal.key), cause));
            }
        }
        happened
    }

    /// Whether it is to be told.
    fn is_new(&self, now: u64, what: Told) -> bool {
        let mut told = self.0.lock();
        told.retain(|_, at| now.saturating_sub(*at) < QUIET_NANOSECONDS);
        let is_new = !told.contains_key(&what) && told.len() < TOLD_MAX;
        if is_new {
            told.insert(what, now);
        }
        is_new
    }
}

fn happening(code: &str, (volume, key): (&str, QuotaKey), cause: String) -> Happening {
    let title = quota_title(volume, shown_kind(key.kind), Some(key.id));
    let next = format!("stroop quota report {}", shell_word(volume));
    Happening::new(EventSeverity::Warning, code, title, cause).next(next)
}

fn size(blocks: u64) -> ByteSize {
    ByteSize(blocks.saturating_mul(BLOCK_SIZE_U64))
}

/// "it uses 9GiB, above its soft limit of 8GiB".
fn passed_cause(limits: &QuotaLimits, (blocks, files): (u64, u64)) -> String {
    let (of_bytes, of_files) = (limits.soft_bytes, limits.soft_files);
    match of_bytes != 0 && size(blocks).0 > of_bytes {
        true => format!("it uses {}, above its soft limit of {}", size(blocks), ByteSize(of_bytes)),
        false => format!("it has {files} files, above its soft limit of {of_files}"),
    }
}

/// "an operation that needs 20GiB more was refused: it uses 1GiB of 10GiB".
fn refused_cause(
    limits: &QuotaLimits,
    (blocks, files): (u64, u64),
    (more_blocks, more_files): (u64, u64),
) -> String {
    let (of_bytes, of_files) = (limits.hard_bytes, limits.hard_files);
    let needed = size(blocks.saturating_add(more_blocks));
    match of_bytes != 0 && more_blocks != 0 && needed.0 > of_bytes {
        true => {
            let (more, used, limit) = (size(more_blocks), size(blocks), ByteSize(of_bytes));
            format!("an operation that needs {more} more was refused: it uses {used} of {limit}")
        }
        false => {
            let more =
                if more_files == 1 { "one file".to_owned() } else { format!("{more_files} files") };
            format!("an operation that needs {more} more was refused: it has {files} of {of_files}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dblade::QuotaKind;

    #[test]
    fn the_same_is_told_once_an_hour() {
        let told = ToldQuotas::default();
        let of = |code, aggregate, id| {
            let key = QuotaKey { kind: QuotaKind::User, id };
            (code, AggregateUuid([aggregate; 16]), VolumeId(1), key)
        };
        assert!(told.is_new(0, of(PASSED, 1, 1)) && !told.is_new(1, of(PASSED, 1, 1)));
        assert!(told.is_new(1, of(REFUSED, 1, 1)) && told.is_new(1, of(PASSED, 1, 2)));
        assert!(told.is_new(1, of(PASSED, 2, 1)), "of another aggregate");
        assert!(told.is_new(QUIET_NANOSECONDS, of(PASSED, 1, 1)));
        for id in 0..5000 {
            told.is_new(QUIET_NANOSECONDS, of(PASSED, 1, id));
        }
        assert!(told.0.lock().len() <= TOLD_MAX);
    }

    #[test]
    fn what_did_not_fit_is_told() {
        let limits =
            QuotaLimits { soft_bytes: 4096, hard_bytes: 8192, soft_files: 3, hard_files: 4 };
        let used = "it uses 8KiB, above its soft limit of 4KiB";
        assert_eq!(passed_cause(&limits, (2, 4)), used);
        assert_eq!(passed_cause(&limits, (1, 4)), "it has 4 files, above its soft limit of 3");
        let refused = "an operation that needs 8KiB more was refused: it uses 4KiB of 8KiB";
        assert_eq!(refused_cause(&limits, (1, 4), (2, 0)), refused);
        let refused = "an operation that needs one file more was refused: it has 4 of 4";
        assert_eq!(refused_cause(&limits, (1, 4), (0, 1)), refused);
    }
}

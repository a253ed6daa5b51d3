//! The events of users, groups and trees that came to a limit.
//!
//! An owner at a hard limit may try again and again, and one near a soft limit may pass it again
//! and again: an hour passes before the same is told anew. An event of a tree waits until the
//! engine has answered with the path of the tree's directory.
//!
//! Invariants: what was told is remembered of few owners. Where more come to limits within an hour,
//! nothing is told of the others.

use crate::events::ring::Happening;
use crate::volumes::quotas::{shown, shown_kind};
use admin_api::differences::shown_path;
use admin_api::quotas::quota_title;
use admin_api::{EventSeverity, QuotaLimits};
use dblade::{Engine, EngineError, QuotaKey, QuotaKind, ServedVolume};
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{AggregateUuid, BLOCK_SIZE_U64, ByteSize, VolumeId, shell_word};

/// How long the same is not told again.
const QUIET_NANOSECONDS: u64 = 3600 * 1_000_000_000;
/// Owners and codes that are remembered.
const TOLD_MAX: usize = 1024;

const PASSED: &str = "QUOTA_SOFT_PASSED";
const REFUSED: &str = "QUOTA_REFUSED";

/// What is told: the code, and of whom.
type Told = (&'static str, AggregateUuid, VolumeId, QuotaKey);

/// See the module.
#[derive(Default)]
pub(crate) struct ToldQuotas {
    /// When what was told last, on the monotonic clock.
    told: Mutex<BTreeMap<Told, u64>>,
    unnamed: Mutex<Vec<Unnamed>>,
}

/// The path of a tree's directory, once the engine has answered; none if it was not found.
type Answered = Arc<Mutex<Option<Option<Vec<u8>>>>>;

/// What is to be told of a tree whose path is asked for.
struct Unnamed {
    code: &'static str,
    volume: String,
    key: QuotaKey,
    cause: String,
    path: Answered,
}

impl ToldQuotas {
    /// What happened in volumes since they were asked last.
    pub fn happened(
        &self,
        now: u64,
        engine: &Arc<Engine>,
        volumes: &[Arc<ServedVolume>],
    ) -> Vec<Happening> {
        let found = volumes.iter().flat_map(|volume| self.found(now, volume));
        let mut happened = Vec::new();
        for (code, volume, key, cause) in found {
            match key.kind {
                QuotaKind::Tree => self.ask(engine, (code, volume, key, cause)),
                QuotaKind::User | QuotaKind::Group => {
                    happened.push(happening(code, (&volume, key, None), cause));
                }
            }
        }
        happened.extend(self.named());
        happened
    }

    fn ask(
        &self,
        engine: &Arc<Engine>,
        (code, volume, key, cause): (&'static str, String, QuotaKey, String),
    ) {
        let path = Answered::default();
        let answered = Arc::clone(&path);
        let done = move |paths: Result<Vec<Option<Vec<u8>>>, EngineError>| {
            *answered.lock() = Some(paths.unwrap_or_default().pop().flatten());
        };
        engine.paths_of_trees(&volume, vec![key.id], Box::new(done));
        self.unnamed.lock().push(Unnamed { code, volume, key, cause, path });
    }

    /// What of trees can be told. The engine drops what it will not answer.
    fn named(&self) -> Vec<Happening> {
        let is_known =
            |one: &mut Unnamed| Arc::strong_count(&one.path) == 1 || one.path.lock().is_some();
        let mut unnamed = self.unnamed.lock();
        let named = unnamed.extract_if(.., is_known).map(|one| {
            let path = one.path.lock().take().flatten().map(|path| shown_path(&path));
            happening(one.code, (&one.volume, one.key, path.as_deref()), one.cause)
        });
        named.collect()
    }

    /// What happened in a volume since it was asked last: code, volume, of whom, cause.
    fn found(
        &self,
        now: u64,
        volume: &ServedVolume,
    ) -> Vec<(&'static str, String, QuotaKey, String)> {
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
                happened.push((PASSED, name.clone(), passed.key, cause));
            }
        }
        for refusal in ledger.take_refusals() {
            if self.is_new(now, (REFUSED, aggregate, number, refusal.key)) {
                let cause = refused_cause(&shown(&refusal.limits), refusal.used, refusal.more);
                happened.push((REFUSED, name.clone(), refusal.key, cause));
            }
        }
        happened
    }

    /// Whether it is to be told.
    fn is_new(&self, now: u64, what: Told) -> bool {
        let mut told = self.told.lock();
        told.retain(|_, at| now.saturating_sub(*at) < QUIET_NANOSECONDS);
        let is_new = !told.contains_key(&what) && told.len() < TOLD_MAX;
        if is_new {
            told.insert(what, now);
        }
        is_new
    }
}

fn happening(
    code: &str,
    (volume, key, path): (&str, QuotaKey, Option<&str>),
    cause: String,
) -> Happening {
    let title = quota_title(volume, shown_kind(key.kind), Some(key.id), path);
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
        assert!(told.told.lock().len() <= TOLD_MAX);
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

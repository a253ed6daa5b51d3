//! Aggregates that are out of service, brought back when their disks are there again.
//!
//! A thread looks once a second, as long as an aggregate is away: one that lost more disks than it
//! can do without, or one that could not be opened at the start. It opens the disks that the
//! configuration names and that nobody uses, reads their labels, and opens the aggregate when they
//! are enough. Nothing is asked of an administrator but the disks.
//!
//! Invariants:
//! - It is done in the turn of administrators: no disk is given away while it is looked at.
//! - An aggregate whose opening fails, or that fails again at once, is tried again later and later
//!   ([`RETRY_NANOSECONDS_MAX`]), but at once when another disk comes.
//! - The other aggregates are not looked at.
//!
//! Fails: never; what is wrong is in the status.

use super::candidates::{Candidate, Found};
use super::core::Core;
use super::recovery::OfflineAggregate;
use platform::sync::{Condvar, Mutex};
use platform::thread::{JoinHandle, spawn};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How often to look: a disk that was put back is in use within seconds, and looking at the disks
/// of an aggregate, which nobody uses, costs two reads of each.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The wait after an opening that failed; each further one is twice as long.
const RETRY_NANOSECONDS_MIN: u64 = 2_000_000_000;
/// And at most: what failed for another reason than disks is opened within a minute of its end.
const RETRY_NANOSECONDS_MAX: u64 = 60_000_000_000;

/// What came of the last try with an aggregate.
struct Try {
    found: BTreeSet<[u8; 16]>,
    wait_nanoseconds: u64,
    not_before_nanoseconds: u64,
}

/// The tries, by aggregate.
#[derive(Default)]
pub(super) struct Tries(Mutex<BTreeMap<[u8; 16], Try>>);

impl Tries {
    /// Whether to try now, with these disks.
    fn is_due(&self, aggregate: &[u8; 16], found: &BTreeSet<[u8; 16]>, now: u64) -> bool {
        let tries = self.0.lock();
        let Some(last) = tries.get(aggregate) else { return true };
        last.found != *found || now >= last.not_before_nanoseconds
    }

    /// Notes a try: the next one with these disks comes later. One that went well long ago does not
    /// count.
    fn note(&self, aggregate: [u8; 16], found: BTreeSet<[u8; 16]>, now: u64) {
        let mut tries = self.0.lock();
        let wait = tries.get(&aggregate).map_or(RETRY_NANOSECONDS_MIN, |last| {
            let is_old = now >= last.not_before_nanoseconds.saturating_add(RETRY_NANOSECONDS_MAX);
            let doubled = (2 * last.wait_nanoseconds).min(RETRY_NANOSECONDS_MAX);
            if is_old { RETRY_NANOSECONDS_MIN } else { doubled }
        });
        let not_before_nanoseconds = now.saturating_add(wait);
        let next = Try { found, wait_nanoseconds: wait, not_before_nanoseconds };
        tries.insert(aggregate, next);
    }
}

impl Core {
    /// Looks whether aggregates that are away can be opened again.
    pub(super) fn bring_back(&self) {
        let outages = self.engine.outages();
        if outages.is_empty() && self.offline.lock().is_empty() {
            return;
        }
        let _turn = self.turn();
        for outage in &outages {
            self.disks.release_all(&outage.summary.name);
        }
        let wanted: BTreeMap<[u8; 16], String> = {
            let offline = self.offline.lock();
            let offline = offline.iter().map(|one| (one.identity, one.name.clone()));
            let away = outages.iter().map(|one| (one.summary.identity, one.summary.name.clone()));
            offline.chain(away).collect()
        };
        let names = self.disks.names().into_iter().filter(|name| !self.disks.is_held(name));
        let found = Found::on(names.collect(), |name| self.disks.look(name));
        let mut candidates = found.candidates;
        for (identity, name) in wanted {
            let Some(candidate) = candidates.remove(&identity) else { continue };
            self.try_candidate(identity, &name, candidate, &found.busy);
        }
    }

    fn try_candidate(&self, identity: [u8; 16], name: &str, candidate: Candidate, busy: &[String]) {
        let now = self.clock.monotonic_nanoseconds();
        let (found, is_complete) = (candidate.found(), candidate.is_complete());
        let is_free = self.engine.is_closed(&identity);
        // One that another process has may be the one that is missing.
        let is_busy = !is_complete && busy.iter().any(|name| !self.disks.hangs(name));
        if !candidate.is_enough()
            || !is_free
            || is_busy
            || !self.tries.is_due(&identity, &found, now)
        {
            return;
        }
        self.tries.note(identity, found, now);
        let kind = candidate.labels.first().and_then(|label| label.kind());
        let disks = candidate.disks.iter().map(|disk| disk.name().to_owned()).collect();
        match self.open_disks(name, candidate.disks) {
            Ok(()) => self.welcome(identity, name),
            Err(error) => {
                tracing::error!(aggregate = name, %error, "the aggregate stays out of service");
                let mut offline = self.offline.lock();
                offline.retain(|one| one.identity != identity);
                let name = name.to_owned();
                offline.push(OfflineAggregate { identity, name, kind, disks, error });
            }
        }
    }

    /// An aggregate is in service again.
    fn welcome(&self, identity: [u8; 16], name: &str) {
        tracing::info!(aggregate = name, "the aggregate is back in service");
        self.offline.lock().retain(|one| one.identity != identity);
        let held: Vec<String> = self.disks.held_by(name);
        self.left_out.lock().retain(|disk| !held.contains(&disk.name));
        for volume in self.served() {
            if volume.aggregate.parts.identity.aggregate == identity {
                self.publish_exports(&volume);
            }
        }
        self.exports.set_away(dblade::file_system_of(identity), false);
    }
}

/// The thread that looks.
pub(super) struct Attendant {
    thread: Option<JoinHandle<()>>,
    ending: Arc<(Mutex<bool>, Condvar)>,
}

impl Attendant {
    /// Starts it.
    ///
    /// # Errors
    /// When there is no room for a thread.
    pub(super) fn start(core: &Arc<Core>) -> io::Result<Self> {
        let ending: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let (core, same) = (Arc::clone(core), Arc::clone(&ending));
        let thread = spawn("attendant", move || attend(&core, &same))?;
        Ok(Self { thread: Some(thread), ending })
    }
}

impl Drop for Attendant {
    /// Ends it, after what it is doing.
    fn drop(&mut self) {
        let (ending, changed) = &*self.ending;
        *ending.lock() = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok(), "the attendant panicked");
        }
    }
}

fn attend(core: &Core, (ending, changed): &(Mutex<bool>, Condvar)) {
    let mut held = ending.lock();
    while !*held {
        changed.wait_for(&mut held, LOOK_INTERVAL);
        if *held {
            return;
        }
        drop(held);
        core.bring_back();
        held = ending.lock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_that_failed_is_repeated_later_and_at_once_with_another_disk() {
        let tries = Tries::default();
        let (one, two) = (BTreeSet::from([[1; 16]]), BTreeSet::from([[1; 16], [2; 16]]));
        assert!(tries.is_due(&[7; 16], &one, 0));
        tries.note([7; 16], one.clone(), 0);
        assert!(!tries.is_due(&[7; 16], &one, RETRY_NANOSECONDS_MIN - 1));
        assert!(tries.is_due(&[7; 16], &one, RETRY_NANOSECONDS_MIN));
        assert!(tries.is_due(&[7; 16], &two, 1) && tries.is_due(&[8; 16], &one, 1));
        tries.note([7; 16], one.clone(), RETRY_NANOSECONDS_MIN);
        let next = 3 * RETRY_NANOSECONDS_MIN;
        assert!(!tries.is_due(&[7; 16], &one, next - 1) && tries.is_due(&[7; 16], &one, next));
        (0..40).for_each(|_| tries.note([7; 16], one.clone(), next));
        assert!(tries.is_due(&[7; 16], &one, next + RETRY_NANOSECONDS_MAX));
        let late = next + 2 * RETRY_NANOSECONDS_MAX;
        tries.note([7; 16], one.clone(), late);
        assert!(tries.is_due(&[7; 16], &one, late + RETRY_NANOSECONDS_MIN));
    }
}

//! The checks under way: which aggregates they read, and when each was last heard of.
//!
//! Invariants:
//! - An aggregate has one check at most.
//! - A check has a number that no other has: the upper half is drawn at the start of the server,
//!   the lower half counts. So a call for a check that is over never meets a later one, and a call
//!   for a check of an earlier start is known as such.
//! - Only the check itself is heard of. A call that comes after its end brings nothing back.
//! - An aggregate that is checked while it is out of service stays so: its disks are open here, and
//!   who opens aggregates asks [`CheckTable::is_at_rest`] before.
//!
//! Fails: never; a check that is over is `None`, with the reason in [`CheckTable::why_over`].

use platform::sync::Mutex;
use platform::{Disk, Entropy};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::AggregateUuid;

/// A process that reads is heard of every few seconds, also on a busy machine.
pub(crate) const KEEP_NANOSECONDS: u64 = 60_000_000_000;
/// Below the half of a number that is drawn at the start.
const COUNT_BITS: u32 = 32;

/// What a check reads.
#[derive(Clone)]
pub(crate) enum Kind {
    /// An image that the aggregate holds back, with the number that the aggregate gave the pin.
    Pinned(u64),
    /// The disks of an aggregate that is out of service.
    AtRest {
        /// The aggregate's identity.
        identity: AggregateUuid,
        /// Its disks. They stay open, so no other process can take them.
        disks: Vec<Arc<dyn Disk>>,
    },
}

struct Check {
    number: u64,
    heard_nanoseconds: u64,
    kind: Kind,
}

#[derive(Default)]
struct Table {
    /// By the name of the aggregate.
    checks: BTreeMap<String, Check>,
    count: u64,
}

/// See the module.
pub(crate) struct CheckTable {
    /// The upper half of all numbers.
    start: u64,
    table: Mutex<Table>,
}

impl CheckTable {
    /// No check yet.
    pub(crate) fn new(entropy: &dyn Entropy) -> Self {
        let start = entropy.next_u64() >> COUNT_BITS << COUNT_BITS;
        Self { start, table: Mutex::default() }
    }

    /// Begins a check; its number. `None` if another check of the aggregate is under way. A check
    /// of another image takes the place of one whose image was let go of.
    pub(crate) fn begin(&self, aggregate: &str, kind: Kind, now: u64) -> Option<u64> {
        let mut table = self.table.lock();
        let both_pin =
            |other: &Check| matches!((&other.kind, &kind), (Kind::Pinned(_), Kind::Pinned(_)));
        if table.checks.get(aggregate).is_some_and(|other| !both_pin(other)) {
            return None;
        }
        table.count += 1;
        let number = self.start | table.count;
        let check = Check { number, heard_nanoseconds: now, kind };
        table.checks.insert(aggregate.to_owned(), check);
        Some(number)
    }

    /// A check goes on; what it reads.
    pub(crate) fn hear(&self, aggregate: &str, number: u64, now: u64) -> Option<Kind> {
        let mut table = self.table.lock();
        let check = table.checks.get_mut(aggregate).filter(|check| check.number == number)?;
        check.heard_nanoseconds = now;
        Some(check.kind.clone())
    }

    /// A check ends; what it read.
    pub(crate) fn end(&self, aggregate: &str, number: u64) -> Option<Kind> {
        let mut table = self.table.lock();
        table.checks.get(aggregate).filter(|check| check.number == number)?;
        table.checks.remove(aggregate).map(|check| check.kind)
    }

    /// Ends the checks that were not heard of for too long; the aggregates and what was read.
    pub(crate) fn expire(&self, now: u64) -> Vec<(String, Kind)> {
        let is_late = |_: &String, check: &mut Check| {
            now.saturating_sub(check.heard_nanoseconds) > KEEP_NANOSECONDS
        };
        let mut table = self.table.lock();
        let late = table.checks.extract_if(.., is_late);
        late.map(|(aggregate, check)| (aggregate, check.kind)).collect()
    }

    /// Why there is no check of this number.
    pub(crate) const fn why_over(&self, number: u64) -> &'static str {
        if number >> COUNT_BITS == self.start >> COUNT_BITS {
            "the check is over: the server did not hear from it for a minute, or it was ended"
        } else {
            "the server was started anew while the check went on"
        }
    }

    /// Whether a check of this aggregate is under way.
    pub(crate) fn is_under_way(&self, aggregate: &str) -> bool {
        self.table.lock().checks.contains_key(aggregate)
    }

    /// Whether an aggregate that is out of service is checked, so that it must stay so.
    pub(crate) fn is_at_rest(&self, aggregate: &AggregateUuid) -> bool {
        self.any_at_rest(|identity, _| identity == aggregate)
    }

    /// Whether a disk is open for a check.
    pub(crate) fn has_disk(&self, name: &str) -> bool {
        self.any_at_rest(|_, disks| disks.iter().any(|disk| disk.name() == name))
    }

    fn any_at_rest(&self, is_it: impl Fn(&AggregateUuid, &[Arc<dyn Disk>]) -> bool) -> bool {
        self.table.lock().checks.values().any(|check| match &check.kind {
            Kind::AtRest { identity, disks } => is_it(identity, disks),
            Kind::Pinned(_) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::simulated::SimulatedWorld;

    struct Drawn(u64);

    impl Entropy for Drawn {
        fn next_u64(&self) -> u64 {
            self.0
        }
    }

    fn checks() -> CheckTable {
        CheckTable::new(&Drawn(7 << 40))
    }

    fn at_rest() -> Kind {
        let world = SimulatedWorld::new(1);
        let disks: Vec<Arc<dyn Disk>> = vec![world.add_disk("d1", 16)];
        Kind::AtRest { identity: AggregateUuid([1; 16]), disks }
    }

    #[test]
    fn an_aggregate_stays_at_rest_until_its_check_ends_or_is_late() {
        let checks = checks();
        let is_at_rest = || (checks.is_at_rest(&AggregateUuid([1; 16])), checks.has_disk("d1"));
        assert_eq!(is_at_rest(), (false, false));
        let number = checks.begin("a1", at_rest(), 0).unwrap();
        assert_eq!(
            (is_at_rest(), checks.is_at_rest(&AggregateUuid([2; 16]))),
            ((true, true), false)
        );
        assert!(checks.end("a1", number).is_some());
        assert_eq!(is_at_rest(), (false, false));
        let number = checks.begin("a1", at_rest(), 5).unwrap();
        assert!(checks.expire(5 + KEEP_NANOSECONDS).is_empty());
        assert!(checks.hear("a1", number, 9).is_some());
        assert!(checks.expire(9 + KEEP_NANOSECONDS).is_empty());
        let late = checks.expire(10 + KEEP_NANOSECONDS);
        assert_eq!(late.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a1"]);
        assert_eq!(is_at_rest(), (false, false));
        assert!(checks.hear("a1", number, 11).is_none() && checks.end("a1", number).is_none());
    }

    /// The process of a check says that it goes on in a thread of its own: that call may be behind
    /// the one that ends the check.
    #[test]
    fn regression_a_call_behind_the_end_of_its_check_warns_of_nothing() {
        let checks = checks();
        let number = checks.begin("a1", Kind::Pinned(1), 0).unwrap();
        assert!(checks.end("a1", number).is_some());
        assert!(checks.hear("a1", number, 1).is_none());
        assert!(checks.expire(2 * KEEP_NANOSECONDS).is_empty(), "nobody is missed");
    }

    #[test]
    fn a_call_for_an_earlier_check_does_not_meet_a_later_one() {
        let checks = checks();
        let first = checks.begin("a1", Kind::Pinned(1), 0).unwrap();
        assert_eq!(checks.begin("a1", at_rest(), 0), None);
        // Whether the image of the first is held the aggregate knows.
        let second = checks.begin("a1", Kind::Pinned(2), 1).unwrap();
        assert!(checks.hear("a1", first, 2).is_none() && checks.end("a1", first).is_none());
        assert!(matches!(checks.hear("a1", second, 2), Some(Kind::Pinned(2))));
        assert!(matches!(checks.end("a1", second), Some(Kind::Pinned(2))));
        let third = checks.begin("a1", at_rest(), 3).unwrap();
        assert_eq!(checks.begin("a1", Kind::Pinned(3), 3), None);
        assert!(checks.end("a1", second).is_none() && checks.is_at_rest(&AggregateUuid([1; 16])));
        assert!(checks.end("a1", third).is_some());
    }

    #[test]
    fn a_check_of_an_earlier_start_is_known_as_such() {
        let (before, after) = (CheckTable::new(&Drawn(u64::MAX)), checks());
        let number = before.begin("a1", Kind::Pinned(1), 0).unwrap();
        let later = after.begin("a1", Kind::Pinned(1), 0).unwrap();
        assert!(number != later && after.end("a1", number).is_none());
        assert!(after.why_over(number).contains("started anew"));
        assert!(after.why_over(later).contains("for a minute"));
    }
}

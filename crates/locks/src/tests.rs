//! The manager against a naive model that knows a mode for each byte, and the rules one by one.

use super::*;
use crate::state::LOOKS;
use file_service::FileHandle;
use platform::Clock;
use platform::sync::Mutex;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use units::{Generation, InodeNumber, SnapshotId, Timestamp, VolumeUuid};

#[derive(Default)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn file(inode: u64) -> FileHandle {
    FileHandle {
        volume: VolumeUuid([1; 16]),
        inode: InodeNumber(inode),
        generation: Generation(1),
        snapshot: SnapshotId::ACTIVE,
    }
}

/// Owners 0 and 1 are one client's, 2 and 3 another's.
fn client(number: u64) -> ClientId {
    ClientId { number, party: number }
}

fn owner(number: u8) -> Owner {
    Owner::new(client(u64::from(number / 2)), &[number])
}

fn request(owner_number: u8, mode: Mode, start: u64, last: u64) -> Request {
    Request {
        file: file(1),
        owner: owner(owner_number),
        process: u32::from(owner_number),
        kind: Kind::Record,
        mode,
        range: Range::new(start, last).unwrap(),
    }
}

fn whole(owner_number: u8, mode: Mode) -> Request {
    Request { kind: Kind::Whole, ..request(owner_number, mode, 0, u64::MAX) }
}

use Mode::{Exclusive, Shared};

/// A manager whose waits write what becomes of them into a list.
struct Setup {
    manager: LockManager,
    clock: Arc<TestClock>,
    told: Arc<Mutex<Vec<(u32, bool)>>>,
}

impl Setup {
    fn new() -> Self {
        let clock = Arc::new(TestClock::default());
        let manager = LockManager::new(Arc::clone(&clock) as Arc<dyn Clock>, Limits::default());
        Self { manager, clock, told: Arc::default() }
    }

    fn now(&self, request: &Request) -> Result<Outcome, LockError> {
        self.manager.lock(request, Attempt::Now)
    }

    /// Waits; `told` gets the number and whether the lock was given.
    fn wait(&self, number: u32, request: &Request) -> Result<Outcome, LockError> {
        let told = Arc::clone(&self.told);
        let done = move |given: Result<(), Cancelled>| told.lock().push((number, given.is_ok()));
        self.manager.lock(request, Attempt::Wait(Box::new(done)))
    }

    fn waits(&self, number: u32, request: &Request) -> WaitId {
        match self.wait(number, request) {
            Ok(Outcome::Waiting(id)) => id,
            other => panic!("{other:?}"),
        }
    }

    fn unlock(&self, owner_number: u8, start: u64, last: u64) {
        let range = Range::new(start, last).unwrap();
        self.manager.unlock(file(1), &owner(owner_number), Kind::Record, &range);
    }

    fn told(&self) -> Vec<(u32, bool)> {
        std::mem::take(&mut self.told.lock())
    }
}

#[test]
fn locks_exclude_and_share() {
    let setup = Setup::new();
    assert_eq!(setup.now(&request(0, Shared, 0, 9)), Ok(Outcome::Granted));
    assert_eq!(setup.now(&request(2, Shared, 5, 20)), Ok(Outcome::Granted));
    let Err(LockError::Conflict(held)) = setup.now(&request(1, Exclusive, 20, 30)) else {
        panic!("owner 2 has byte 20");
    };
    assert_eq!((held.process, held.range), (2, Range::new(5, 20).unwrap()));
    assert_eq!(setup.now(&request(1, Exclusive, 21, 30)), Ok(Outcome::Granted));
    // One's own locks are in nobody's way, and change their mode.
    assert_eq!(setup.now(&request(0, Exclusive, 0, 4)), Ok(Outcome::Granted));
    assert_eq!(setup.manager.held(file(1)).len(), 4);
    setup.unlock(0, 0, u64::MAX);
    assert_eq!(setup.manager.counts(), (2, 0));
}

#[test]
fn flock_and_fcntl_meet_between_clients_only() {
    let setup = Setup::new();
    setup.now(&whole(0, Exclusive)).unwrap();
    assert!(setup.now(&request(1, Exclusive, 0, 0)).is_ok(), "the same machine");
    assert!(setup.now(&request(2, Shared, 5, 5)).is_err(), "another");
    assert!(setup.now(&whole(2, Shared)).is_err());
    assert!(setup.now(&whole(1, Shared)).is_err());
}

#[test]
fn two_that_share_a_file_can_both_want_it_alone() {
    let setup = Setup::new();
    setup.now(&whole(0, Shared)).unwrap();
    setup.now(&whole(1, Shared)).unwrap();
    setup.waits(0, &whole(0, Exclusive));
    // Which gives up its lock, and so lets the first go on.
    setup.waits(1, &whole(1, Exclusive));
    assert_eq!(setup.told(), [(0, true)]);
}

#[test]
fn waiters_are_served_in_order_and_not_overtaken() {
    let setup = Setup::new();
    setup.now(&request(0, Shared, 0, 9)).unwrap();
    setup.waits(1, &request(1, Exclusive, 0, 9));
    setup.waits(2, &request(2, Exclusive, 3, 3));
    // Who does not wait looks at what is held only.
    assert!(setup.now(&request(3, Shared, 3, 3)).is_ok());
    setup.unlock(3, 3, 3);
    setup.unlock(0, 0, 9);
    assert_eq!(setup.told(), [(1, true)]);
    setup.waits(3, &request(3, Shared, 0, 9));
    setup.unlock(1, 0, 9);
    assert_eq!(setup.told(), [(2, true)]);
    setup.unlock(2, 3, 3);
    assert_eq!(setup.told(), [(3, true)]);
    assert_eq!(setup.manager.counts(), (1, 0));
}

/// A program that shared a lock and waited for its child that wanted to share it, too, waited for
/// ever, if somebody else waited for the program.
#[test]
fn regression_who_shares_does_not_wait_for_who_waits() {
    let setup = Setup::new();
    for kind in [Kind::Whole, Kind::Record] {
        let of = |number, mode| Request { kind, ..request(number, mode, 0, 9) };
        setup.now(&of(0, Shared)).unwrap();
        setup.waits(1, &of(1, Exclusive));
        assert!(matches!(setup.wait(2, &of(2, Shared)), Ok(Outcome::Granted)), "{kind:?}");
        let unlock = |number| {
            let Request { file, owner, kind, range, .. } = of(number, Shared);
            setup.manager.unlock(file, &owner, kind, &range);
        };
        unlock(0);
        assert_eq!(setup.told(), []);
        unlock(2);
        assert_eq!(setup.told(), [(1, true)]);
        unlock(1);
    }
}

#[test]
fn a_wait_is_given_up() {
    let setup = Setup::new();
    setup.now(&request(0, Exclusive, 0, 9)).unwrap();
    let wanted = request(1, Exclusive, 0, 9);
    let id = setup.waits(1, &wanted);
    setup.waits(2, &request(2, Shared, 0, 9));
    assert!(setup.manager.waits_for(&wanted) && setup.manager.cancel(&wanted));
    assert!(!setup.manager.cancel(&wanted) && !setup.manager.cancel_wait(&owner(1), id));
    assert_eq!(setup.told(), [(1, false)]);
    setup.unlock(0, 0, 9);
    assert_eq!(setup.told(), [(2, true)]);
}

#[test]
fn a_circle_of_waits_is_refused() {
    let setup = Setup::new();
    for number in 0..3 {
        setup.now(&request(number, Exclusive, u64::from(number), u64::from(number))).unwrap();
    }
    setup.waits(0, &request(0, Exclusive, 1, 1));
    setup.waits(1, &request(1, Exclusive, 2, 2));
    assert_eq!(setup.wait(2, &request(2, Exclusive, 0, 0)), Err(LockError::Deadlock));
    // Also over two files.
    let other = Request { file: file(2), ..request(2, Exclusive, 0, 0) };
    setup.now(&Request { owner: owner(0), ..other.clone() }).unwrap();
    assert_eq!(setup.wait(2, &other), Err(LockError::Deadlock));
    setup.unlock(2, 2, 2);
    assert_eq!(setup.told(), [(1, true)]);
}

#[test]
fn order_among_waiters_makes_no_circle() {
    let setup = Setup::new();
    let elsewhere = |number| Request { file: file(2), ..request(number, Exclusive, 0, 0) };
    setup.now(&request(0, Shared, 0, 4)).unwrap();
    setup.now(&elsewhere(2)).unwrap();
    setup.waits(1, &request(1, Exclusive, 0, 9));
    setup.waits(0, &elsewhere(0));
    // 2 would stand behind 1, who waits for 0, who waits for 2: so it does not stand behind.
    assert_eq!(setup.wait(2, &request(2, Exclusive, 5, 9)), Ok(Outcome::Granted));
}

/// Threads of one program, each of which takes one range at a time, beside open files that do so,
/// too: everybody goes on, so nobody is refused (LTP fcntl36).
#[test]
fn regression_a_place_in_a_queue_is_no_deadlock() {
    let setup = Setup::new();
    setup.now(&request(0, Exclusive, 0, 4)).unwrap();
    setup.now(&request(2, Exclusive, 5, 9)).unwrap();
    setup.waits(1, &request(1, Exclusive, 0, 9));
    // Another thread of 0: 2 has the bytes, and 1 stands before it and waits for 0.
    setup.waits(0, &request(0, Exclusive, 5, 9));
    setup.unlock(2, 5, 9);
    assert_eq!(setup.told(), [(0, true)], "1 waits for what 0 has");
    setup.unlock(0, 0, 9);
    assert_eq!(setup.told(), [(1, true)]);
}

/// A wait in one file closes a circle with places in the queue of another.
#[test]
fn regression_who_is_waited_for_elsewhere_passes() {
    let setup = Setup::new();
    let elsewhere = |number| Request { file: file(2), ..request(number, Exclusive, 0, 0) };
    setup.now(&elsewhere(3)).unwrap();
    setup.now(&request(0, Exclusive, 0, 4)).unwrap();
    setup.waits(1, &request(1, Exclusive, 0, 9));
    setup.waits(3, &request(3, Exclusive, 5, 9));
    // 3 stands behind 1, which waits for 0, which waits for 3 now.
    setup.waits(0, &elsewhere(0));
    assert_eq!(setup.told(), [(3, true)]);
}

/// Each earlier waiter was walked from anew, under the one mutex: 64,936 looks for one wait.
#[test]
fn regression_queues_that_lead_into_each_other_cost_a_bounded_look() {
    const WAITERS: u32 = 1000;
    const BEYOND: u64 = WAITERS as u64;
    const FAR: u64 = 2 * BEYOND;
    let setup = Setup::new();
    let of = |number: u32, mode, start, last| Request {
        owner: Owner::new(client(number.into()), &number.to_be_bytes()),
        process: number,
        ..request(0, mode, start, last)
    };
    let unlock = |number: u32, start, last| {
        let (owner, range) = (of(number, Shared, 0, 0).owner, Range::new(start, last).unwrap());
        setup.manager.unlock(file(1), &owner, Kind::Record, &range);
    };
    setup.now(&of(0, Exclusive, 0, BEYOND - 1)).unwrap();
    setup.now(&of(1, Shared, FAR, u64::MAX)).unwrap();
    for number in 2..WAITERS {
        setup.waits(number, &of(number, Exclusive, number.into(), number.into()));
    }
    setup.waits(WAITERS, &of(WAITERS, Exclusive, BEYOND, u64::MAX));
    for first in 0..32 {
        LOOKS.set(0);
        setup.waits(WAITERS + 1 + first, &of(0, Exclusive, first.into(), BEYOND));
        assert!(LOOKS.get() < 2000, "{} looks for one wait", LOOKS.get());
    }
    LOOKS.set(0);
    unlock(1, FAR, FAR);
    assert!(LOOKS.get() < 2000, "{} looks", LOOKS.get());
    // Who waits has his turn all the same.
    unlock(0, 0, 10);
    assert!(setup.told().contains(&(2, true)));
}

#[test]
fn a_client_that_is_gone_holds_nothing() {
    let setup = Setup::new();
    setup.now(&request(0, Exclusive, 0, 4)).unwrap();
    setup.now(&request(1, Exclusive, 5, 9)).unwrap();
    setup.waits(1, &request(1, Exclusive, 0, 4));
    setup.waits(2, &request(2, Exclusive, 0, 9));
    setup.manager.share(file(1), Share { owner: owner(0), access: 1, deny: 3 }, false).unwrap();
    setup.manager.forget_client(client(0));
    assert_eq!(setup.told(), [(2, true), (1, false)]);
    assert_eq!(setup.manager.counts(), (1, 0));
    setup.manager.share(file(1), Share { owner: owner(2), access: 3, deny: 3 }, false).unwrap();
}

#[test]
fn in_the_grace_period_only_what_was_held_is_given() {
    let setup = Setup::new();
    let wanted = request(0, Exclusive, 0, 9);
    assert_eq!(setup.manager.lock(&wanted, Attempt::Reclaim), Err(LockError::NoGrace));
    setup.manager.begin_grace(100);
    assert!(setup.manager.in_grace());
    assert_eq!(setup.now(&wanted), Err(LockError::Grace));
    setup.waits(2, &request(2, Shared, 0, 9));
    setup.waits(3, &request(3, Shared, 20, 20));
    assert_eq!(setup.manager.lock(&wanted, Attempt::Reclaim), Ok(Outcome::Granted));
    let taken = setup.manager.lock(&request(1, Shared, 5, 5), Attempt::Reclaim);
    assert!(matches!(taken, Err(LockError::Conflict(_))));
    setup.unlock(0, 0, 2);
    assert_eq!(setup.told(), []);
    setup.clock.0.store(99, Ordering::Relaxed);
    assert!(setup.manager.in_grace());
    setup.clock.0.store(100, Ordering::Relaxed);
    assert!(!setup.manager.in_grace());
    assert_eq!(setup.told(), [(3, true)]);
    assert_eq!(setup.manager.lock(&wanted, Attempt::Reclaim), Err(LockError::NoGrace));
    setup.unlock(0, 3, 9);
    assert_eq!(setup.told(), [(2, true)]);
}

#[test]
fn reservations_deny_what_others_do() {
    let setup = Setup::new();
    let share = |number, access, deny| {
        let share = Share { owner: owner(number), access, deny };
        setup.manager.share(file(1), share, false)
    };
    assert_eq!(share(0, 1, 2), Ok(()));
    assert_eq!(share(1, 1, 0), Ok(()));
    assert_eq!(share(2, 2, 0), Err(LockError::Reserved), "writing is denied");
    assert_eq!(share(2, 1, 1), Err(LockError::Reserved), "reading is done");
    assert_eq!(share(0, 1, 0), Ok(()), "in the place of the one before");
    assert_eq!(share(2, 2, 0), Ok(()));
    setup.manager.unshare(file(1), &owner(0));
    setup.manager.unshare(file(1), &owner(1));
    assert_eq!(share(3, 1, 1), Ok(()));
}

#[test]
fn limits_are_errors_and_giving_back_has_none() {
    let limits = Limits { locks: 6, locks_of_file: 4, party_part: 1, ..Limits::default() };
    let manager = LockManager::new(Arc::new(TestClock::default()), limits);
    let now = |request: &Request| manager.lock(request, Attempt::Now);
    let wide = request(0, Exclusive, 0, 99);
    now(&wide).unwrap();
    now(&request(1, Exclusive, 200, 200)).unwrap();
    now(&request(1, Exclusive, 202, 202)).unwrap();
    let Err(LockError::TooMany { what, limit: 4 }) = now(&request(1, Exclusive, 204, 204)) else {
        panic!("three are held, two more may be needed");
    };
    assert_eq!(what, "locks of the file");
    for start in [10, 20, 30] {
        manager.unlock(file(1), &owner(0), Kind::Record, &Range::new(start, start).unwrap());
    }
    assert_eq!(manager.counts().0, 6);
    let elsewhere = Request { file: file(2), ..wide };
    assert!(matches!(now(&elsewhere), Err(LockError::TooMany { what: "locks", .. })));
}

/// A manager that keeps little.
fn small(limits: Limits) -> LockManager {
    LockManager::new(Arc::new(TestClock::default()), limits)
}

#[test]
fn one_party_leaves_room_for_others() {
    let (party_part, shares_of_file) = (4, 100);
    let limits = Limits { party_part, shares: 40, shares_of_file, ..Limits::default() };
    let manager = small(limits);
    // Two names of one machine, and another machine.
    let first = manager.register_client();
    let (second, other) = (manager.register_client_beside(first), manager.register_client());
    let share = |client, name: u8| {
        let share = Share { owner: Owner::new(client, &[name]), access: 1, deny: 0 };
        manager.share(file(1), share, false)
    };
    for name in 0..10 {
        share(if name % 2 == 0 { first } else { second }, name).unwrap();
    }
    let what = "reservations of the client";
    assert_eq!(share(second, 10), Err(LockError::TooMany { what, limit: 10 }));
    assert_eq!(share(first, 0), Ok(()), "in the place of the one before");
    assert_eq!(share(other, 10), Ok(()));
    manager.forget_client(first);
    assert_eq!(share(second, 10), Ok(()));
    manager.unshare(file(1), &Owner::new(second, &[10]));
    manager.forget_client(second);
    manager.forget_client(other);
    assert_eq!(manager.parties_count(), 0);
}

#[test]
fn reservations_are_limited_in_all() {
    let manager = small(Limits { party_part: 1, shares: 40, ..Limits::default() });
    let client = manager.register_client();
    let share = |number: u8| {
        let share = Share { owner: Owner::new(client, &[number]), access: 1, deny: 0 };
        manager.share(file(u64::from(number)), share, false)
    };
    assert!((0..40).all(|number| share(number).is_ok()));
    assert_eq!(share(40), Err(LockError::TooMany { what: "reservations", limit: 40 }));
}

/// Names of a kilobyte, which NLM lets clients have, must not take more than is theirs.
#[test]
fn memory_is_limited_whatever_owners_are_called() {
    let manager = small(Limits { bytes: 100 << 10, party_part: 1, ..Limits::default() });
    let client = manager.register_client();
    let lock = |number: u16| {
        let mut name = vec![7; 1024];
        name.extend(number.to_be_bytes());
        let (at, owner) = (u64::from(number) * 10, Owner::new(client, &name));
        let request = Request { owner, ..request(0, Exclusive, at, at) };
        manager.lock(&request, Attempt::Now)
    };
    let count = (0..1000).take_while(|number| lock(*number).is_ok()).count();
    assert!((70..=80).contains(&count), "{count}");
    let refused = lock(999).unwrap_err().to_string();
    assert!(refused.contains("memory for locks: the limit is 102400"), "{refused}");
}

// ---- the model ----

/// The bytes of the model's file; the last stands for all that follow.
const BYTES: usize = 13;
const OWNERS: u8 = 4;

/// What each owner has of each byte, by kind; and who waits.
#[derive(Default)]
struct Model {
    held: [[[Option<Mode>; BYTES]; 2]; OWNERS as usize],
    waiting: Vec<(u32, Request)>,
}

const fn kind_index(kind: Kind) -> usize {
    match kind {
        Kind::Record => 0,
        Kind::Whole => 1,
    }
}

fn number(owner: &Owner) -> usize {
    usize::from(owner.name[0])
}

fn bytes(range: &Range) -> std::ops::Range<usize> {
    range.start() as usize..(range.last().min(BYTES as u64 - 1) + 1) as usize
}

fn meet(one: (&Owner, Kind, Mode), other: (&Owner, Kind, Mode)) -> bool {
    let same_client = one.0.client == other.0.client;
    one.0 != other.0
        && !(same_client && one.1 != other.1)
        && (one.2 == Exclusive || other.2 == Exclusive)
}

impl Model {
    /// Owners whose locks exclude the request.
    fn holders(&self, request: &Request) -> Vec<u8> {
        let asks = (&request.owner, request.kind, request.mode);
        let holds = |holder: &u8| {
            [Kind::Record, Kind::Whole].into_iter().any(|kind| {
                let modes = &self.held[usize::from(*holder)][kind_index(kind)];
                bytes(&request.range).any(|byte| {
                    modes[byte].is_some_and(|mode| meet((&owner(*holder), kind, mode), asks))
                })
            })
        };
        (0..OWNERS).filter(holds).collect()
    }

    /// Owners of the first `count` waiters that exclude the request.
    fn queued(&self, request: &Request, count: usize) -> Vec<u8> {
        let asks = (&request.owner, request.kind, request.mode);
        let stands = request.mode == Mode::Exclusive;
        let earlier = self.waiting[..count].iter().filter(|(_, waiting)| {
            stands
                && meet((&waiting.owner, waiting.kind, waiting.mode), asks)
                && bytes(&waiting.range).any(|byte| bytes(&request.range).contains(&byte))
        });
        earlier.map(|(_, waiting)| waiting.owner.name[0]).collect()
    }

    /// Stretches of bytes in one mode.
    fn runs(&self) -> usize {
        let begins = |modes: &[Option<Mode>; BYTES]| {
            let before = std::iter::once(&None).chain(modes);
            modes
                .iter()
                .zip(before)
                .filter(|(mode, before)| mode.is_some() && mode != before)
                .count()
        };
        self.held.iter().flatten().map(begins).sum()
    }

    fn set(&mut self, request: &Request, mode: Option<Mode>) {
        let modes = &mut self.held[number(&request.owner)][kind_index(request.kind)];
        bytes(&request.range).for_each(|byte| modes[byte] = mode);
    }

    fn grant(&mut self) -> Vec<(u32, bool)> {
        let mut told = Vec::new();
        loop {
            let free = (0..self.waiting.len()).find(|place| {
                let request = &self.waiting[*place].1;
                self.holders(request).is_empty() && self.may_pass(request, *place)
            });
            let Some(place) = free else { return told };
            let (wait, request) = self.waiting.remove(place);
            self.set(&request, Some(request.mode));
            told.push((wait, true));
        }
    }

    /// Whether the request shares, or each of the first `count` waiters that excludes it waits for
    /// its owner.
    fn may_pass(&self, request: &Request, count: usize) -> bool {
        if request.mode == Mode::Shared {
            return true;
        }
        let excludes = |place: &usize| {
            let waiting = &self.waiting[*place].1;
            meet(
                (&waiting.owner, waiting.kind, waiting.mode),
                (&request.owner, request.kind, request.mode),
            ) && bytes(&waiting.range).any(|byte| bytes(&request.range).contains(&byte))
        };
        (0..count).filter(excludes).all(|place| {
            let waiting = &self.waiting[place].1;
            let mut first = self.holders(waiting);
            first.extend(self.queued(waiting, place));
            request.kind == Kind::Record
                && waiting.kind == Kind::Record
                && self.reaches(first, true, number(&request.owner))
        })
    }

    /// Whether one of `next` waits for `owner`, or is he.
    fn reaches(&self, mut next: Vec<u8>, queues: bool, owner: usize) -> bool {
        let mut reached = [false; OWNERS as usize];
        while let Some(holder) = next.pop() {
            if std::mem::replace(&mut reached[usize::from(holder)], true) {
                continue;
            }
            for (place, (_, waiting)) in self.waiting.iter().enumerate() {
                if waiting.owner.name[0] == holder && waiting.kind == Kind::Record {
                    next.extend(self.holders(waiting));
                    if queues {
                        next.extend(self.queued(waiting, place));
                    }
                }
            }
        }
        reached[owner]
    }
}

#[derive(Clone, Debug)]
enum Step {
    Now(Request),
    Wait(Request),
    Unlock(Request),
    Cancel(usize),
    Forget(u64),
}

fn any_request() -> impl Strategy<Value = Request> {
    let range = (0..BYTES as u64 - 1, 0..BYTES as u64 + 2);
    (0..OWNERS, any::<bool>(), range, 0..5_u8).prop_map(|(owner, shared, (start, end), kind)| {
        let mode = if shared { Shared } else { Exclusive };
        if kind == 0 {
            return whole(owner, mode);
        }
        // As far as the model's last byte: to the end of the file.
        let last = if end >= BYTES as u64 - 1 { u64::MAX } else { end.max(start) };
        request(owner, mode, start, last)
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any_request().prop_map(Step::Now),
        4 => any_request().prop_map(Step::Wait),
        5 => any_request().prop_map(Step::Unlock),
        1 => (0..4_usize).prop_map(Step::Cancel),
        1 => (0..2_u64).prop_map(Step::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn the_manager_agrees_with_the_model(steps in prop::collection::vec(step(), 1..60)) {
        let setup = Setup::new();
        let mut model = Model::default();
        for (at, step) in steps.iter().enumerate() {
            let at = at as u32;
            let mut expected = Vec::new();
            if let Step::Now(request) | Step::Wait(request) = step && request.kind == Kind::Whole {
                let modes = model.held[number(&request.owner)][1];
                if modes[0].is_some_and(|mode| mode != request.mode) {
                    model.set(request, None);
                    expected.extend(model.grant());
                }
            }
            match step {
                Step::Now(request) => {
                    let free = model.holders(request).is_empty();
                    prop_assert_eq!(setup.now(request).is_ok(), free);
                    prop_assert_eq!(setup.manager.conflict(request).is_none(), free);
                    if free {
                        model.set(request, Some(request.mode));
                        expected.extend(model.grant());
                    }
                }
                Step::Wait(request) => {
                    let holders = model.holders(request);
                    let free = holders.is_empty();
                    let is_record = request.kind == Kind::Record;
                    let circle = model.reaches(holders, false, number(&request.owner));
                    let found = setup.wait(at, request);
                    if !free && is_record && circle {
                        prop_assert_eq!(found, Err(LockError::Deadlock));
                    } else {
                        model.waiting.push((at, request.clone()));
                        let granted = model.grant();
                        let is_given = granted.contains(&(at, true));
                        prop_assert_eq!(found == Ok(Outcome::Granted), is_given);
                        prop_assert!(is_given || matches!(found, Ok(Outcome::Waiting(_))));
                        expected.extend(granted.into_iter().filter(|(wait, _)| *wait != at));
                    }
                }
                Step::Unlock(request) => {
                    let Request { file, owner, kind, range, .. } = request;
                    setup.manager.unlock(*file, owner, *kind, range);
                    model.set(request, None);
                    expected.extend(model.grant());
                }
                Step::Cancel(place) => if let Some((_, request)) = model.waiting.get(*place) {
                    let request = request.clone();
                    prop_assert!(setup.manager.cancel(&request));
                    let first = model.waiting.iter().position(|(_, held)| *held == request);
                    let (wait, _) = model.waiting.remove(first.unwrap());
                    expected.extend(model.grant());
                    expected.push((wait, false));
                },
                Step::Forget(client) => {
                    setup.manager.forget_client(self::client(*client));
                    for held in &mut model.held[*client as usize * 2..][..2] {
                        *held = [[None; BYTES]; 2];
                    }
                    let goes = |waiting: &mut (u32, Request)| {
                        waiting.1.owner.client.number == *client
                    };
                    let gone: Vec<_> = model.waiting.extract_if(.., goes).collect();
                    expected.extend(model.grant());
                    expected.extend(gone.iter().map(|(wait, _)| (*wait, false)));
                }
            }
            prop_assert_eq!(setup.told(), expected, "step {}", at);
            let mut found = Model::default();
            for held in setup.manager.held(file(1)) {
                let Held { owner, process, kind, mode, range } = held;
                let request = Request { file: file(1), owner, process, kind, mode, range };
                let before = found.held[number(&request.owner)][kind_index(kind)];
                prop_assert!(bytes(&range).all(|byte| before[byte].is_none()), "twice");
                found.set(&request, Some(mode));
            }
            prop_assert_eq!(found.held, model.held);
            let (ranges, waits) = setup.manager.counts();
            prop_assert_eq!(waits, model.waiting.len());
            prop_assert_eq!(ranges, model.runs(), "ranges that touch are one");
        }
    }
}

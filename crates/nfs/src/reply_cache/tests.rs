//! The cache by itself: who is answered, what is evicted, and how much is kept.

use super::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use units::Timestamp;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Connections in the order in which they were opened.
const FIRST: u64 = 1;
const SECOND: u64 = 2;
const THIRD: u64 = 3;
const FOURTH: u64 = 4;

const FEW: ReplyLimits =
    ReplyLimits { answers_max: 8, client_answers_max: 4, pending_max: 12, forgotten_max: 6 };

fn key(xid: u32) -> Key {
    Key::new(CLIENT, xid, b"arguments", false)
}

fn write_key(xid: u32) -> Key {
    Key::new(CLIENT, xid, b"arguments", true)
}

/// The cache, and the calls that are being done.
struct Cache {
    replies: ReplyCache<u32>,
    begun: RefCell<HashMap<Key, Begun>>,
}

/// What became of a call that came.
#[derive(Debug)]
enum Came {
    Fresh(u32),
    Replay(u32, Box<[u8]>),
    Joined(Option<u32>),
    Refused(u32),
    Late(u32),
}

struct At(u64);

impl Clock for At {
    fn wall(&self) -> Timestamp {
        Timestamp::from_parts(0, 0)
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        self.0
    }
}

impl Cache {
    fn new(limits: ReplyLimits, connections: Arc<Connections>) -> Self {
        Self { replies: ReplyCache::new(limits, connections), begun: RefCell::default() }
    }

    fn begin(&self, key: Key, connection: u64, now_nanoseconds: u64, replier: u32) -> Came {
        match self.replies.begin(key, connection, &At(now_nanoseconds), replier) {
            Begin::Fresh(replier, begun) => {
                assert_eq!(self.begun.borrow_mut().insert(key, begun), None);
                Came::Fresh(replier)
            }
            Begin::Replay(replier, answer) => Came::Replay(replier, answer),
            Begin::Joined(superseded) => Came::Joined(superseded),
            Begin::Refused(replier) => Came::Refused(replier),
            Begin::Late(replier) => Came::Late(replier),
        }
    }

    fn take(&self, key: &Key) -> Begun {
        self.begun.borrow_mut().remove(key).expect("it is being done")
    }

    fn finish(&self, key: &Key, now_nanoseconds: u64, answer: &[u8]) -> Option<u32> {
        self.replies.finish(self.take(key), now_nanoseconds, answer)
    }

    fn forget(&self, key: &Key) -> Option<u32> {
        self.replies.forget(self.take(key))
    }

    fn put_off(&self, key: &Key) -> Option<u32> {
        self.replies.put_off(self.take(key))
    }
}

fn cache_of(limits: ReplyLimits) -> Cache {
    Cache::new(limits, Arc::new(Connections::default()))
}

fn is_fresh(cache: &Cache, key: Key) -> bool {
    matches!(cache.begin(key, FIRST, 0, 0), Came::Fresh(0))
}

fn counts(cache: &Cache) -> (usize, usize, usize, usize) {
    cache.replies.others.contents.lock().known.counts()
}

#[test]
fn a_repeated_call_gets_the_first_answer() {
    let cache = cache_of(FEW);
    assert!(is_fresh(&cache, key(1)));
    assert_eq!(cache.finish(&key(1), 0, b"answer"), None);
    for connection in [FIRST, SECOND] {
        let Came::Replay(5, answer) = cache.begin(key(1), connection, 9, 5) else {
            panic!("it is done")
        };
        assert_eq!(&*answer, b"answer");
    }
    let other = Key::new(CLIENT, 1, b"others", false);
    assert!(is_fresh(&cache, other), "the same number, another call");
    let other = Key::new(IpAddr::from([127, 0, 0, 2]), 1, b"arguments", false);
    assert!(is_fresh(&cache, other), "another client");
}

#[test]
fn an_old_answer_is_not_for_later_connections() {
    let cache = cache_of(FEW);
    let (begun, answered) = (5, 500 * AGE_MAX_NANOSECONDS);
    assert!(matches!(cache.begin(key(1), SECOND, begun, 0), Came::Fresh(0)));
    cache.finish(&key(1), answered, b"answer");
    // The age is that of the answer: the call itself may have taken for ever.
    let in_time = answered + AGE_MAX_NANOSECONDS - 1;
    assert!(matches!(cache.begin(key(1), THIRD, in_time, 5), Came::Replay(5, _)));
    let late = answered + AGE_MAX_NANOSECONDS;
    assert!(matches!(cache.begin(key(1), SECOND, late, 5), Came::Replay(5, _)), "its own");
    assert!(matches!(cache.begin(key(1), FIRST, late, 5), Came::Replay(5, _)), "an earlier one");
    let of_third = cache.begin(key(1), THIRD, late, 5);
    assert!(matches!(of_third, Came::Replay(5, _)), "it has had a copy answered");
    assert!(matches!(cache.begin(key(1), FOURTH, late, 5), Came::Fresh(5)));
    assert!(matches!(cache.begin(key(1), FOURTH, late, 6), Came::Joined(None)));
    assert_eq!(counts(&cache), (1, 0, 1, 1));
}

#[test]
fn the_newest_copy_is_answered_and_the_others_are_not() {
    let cache = cache_of(FEW);
    assert!(matches!(cache.begin(key(1), FIRST, 0, 10), Came::Fresh(10)));
    assert!(matches!(cache.begin(key(1), FIRST, 0, 11), Came::Joined(None)));
    // The third and the fourth copy: each takes the place of the one before.
    assert!(matches!(cache.begin(key(1), FIRST, 0, 12), Came::Joined(Some(11))));
    assert!(matches!(cache.begin(key(1), SECOND, 0, 13), Came::Joined(Some(12))));
    // A copy that was read late: its connection has been given up.
    assert!(matches!(cache.begin(key(1), FIRST, 0, 14), Came::Joined(Some(14))));
    assert_eq!(cache.finish(&key(1), 0, b""), Some(13));
    // And where the first copy is the newest.
    assert!(matches!(cache.begin(key(2), SECOND, 0, 20), Came::Fresh(20)));
    assert!(matches!(cache.begin(key(2), FIRST, 0, 21), Came::Joined(Some(21))));
    assert_eq!(cache.finish(&key(2), 0, b""), None);
    // A call that is not done after all.
    assert!(is_fresh(&cache, key(3)));
    assert!(matches!(cache.begin(key(3), FIRST, 0, 31), Came::Joined(None)));
    assert_eq!(cache.forget(&key(3)), Some(31));
    assert!(is_fresh(&cache, key(3)));
}

#[test]
fn the_oldest_answers_go_first() {
    let cache = cache_of(ReplyLimits { client_answers_max: 8, answers_max: 2, ..FEW });
    for xid in 1..=3 {
        assert!(is_fresh(&cache, key(xid)));
        cache.finish(&key(xid), 0, b"");
    }
    assert!(!is_fresh(&cache, key(3)));
    assert!(!is_fresh(&cache, key(2)));
    assert!(is_fresh(&cache, key(1)), "evicted");
    assert_eq!(counts(&cache), (3, 2, 1, 1));
}

#[test]
fn a_busy_client_pushes_out_its_own() {
    let cache = cache_of(FEW);
    let quiet = Key::new(IpAddr::from([10, 0, 0, 1]), 1, b"", false);
    assert!(is_fresh(&cache, quiet));
    cache.finish(&quiet, 0, b"");
    for xid in 0..100 {
        assert!(is_fresh(&cache, key(xid)));
        cache.finish(&key(xid), 0, b"");
    }
    assert!(!is_fresh(&cache, quiet) && !is_fresh(&cache, key(96)));
    assert_eq!(counts(&cache), (5, 5, 0, 2));
    assert!(is_fresh(&cache, key(95)));
}

#[test]
fn a_call_and_its_answer_take_as_much_as_the_limits_say() {
    assert!(size_of::<known::Entry<Replier>>() <= 168);
}

#[test]
fn a_large_answer_leaves_its_memory_to_no_other() {
    let cache = cache_of(FEW);
    (0..4).for_each(|xid| {
        assert!(is_fresh(&cache, key(xid)));
        cache.finish(&key(xid), 0, &[7; 1024]);
    });
    (4..8).for_each(|xid| answer(&cache, xid, FIRST));
    let contents = cache.replies.others.contents.lock();
    assert_eq!(contents.known.answer_bytes(), 0);
}

#[test]
fn what_is_being_done_is_never_evicted() {
    let cache = cache_of(FEW);
    assert!(is_fresh(&cache, key(1_000)));
    for xid in 0..100 {
        assert!(is_fresh(&cache, key(xid)));
        cache.finish(&key(xid), 0, b"");
    }
    assert!(matches!(cache.begin(key(1_000), FIRST, 0, 1), Came::Joined(None)));
    assert_eq!(cache.finish(&key(1_000), 0, b""), Some(1));
}

#[test]
fn a_client_leaves_others_as_much_as_it_has() {
    let cache = cache_of(FEW);
    let of = |client: u8, xid| Key::new(IpAddr::from([10, 0, 0, client]), xid, b"", false);
    let admitted = |client| (0..).take_while(|xid| is_fresh(&cache, of(client, *xid))).count();
    assert_eq!((admitted(1), admitted(2), admitted(3), admitted(4)), (6, 3, 2, 1));
    assert!(matches!(cache.begin(of(1, 9), FIRST, 0, 9), Came::Refused(9)));
    assert!(matches!(cache.begin(of(1, 5), FIRST, 0, 9), Came::Joined(None)), "no new one");
    cache.finish(&of(1, 0), 0, b"");
    assert!(is_fresh(&cache, of(5, 0)), "the room is free again");
    assert!((1..5).all(|xid| cache.finish(&of(1, xid), 0, b"").is_none()));
    assert_eq!(cache.finish(&of(1, 5), 0, b""), Some(9));
    assert!((0..3).all(|xid| cache.forget(&of(2, xid)).is_none()));
    assert_eq!(counts(&cache), (8, 4, 4, 4));
}

#[test]
fn of_too_many_answers_the_client_with_most_loses_one() {
    let cache = cache_of(FEW);
    let of = |client: u8, xid| Key::new(IpAddr::from([10, 0, 0, client]), xid, b"", false);
    let answer = |client, xid| {
        assert!(is_fresh(&cache, of(client, xid)));
        cache.finish(&of(client, xid), 0, b"");
    };
    answer(1, 0);
    (0..4).for_each(|xid| answer(2, xid));
    (0..3).for_each(|xid| answer(3, xid));
    answer(4, 0);
    let is_kept = |client, xid| !is_fresh(&cache, of(client, xid));
    assert!(is_kept(1, 0) && is_kept(3, 0) && is_kept(2, 1) && !is_kept(2, 0));
}

/// Begins and ends a call that is not known.
fn answer(cache: &Cache, xid: u32, connection: u64) {
    assert!(matches!(cache.begin(key(xid), connection, 0, 5), Came::Fresh(5)));
    cache.finish(&key(xid), 0, b"");
}

#[test]
fn a_late_copy_of_what_was_forgotten_is_not_done() {
    let connections = Arc::new(Connections::default());
    let (_, _other) = connections.open(IpAddr::from([10, 0, 0, 2]));
    let (first, open) = connections.open(CLIENT);
    let (second, _newer) = connections.open(CLIENT);
    assert_eq!((first, second), (FIRST, SECOND));
    let cache = Cache::new(FEW, Arc::clone(&connections));
    answer(&cache, 1, SECOND);
    assert!(matches!(cache.begin(key(1), FIRST, 0, 5), Came::Replay(5, _)));
    answer(&cache, 20, FIRST);
    (2..=5).for_each(|xid| answer(&cache, xid, SECOND));
    // The answers to the first two calls are forgotten; one was had over the second connection.
    assert!(matches!(cache.begin(key(1), FIRST, 0, 5), Came::Late(5)));
    assert!(matches!(cache.begin(key(1), FIRST, 0, 5), Came::Late(5)), "and again");
    assert!(matches!(cache.begin(key(20), FIRST, 0, 5), Came::Late(5)), "its own");
    answer(&cache, 9, FIRST);
    // Over a newer connection it is done again as ever.
    answer(&cache, 20, SECOND);
    answer(&cache, 1, THIRD);
    // Over one connection nothing comes late.
    drop(open);
    (30..=40).for_each(|xid| answer(&cache, xid, SECOND));
    answer(&cache, 30, SECOND);
}

#[test]
fn a_call_that_was_put_off_is_not_done_late() {
    let connections = Arc::new(Connections::default());
    let (first, open) = connections.open(CLIENT);
    let (second, _newer) = connections.open(CLIENT);
    let cache = Cache::new(FEW, Arc::clone(&connections));
    assert!(matches!(cache.begin(key(1), second, 0, 5), Came::Fresh(5)));
    assert!(matches!(cache.begin(key(1), second, 0, 6), Came::Joined(None)));
    assert_eq!(cache.put_off(&key(1)), Some(6));
    cache.replies.put_off_refused(&key(2), second);
    for xid in [1, 2] {
        assert!(matches!(cache.begin(key(xid), first, 0, 5), Came::Late(5)));
        assert!(matches!(cache.begin(key(xid), second + 1, 0, 5), Came::Fresh(5)));
    }
    // Over one connection nothing comes late.
    drop(open);
    assert!(matches!(cache.begin(key(3), second, 0, 5), Came::Fresh(5)));
    assert_eq!(cache.put_off(&key(3)), None);
    assert!(matches!(cache.begin(key(3), second, 0, 5), Came::Fresh(5)));
}

#[test]
fn a_client_that_comes_back_has_connections_again() {
    let connections = Arc::new(Connections::default());
    let (_, open) = connections.open(CLIENT);
    let cache = Cache::new(FEW, Arc::clone(&connections));
    (1..=5).for_each(|xid| answer(&cache, xid, SECOND));
    // What the cache knows of the client's connections is of the time before.
    drop(open);
    let (old, _old) = connections.open(CLIENT);
    let (new, _new) = connections.open(CLIENT);
    (6..=10).for_each(|xid| answer(&cache, xid, new));
    assert!(matches!(cache.begin(key(6), old, 0, 5), Came::Late(5)));
}

#[test]
fn what_is_remembered_of_calls_has_a_limit() {
    let connections = Arc::new(Connections::default());
    let (first, _open) = connections.open(CLIENT);
    let (_, _newer) = connections.open(CLIENT);
    let cache = Cache::new(FEW, Arc::clone(&connections));
    (0..20).for_each(|xid| answer(&cache, xid, SECOND));
    let late: Vec<u32> = (0..20)
        .filter(|xid| matches!(cache.begin(key(*xid), first, 0, 5), Came::Late(5)))
        .collect();
    // The last four have answers; of those before the last six are remembered.
    assert_eq!(late, [10, 11, 12, 13, 14, 15]);
}

#[test]
fn writes_do_not_push_out_the_answers_of_others() {
    let cache = cache_of(FEW);
    assert!(is_fresh(&cache, key(1)));
    cache.finish(&key(1), 0, b"removed");
    for xid in 0..100 {
        assert!(is_fresh(&cache, write_key(xid)));
        cache.finish(&write_key(xid), 0, b"");
    }
    assert!(matches!(cache.begin(key(1), SECOND, 0, 5), Came::Replay(5, _)));
    assert!(matches!(cache.begin(write_key(99), SECOND, 0, 5), Came::Replay(5, _)));
    assert!(matches!(cache.begin(write_key(0), SECOND, 0, 5), Came::Fresh(5)), "evicted");
}

#[test]
fn a_busy_client_does_not_push_out_what_is_remembered_of_others() {
    let connections = Arc::new(Connections::default());
    let busy = IpAddr::from([10, 0, 0, 2]);
    let open: Vec<_> = [CLIENT, CLIENT, busy, busy].map(|from| connections.open(from)).into();
    let cache = Cache::new(FEW, Arc::clone(&connections));
    let (old, new) = (open[0].0, open[1].0);
    answer(&cache, 1, new);
    (2..=5).for_each(|xid| answer(&cache, xid, new));
    assert!(matches!(cache.begin(key(1), old, 0, 5), Came::Late(5)));
    for xid in 0..100 {
        let key = Key::new(busy, xid, b"arguments", false);
        assert!(matches!(cache.begin(key, open[3].0, 0, 5), Came::Fresh(5)));
        cache.finish(&key, 0, b"");
    }
    assert!(matches!(cache.begin(key(1), old, 0, 5), Came::Late(5)), "still");
}

#[test]
fn a_late_copy_may_come_over_the_only_connection_that_is_left() {
    let connections = Arc::new(Connections::default());
    let (old, _open) = connections.open(CLIENT);
    let (new, newer) = connections.open(CLIENT);
    let cache = Cache::new(ReplyLimits { answers_max: 1, ..FEW }, Arc::clone(&connections));
    answer(&cache, 1, new);
    // The client has nothing to do and closes the connection; the old one is not read yet.
    drop(newer);
    // Another client's answer takes the place.
    let other = Key::new(IpAddr::from([10, 0, 0, 2]), 1, b"", false);
    assert!(matches!(cache.begin(other, new + 1, 0, 5), Came::Fresh(5)));
    cache.finish(&other, 0, b"");
    assert!(matches!(cache.begin(key(1), old, 0, 5), Came::Late(5)));
}

/// The same by lists that are looked through: calls with answers, the oldest first, and those that
/// are being done.
#[derive(Default)]
struct Naive {
    answers: Vec<Key>,
    pending: Vec<Key>,
}

impl Naive {
    fn answers_of(&self, client: IpAddr) -> usize {
        self.answers.iter().filter(|key| key.client == client).count()
    }

    fn finish(&mut self, key: Key) {
        self.pending.retain(|other| *other != key);
        let loser = if self.answers_of(key.client) >= FEW.client_answers_max {
            Some(key.client)
        } else if self.answers.len() >= FEW.answers_max {
            // Of several with as many, the one with the highest address.
            self.answers
                .iter()
                .map(|key| (self.answers_of(key.client), key.client))
                .max()
                .map(|it| it.1)
        } else {
            None
        };
        if let Some(loser) = loser {
            let oldest = self.answers.iter().position(|key| key.client == loser).unwrap();
            self.answers.remove(oldest);
        }
        self.answers.push(key);
    }
}

/// An answer whose length differs from others': it takes the buffer of an evicted answer.
fn answer_to(client: u8, xid: u32) -> Vec<u8> {
    vec![client; xid as usize * 100]
}

proptest! {
    #[test]
    fn what_is_kept_is_what_lists_would_keep(
        steps in prop::collection::vec((0..5_u8, 0..12_u32, 0..5_u8), 1..200),
    ) {
        let cache = cache_of(FEW);
        let mut naive = Naive::default();
        for (place, (client, xid, step)) in steps.into_iter().enumerate() {
            let key = Key::new(IpAddr::from([10, 0, 0, client]), xid, b"", false);
            let is_pending = naive.pending.contains(&key);
            match step {
                0 | 1 if is_pending => {
                    cache.finish(&key, 0, &answer_to(client, xid));
                    naive.finish(key);
                }
                2 if is_pending => {
                    cache.forget(&key);
                    naive.pending.retain(|other| *other != key);
                }
                // Over a new connection, when all answers are too old for it: it is a new call.
                4 if !is_pending => {
                    naive.answers.retain(|other| *other != key);
                    match cache.begin(key, FIRST + 1 + place as u64, AGE_MAX_NANOSECONDS, 0) {
                        Came::Fresh(_) => naive.pending.push(key),
                        came => prop_assert!(matches!(came, Came::Refused(_)), "{came:?}"),
                    }
                }
                _ => match cache.begin(key, FIRST, 0, 0) {
                    Came::Fresh(_) => {
                        prop_assert!(!is_pending && !naive.answers.contains(&key));
                        naive.pending.push(key);
                    }
                    Came::Replay(_, answer) => {
                        prop_assert!(naive.answers.contains(&key));
                        prop_assert_eq!(&*answer, answer_to(client, xid));
                    }
                    Came::Joined(_) => prop_assert!(is_pending),
                    Came::Refused(_) => {
                        let of_client = naive.pending.iter().filter(|it| it.client == key.client);
                        prop_assert!(of_client.count() >= FEW.pending_max - naive.pending.len());
                    }
                    Came::Late(_) => prop_assert!(false, "nothing is remembered"),
                },
            }
            let clients: BTreeSet<_> =
                naive.answers.iter().chain(&naive.pending).map(|key| key.client).collect();
            for client in &clients {
                let answers = naive.answers.iter().filter(|key| key.client == *client);
                let expected: Vec<Key> = answers.copied().collect();
                let order = cache.replies.others.contents.lock().known.order(*client);
                prop_assert_eq!(&order, &[expected.clone(), expected]);
            }
            let known = naive.answers.len() + naive.pending.len();
            let expected = (known, naive.answers.len(), naive.pending.len(), clients.len());
            prop_assert_eq!(counts(&cache), expected);
        }
    }
}

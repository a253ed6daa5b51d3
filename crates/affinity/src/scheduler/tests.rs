//! The scheduler from outside: order, suspension, workers, ends.

use super::*;
use crate::Partition;
use platform::sync::Mutex as Lock;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use units::Timestamp;

/// A clock that counts its readings.
#[derive(Default)]
struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }
    fn monotonic_nanoseconds(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

struct World {
    scheduler: Scheduler,
    volume: AffinityId,
    logical: AffinityId,
    stripes: [AffinityId; 2],
    /// What ran, in order.
    trail: Arc<Lock<Vec<&'static str>>>,
}

fn world() -> World {
    let scheduler = Scheduler::new(Arc::new(Ticks::default()));
    let aggregate = scheduler.add(scheduler.root(), AffinityKind::Aggregate);
    let volume = scheduler.add(aggregate, AffinityKind::Volume);
    let logical = scheduler.add(volume, AffinityKind::VolumeLogical);
    let stripes = [(); 2].map(|()| scheduler.add(logical, AffinityKind::Stripe));
    World { scheduler, volume, logical, stripes, trail: Arc::default() }
}

impl World {
    fn step(&self, name: &'static str) -> Box<dyn Message> {
        let trail = Arc::clone(&self.trail);
        Box::new(move |_: &mut Access<'_>| {
            trail.lock().push(name);
            Outcome::Done
        })
    }

    /// Suspends at its first run and hands its waker out.
    fn waiter(&self, name: &'static str) -> (Box<dyn Message>, mpsc::Receiver<Waker>) {
        let (sender, receiver) = mpsc::channel();
        let mut sender = Some(sender);
        let trail = Arc::clone(&self.trail);
        let message = move |_: &mut Access<'_>| match sender.take() {
            Some(sender) => Outcome::Suspend(Box::new(move |waker| {
                let _ = sender.send(waker);
            })),
            None => {
                trail.lock().push(name);
                Outcome::Done
            }
        };
        (Box::new(message), receiver)
    }

    fn trail(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.trail.lock())
    }
}

#[test]
fn messages_of_one_affinity_run_in_order() {
    let world = world();
    for name in ["a", "b", "c"] {
        world.scheduler.send(world.logical, world.step(name));
    }
    assert!(!world.scheduler.is_idle());
    assert_eq!(world.scheduler.run_until_idle(), 3);
    assert!(world.scheduler.is_idle());
    assert_eq!(world.trail(), ["a", "b", "c"]);
    assert_eq!(world.scheduler.counters()[AffinityKind::VolumeLogical].messages, 3);
}

#[test]
fn the_chooser_chooses_among_all_that_can_run() {
    let world = world();
    world.scheduler.send(world.stripes[0], world.step("first"));
    world.scheduler.send(world.stripes[1], world.step("second"));
    world.scheduler.send(world.volume, world.step("volume"));
    assert!(world.scheduler.run_one(&mut |count| {
        assert_eq!(count, 3);
        1
    }));
    assert!(world.scheduler.run_one(&mut |count| count - 1));
    assert!(world.scheduler.run_one(&mut |_| 0));
    assert!(!world.scheduler.run_one(&mut |_| unreachable!("nothing to choose from")));
    assert_eq!(world.trail(), ["second", "volume", "first"]);
}

#[test]
fn a_woken_message_goes_first() {
    let world = world();
    let (message, wakers) = world.waiter("woken");
    world.scheduler.send(world.logical, message);
    world.scheduler.run_until_idle();
    assert!(!world.scheduler.is_idle());
    assert_eq!(world.scheduler.counters().suspended, 1);
    world.scheduler.send(world.logical, world.step("later"));
    wakers.recv().unwrap().wake();
    world.scheduler.run_until_idle();
    assert_eq!(world.trail(), ["woken", "later"]);
    assert!(world.scheduler.is_idle());
}

/// Takes one of `room` or waits for more, as an operation does that finds the log full.
fn taker(
    world: &World,
    room: &Arc<Lock<u32>>,
    waiting: &Arc<Lock<Vec<Waker>>>,
    name: &'static str,
) -> Box<dyn Message> {
    let (trail, room) = (Arc::clone(&world.trail), Arc::clone(room));
    let waiting = Arc::clone(waiting);
    Box::new(move |_: &mut Access<'_>| {
        let mut left = room.lock();
        if *left == 0 {
            let waiting = Arc::clone(&waiting);
            return Outcome::Suspend(Box::new(move |waker| waiting.lock().push(waker)));
        }
        *left -= 1;
        trail.lock().push(name);
        Outcome::Done
    })
}

#[test]
fn who_waits_for_room_longest_gets_it_first() {
    let world = world();
    let (room, waiting) = (Arc::new(Lock::new(0)), Arc::new(Lock::new(Vec::new())));
    let send = |affinity, name| {
        world.scheduler.send(affinity, taker(&world, &room, &waiting, name));
        world.scheduler.run_until_idle();
    };
    ["first", "second", "third"].iter().for_each(|name| send(world.stripes[0], name));
    send(world.stripes[1], "elsewhere");
    for expected in ["first", "second", "third", "elsewhere", "late"] {
        *room.lock() = 1;
        // They began to wait again in whatever order; what comes now is behind all of them.
        waiting.lock().reverse();
        let wakers = std::mem::take(&mut *waiting.lock());
        Waker::wake_all(wakers);
        if expected == "second" {
            world.scheduler.send(world.stripes[0], taker(&world, &room, &waiting, "late"));
        }
        world.scheduler.run_until_idle();
        assert_eq!(world.trail(), [expected]);
    }
    assert!(world.scheduler.is_idle() && waiting.lock().is_empty());
}

#[test]
fn messages_behind_one_that_waits_do_not_pass_older_ones() {
    let world = world();
    let (old, old_waker) = world.waiter("old");
    world.scheduler.send(world.logical, old);
    world.scheduler.run_until_idle();
    let old_waker = old_waker.recv().unwrap();
    // In one turn: the first of them waits, and while it runs the old one is woken.
    let mut wake = Some(old_waker);
    let waits = move |_: &mut Access<'_>| match wake.take() {
        Some(waker) => {
            waker.wake();
            Outcome::Suspend(Box::new(Waker::wake))
        }
        None => Outcome::Done,
    };
    world.scheduler.send(world.logical, Box::new(waits));
    world.scheduler.send(world.logical, world.step("behind"));
    // A worker takes both at once.
    world.scheduler.shutdown();
    world.scheduler.worker_loop();
    assert_eq!(world.trail(), ["old", "behind"]);
}

#[test]
fn a_waker_may_be_woken_before_its_starter_returns() {
    let world = world();
    let mut suspend = true;
    let message = move |_: &mut Access<'_>| match std::mem::take(&mut suspend) {
        true => Outcome::Suspend(Box::new(Waker::wake)),
        false => Outcome::Done,
    };
    world.scheduler.send_direct(world.logical, Box::new(message));
    assert_eq!(world.scheduler.run_until_idle(), 1);
    assert!(world.scheduler.is_idle());
}

#[test]
fn a_dropped_waker_is_counted_and_its_message_runs() {
    let world = world();
    let (message, wakers) = world.waiter("survived");
    world.scheduler.send(world.logical, message);
    world.scheduler.run_until_idle();
    let waker = wakers.recv().unwrap();
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(waker)));
    assert_eq!(dropped.is_err(), cfg!(debug_assertions));
    world.scheduler.run_until_idle();
    assert_eq!(world.trail(), ["survived"]);
    assert_eq!(world.scheduler.counters().wakers_dropped, 1);
}

#[test]
fn a_message_is_rerouted_and_yields() {
    let world = world();
    let (logical, volume) = (world.logical, world.volume);
    let trail = Arc::clone(&world.trail);
    let mut runs = 0;
    let message = move |access: &mut Access<'_>| {
        runs += 1;
        match runs {
            1 => {
                assert_eq!(access.affinity(), logical);
                Outcome::Reroute(volume)
            }
            2 => {
                assert_eq!(access.affinity(), volume);
                Outcome::Yield
            }
            _ => {
                assert_eq!(access.affinity(), volume);
                trail.lock().push("rerouted");
                Outcome::Done
            }
        }
    };
    world.scheduler.send(world.logical, Box::new(message));
    world.scheduler.run_one(&mut |_| 0);
    world.scheduler.send(world.volume, world.step("behind"));
    world.scheduler.run_until_idle();
    assert_eq!(world.trail(), ["behind", "rerouted"]);
    let counters = world.scheduler.counters();
    assert_eq!(counters[AffinityKind::VolumeLogical].reroutes, 1);
    assert_eq!(counters[AffinityKind::Volume].yields, 1);
    assert!(counters[AffinityKind::Volume].busy_nanoseconds > 0);
}

#[test]
fn a_direct_message_runs_at_once_and_follows_a_reroute() {
    let world = world();
    let trail = Arc::clone(&world.trail);
    let volume = world.volume;
    let message = move |access: &mut Access<'_>| {
        if access.affinity() != volume {
            return Outcome::Reroute(volume);
        }
        trail.lock().push("direct");
        Outcome::Done
    };
    world.scheduler.send_direct(world.logical, Box::new(message));
    assert_eq!(world.trail(), ["direct"]);
    assert!(world.scheduler.is_idle());
    assert_eq!(world.scheduler.counters()[AffinityKind::Volume].direct_turns, 1);
}

#[test]
fn a_direct_message_keeps_its_place_behind_queued_ones() {
    let world = world();
    world.scheduler.send(world.logical, world.step("queued"));
    world.scheduler.send_direct(world.logical, world.step("direct"));
    assert_eq!(world.trail(), Vec::<&str>::new());
    world.scheduler.run_until_idle();
    assert_eq!(world.trail(), ["queued", "direct"]);
}

#[test]
fn a_direct_message_from_inside_a_message_is_queued() {
    let world = world();
    let inner = Lock::new(Some(world.step("inner")));
    let (scheduler, trail) = (world.scheduler.clone(), Arc::clone(&world.trail));
    let other = world.scheduler.add(world.scheduler.root(), AffinityKind::Aggregate);
    let message = move |_: &mut Access<'_>| {
        scheduler.send_direct(other, inner.lock().take().unwrap());
        trail.lock().push("outer");
        Outcome::Done
    };
    world.scheduler.send_direct(world.logical, Box::new(message));
    assert_eq!(world.trail(), ["outer"]);
    world.scheduler.run_until_idle();
    assert_eq!(world.trail(), ["inner"]);
}

#[test]
fn exclusive_opens_everything_and_lets_queued_messages_wait() {
    let world = world();
    let cell = Partition::new(world.stripes[0], 1);
    world.scheduler.send(world.scheduler.root(), world.step("root"));
    world.scheduler.send(world.stripes[0], world.step("stripe"));
    let (message, wakers) = world.waiter("suspended");
    world.scheduler.send_direct(world.logical, message);
    world.scheduler.exclusive(|access| {
        *cell.write(access) += 1;
        world.scheduler.send_direct(world.logical, world.step("sent inside"));
    });
    wakers.recv().unwrap().wake();
    world.scheduler.run_until_idle();
    assert_eq!(cell.into_inner(), 2);
    let mut trail = world.trail();
    trail.sort_unstable();
    assert_eq!(trail, ["root", "sent inside", "stripe", "suspended"]);
}

#[test]
#[should_panic(expected = "exclusive access while 1 affinities run")]
fn exclusive_within_a_message_is_refused() {
    let world = world();
    let scheduler = world.scheduler.clone();
    let message = move |_: &mut Access<'_>| {
        scheduler.exclusive(|_| ());
        Outcome::Done
    };
    world.scheduler.send_direct(world.logical, Box::new(message));
}

#[test]
fn affinities_come_and_go() {
    let world = world();
    let extra = world.scheduler.add(world.logical, AffinityKind::Stripe);
    world.scheduler.remove(extra);
    let again = world.scheduler.add(world.logical, AffinityKind::Stripe);
    assert_ne!(extra, again);
    assert!(world.scheduler.try_send(extra, world.step("late")).is_err());
    assert!(world.scheduler.try_send(again, world.step("in time")).is_ok());
    world.scheduler.run_until_idle();
    assert_eq!(world.trail(), ["in time"]);
}

#[test]
fn an_affinity_goes_with_all_beneath_when_they_are_idle() {
    let world = world();
    let (message, wakers) = world.waiter("suspended");
    world.scheduler.send_direct(world.stripes[0], message);
    assert!(!world.scheduler.remove_tree_if_idle(world.volume));
    wakers.recv().unwrap().wake();
    world.scheduler.run_until_idle();
    assert!(world.scheduler.remove_tree_if_idle(world.volume));
    assert!(world.scheduler.try_send(world.stripes[0], world.step("late")).is_err());
}

#[test]
#[should_panic(expected = "is not idle")]
fn an_affinity_with_a_suspended_message_is_not_removed() {
    let world = world();
    let (message, _wakers) = world.waiter("suspended");
    world.scheduler.send_direct(world.stripes[0], message);
    world.scheduler.remove(world.stripes[0]);
}

#[test]
fn after_a_halt_nothing_runs_and_wakers_fall_silent() {
    let world = world();
    let (message, wakers) = world.waiter("suspended");
    world.scheduler.send_direct(world.logical, message);
    world.scheduler.send(world.logical, world.step("queued"));
    world.scheduler.halt();
    drop(wakers.recv().unwrap());
    world.scheduler.send(world.logical, world.step("late"));
    world.scheduler.send_direct(world.volume, world.step("late"));
    assert_eq!(world.scheduler.run_until_idle(), 0);
    world.scheduler.worker_loop();
    assert_eq!(world.trail(), Vec::<&str>::new());
    assert_eq!(world.scheduler.counters().wakers_dropped, 0);
    assert_eq!(Arc::strong_count(&world.trail), 1);
}

#[test]
fn workers_run_everything_and_return_at_shutdown() {
    const MESSAGES: u64 = 2_000;
    let world = world();
    let cells: Arc<Vec<Partition<u64>>> = Arc::new(
        [world.stripes[0], world.stripes[1], world.logical, world.volume]
            .map(|affinity| Partition::new(affinity, 0))
            .into(),
    );
    let (sender, wakers) = mpsc::channel::<Waker>();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| world.scheduler.worker_loop());
        }
        // Another thread wakes, as a disk's would.
        scope.spawn(move || wakers.into_iter().for_each(Waker::wake));
        for number in 0..MESSAGES {
            let cell = (number % 4) as usize;
            let cells = Arc::clone(&cells);
            let affinity = cells[cell].affinity();
            let mut sender = number.is_multiple_of(7).then(|| sender.clone());
            let message = move |access: &mut Access<'_>| {
                if let Some(sender) = sender.take() {
                    return Outcome::Suspend(Box::new(move |waker| sender.send(waker).unwrap()));
                }
                *cells[cell].write(access) += 1;
                Outcome::Done
            };
            match number % 3 {
                0 => world.scheduler.send_direct(affinity, Box::new(message)),
                _ => world.scheduler.send(affinity, Box::new(message)),
            }
        }
        drop(sender);
        world.scheduler.shutdown();
    });
    assert!(world.scheduler.is_idle());
    let total = world
        .scheduler
        .exclusive(|access| cells.iter().map(|cell| *cell.read(access)).sum::<u64>());
    assert_eq!(total, MESSAGES);
}

#[test]
fn a_held_turn_keeps_its_affinity_until_it_ends() {
    let world = world();
    world.scheduler.send(world.logical, world.step("first"));
    world.scheduler.send(world.logical, world.step("second"));
    world.scheduler.send(world.stripes[0], world.step("beneath"));
    let turn = world.scheduler.hold_one(&mut |_| 0).unwrap();
    assert_eq!(turn.affinity(), world.logical);
    assert_eq!(world.trail(), ["first"]);
    assert!(world.scheduler.hold_one(&mut |_| 0).is_none(), "all else is shut out");
    turn.end();
    world.scheduler.run_until_idle();
    assert_eq!(world.trail(), ["beneath", "second"]);
}

/// Keeps the parcels that it is given.
#[derive(Default)]
struct Keeps(Lock<Vec<Parcel>>);

impl Carrier for Keeps {
    fn carry(&self, parcel: Parcel) {
        self.0.lock().push(parcel);
    }
}

#[test]
fn a_carrier_decides_when_messages_arrive() {
    let world = world();
    let keeps = Arc::new(Keeps::default());
    world.scheduler.carry_with(Arc::clone(&keeps) as _);
    let (message, wakers) = world.waiter("woken");
    world.scheduler.send(world.logical, message);
    world.scheduler.send_direct(world.volume, world.step("direct"));
    assert!(world.scheduler.try_send(world.stripes[0], world.step("tried")).is_ok());
    assert_eq!(world.scheduler.run_until_idle(), 0);
    keeps.0.lock().drain(..).for_each(Parcel::arrive);
    assert_eq!(world.scheduler.run_until_idle(), 3);
    wakers.recv().unwrap().wake();
    assert_eq!(world.scheduler.run_until_idle(), 0);
    assert!(!world.scheduler.is_idle(), "it is suspended until it arrives");
    keeps.0.lock().drain(..).for_each(Parcel::arrive);
    assert_eq!(world.scheduler.run_until_idle(), 1);
    assert_eq!(world.trail(), ["direct", "tried", "woken"]);
}

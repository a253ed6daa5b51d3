//! Models of the hand-over between threads, every interleaving of them (loom).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p affinity --release loom`. Cells report an access
//! that is not ordered after the last conflicting one; a worker that sleeps for ever shows as a
//! deadlock.

use crate::{Access, AffinityId, AffinityKind, Message, Outcome, Partition, Scheduler, Waker};
use loom::thread;
use platform::Clock;
use std::sync::Arc;
use units::Timestamp;

struct Still;

impl Clock for Still {
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }
    fn monotonic_nanoseconds(&self) -> u64 {
        0
    }
}

struct World {
    scheduler: Scheduler,
    aggregate: AffinityId,
    volumes: [AffinityId; 2],
}

fn world() -> World {
    let scheduler = Scheduler::new(Arc::new(Still));
    let aggregate = scheduler.add(scheduler.root(), AffinityKind::Aggregate);
    let volumes = [(); 2].map(|()| scheduler.add(aggregate, AffinityKind::Volume));
    World { scheduler, aggregate, volumes }
}

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // Bugs of this kind show with few preemptions; all of them would take hours.
    builder.preemption_bound = Some(3);
    builder.check(body);
}

fn add(cell: &Arc<Partition<u32>>) -> Box<dyn Message> {
    let cell = Arc::clone(cell);
    Box::new(move |access: &mut Access<'_>| {
        *cell.write(access) += 1;
        Outcome::Done
    })
}

#[test]
fn loom_a_cell_is_handed_over_between_direct_senders() {
    model(|| {
        let world = world();
        let cell = Arc::new(Partition::new(world.volumes[0], 0));
        let (scheduler, message) = (world.scheduler.clone(), add(&cell));
        let aggregate = world.aggregate;
        let other = thread::spawn(move || scheduler.send_direct(aggregate, message));
        world.scheduler.send_direct(world.volumes[0], add(&cell));
        world.scheduler.run_until_idle();
        assert!(other.join().is_ok());
        world.scheduler.run_until_idle();
        world.scheduler.exclusive(|access| assert_eq!(*cell.read(access), 2));
    });
}

#[test]
fn loom_siblings_read_their_parent_while_it_is_not_written() {
    model(|| {
        let world = world();
        let cell = Arc::new(Partition::new(world.aggregate, 0));
        let read = |cell: &Arc<Partition<u32>>| {
            let cell = Arc::clone(cell);
            Box::new(move |access: &mut Access<'_>| {
                assert!(*cell.read(access) <= 1);
                Outcome::Done
            })
        };
        world.scheduler.send(world.aggregate, add(&cell));
        let (scheduler, message, volume) = (world.scheduler.clone(), read(&cell), world.volumes[1]);
        let other = thread::spawn(move || {
            scheduler.send_direct(volume, message);
            scheduler.run_one(&mut |_| 0);
        });
        world.scheduler.send_direct(world.volumes[0], read(&cell));
        world.scheduler.run_until_idle();
        assert!(other.join().is_ok());
        world.scheduler.run_until_idle();
        world.scheduler.exclusive(|access| assert_eq!(*cell.read(access), 1));
    });
}

#[test]
fn loom_a_worker_sleeps_wakes_and_returns() {
    model(|| {
        let world = world();
        let cell = Arc::new(Partition::new(world.volumes[0], 0));
        let scheduler = world.scheduler.clone();
        let worker = thread::spawn(move || scheduler.worker_loop());
        world.scheduler.send(world.volumes[0], add(&cell));
        world.scheduler.send_direct(world.aggregate, add(&cell));
        world.scheduler.shutdown();
        assert!(worker.join().is_ok());
        world.scheduler.exclusive(|access| assert_eq!(*cell.read(access), 2));
    });
}

#[test]
fn loom_a_suspended_message_is_woken_by_another_thread() {
    model(|| {
        let world = world();
        let cell = Arc::new(Partition::new(world.volumes[0], 0));
        let inside = Arc::clone(&cell);
        let mut suspended = false;
        let message = move |access: &mut Access<'_>| {
            if !std::mem::replace(&mut suspended, true) {
                return Outcome::Suspend(Box::new(|waker: Waker| {
                    thread::spawn(move || waker.wake());
                }));
            }
            *inside.write(access) += 1;
            Outcome::Done
        };
        world.scheduler.send(world.volumes[0], Box::new(message));
        world.scheduler.shutdown();
        // Returns only when the message was woken and done.
        world.scheduler.worker_loop();
        assert!(world.scheduler.is_idle());
        world.scheduler.exclusive(|access| assert_eq!(*cell.read(access), 1));
    });
}

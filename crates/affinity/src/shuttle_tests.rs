//! Direct runs, workers, reroutes and suspended messages at the same time, in thousands of
//! interleavings (shuttle): loom's models (`loom_tests`) are smaller and exhaustive.
//!
//! Run with `cargo xtask shuttle`. A message that is
//! lost shows as a deadlock or as a count, one that runs beside another that it excludes at once.

use crate::{Access, AffinityId, AffinityKind, Message, Outcome, Partition, Scheduler, Waker};
use platform::Clock;
use platform::sync::atomic::{AtomicU32, Ordering};
use platform::sync::{Mutex, check_interleavings};
use shuttle::thread;
use std::sync::Arc;
use units::Timestamp;

const RUNS: usize = 20_000;

struct Still;

impl Clock for Still {
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }
    fn monotonic_nanoseconds(&self) -> u64 {
        0
    }
}

/// Who runs, and how many are done.
struct World {
    scheduler: Scheduler,
    logical: AffinityId,
    stripes: [AffinityId; 2],
    running: Mutex<Vec<AffinityId>>,
    done: AtomicU32,
    cell: Partition<u32>,
}

impl World {
    fn new() -> Arc<Self> {
        let scheduler = Scheduler::new(Arc::new(Still));
        let aggregate = scheduler.add(scheduler.root(), AffinityKind::Aggregate);
        let volume = scheduler.add(aggregate, AffinityKind::Volume);
        let logical = scheduler.add(volume, AffinityKind::VolumeLogical);
        let stripes = [(); 2].map(|()| scheduler.add(logical, AffinityKind::Stripe));
        let (running, done) = (Mutex::default(), AtomicU32::new(0));
        let cell = Partition::new(stripes[0], 0);
        Arc::new(Self { scheduler, logical, stripes, running, done, cell })
    }

    /// Is in the affinity for a while, during which no other may be that it excludes.
    fn be_in(&self, access: &mut Access<'_>) {
        let affinity = access.affinity();
        {
            let mut running = self.running.lock();
            let beside = running.iter().find(|other| other.excludes(affinity));
            assert!(beside.is_none(), "{affinity} runs beside {beside:?}");
            running.push(affinity);
        }
        thread::yield_now();
        if affinity.covers(self.cell.affinity()) {
            let cell = self.cell.write(access);
            let before = *cell;
            thread::yield_now();
            *cell = before + 1;
        }
        self.running.lock().retain(|other| *other != affinity);
    }

    fn message(self: &Arc<Self>) -> Box<dyn Message> {
        let world = Arc::clone(self);
        Box::new(move |access: &mut Access<'_>| {
            world.be_in(access);
            world.done.fetch_add(1, Ordering::SeqCst);
            Outcome::Done
        })
    }

    /// Begins in a stripe and finds that it needs all of them.
    fn rerouted(self: &Arc<Self>) -> Box<dyn Message> {
        let world = Arc::clone(self);
        Box::new(move |access: &mut Access<'_>| {
            if access.affinity() != world.logical {
                return Outcome::Reroute(world.logical);
            }
            world.be_in(access);
            world.done.fetch_add(1, Ordering::SeqCst);
            Outcome::Done
        })
    }

    /// Waits once, for another thread.
    fn suspended(self: &Arc<Self>) -> Box<dyn Message> {
        let (world, mut has_waited) = (Arc::clone(self), false);
        Box::new(move |access: &mut Access<'_>| {
            world.be_in(access);
            if !std::mem::replace(&mut has_waited, true) {
                return Outcome::Suspend(Box::new(|waker: Waker| {
                    thread::spawn(move || waker.wake());
                }));
            }
            world.done.fetch_add(1, Ordering::SeqCst);
            Outcome::Done
        })
    }
}

#[test]
fn shuttle_direct_runs_exclude_workers_and_one_another() {
    check_interleavings(RUNS, || {
        let world = World::new();
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let scheduler = world.scheduler.clone();
                thread::spawn(move || scheduler.worker_loop())
            })
            .collect();
        let senders: Vec<_> = (0..3)
            .map(|number| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let [first, second] = world.stripes;
                    let scheduler = &world.scheduler;
                    match number {
                        0 => {
                            scheduler.send_direct(first, world.message());
                            scheduler.send_direct(second, world.rerouted());
                        }
                        1 => {
                            scheduler.send_direct(world.logical, world.suspended());
                            scheduler.send(first, world.message());
                        }
                        _ => {
                            scheduler.send_direct(first, world.suspended());
                            scheduler.send_direct(second, world.message());
                        }
                    }
                })
            })
            .collect();
        senders.into_iter().for_each(|sender| assert!(sender.join().is_ok()));
        world.scheduler.shutdown();
        workers.into_iter().for_each(|worker| assert!(worker.join().is_ok()));
        assert!(world.scheduler.is_idle());
        assert_eq!(world.done.load(Ordering::SeqCst), 6, "a message is lost");
        // Two messages and two suspended ones, which open the cell twice, and one rerouted.
        world.scheduler.exclusive(|access| assert_eq!(*world.cell.read(access), 7));
    });
}

#[test]
fn shuttle_a_halt_ends_workers_whatever_runs() {
    check_interleavings(RUNS, || {
        let world = World::new();
        let scheduler = world.scheduler.clone();
        let worker = thread::spawn(move || scheduler.worker_loop());
        let same = Arc::clone(&world);
        let sender = thread::spawn(move || {
            same.scheduler.send_direct(same.stripes[0], same.suspended());
            same.scheduler.send(same.logical, same.message());
        });
        world.scheduler.halt();
        assert!(worker.join().is_ok() && sender.join().is_ok());
        world.scheduler.send_direct(world.stripes[0], world.message());
        assert!(world.running.lock().is_empty());
        assert!(world.done.load(Ordering::SeqCst) <= 2, "it ran after the halt");
    });
}

//! Several threads at one log, in thousands of interleavings (shuttle): records that are appended,
//! waited for, pushed and retired, and notes of stripes, while a disk completes what it was asked
//! on a thread of its own, until the power goes at any moment.
//!
//! Run with `cargo xtask shuttle`. What was told
//! durable before the cut must be found; whoever is never told shows as a deadlock.

use crate::{Found, Log, LogFull, LogIdentity, Record};
use ondisk::log::{LOG_HEADER_BLOCKS, LOG_NOTES_BLOCKS_MIN};
use platform::Disk;
use platform::simulated::SimulatedWorld;
use platform::sync::{Condvar, Mutex, check_interleavings};
use shuttle::thread::{self, JoinHandle};
use std::sync::Arc;
use units::{AggregateUuid, Block, CpNumber, LogUuid};

const RUNS: usize = 5000;
const IDENTITY: LogIdentity =
    LogIdentity { aggregate: AggregateUuid([1; 16]), log: LogUuid([2; 16]) };
/// Few, so that a half is full now and then.
const HALF_BLOCKS: u64 = 16;

/// A disk that a thread completes requests of.
struct Rig {
    world: SimulatedWorld,
    /// How often something was submitted, and whether the thread shall end.
    bell: Arc<(Mutex<(u64, bool)>, Condvar)>,
}

impl Rig {
    fn new() -> (Arc<Self>, Log) {
        let world = SimulatedWorld::new(1);
        world.add_disk("log", LOG_HEADER_BLOCKS + 2 * HALF_BLOCKS + LOG_NOTES_BLOCKS_MIN);
        let rig = Arc::new(Self { world, bell: Arc::default() });
        rig.world.wait(|done| Log::format(&rig.disk(), IDENTITY, done)).unwrap();
        let (log, _) = rig.open(0);
        let bell = Arc::clone(&rig.bell);
        rig.world.set_submit_hook(Some(Arc::new(move || {
            bell.0.lock().0 += 1;
            bell.1.notify_all();
        })));
        (rig, log)
    }

    fn disk(&self) -> Arc<dyn Disk> {
        self.world.disk("log").unwrap()
    }

    fn open(&self, committed: u64) -> (Log, Vec<Record>) {
        let committed = CpNumber(committed);
        self.world.wait(|done| Log::open(&self.disk(), IDENTITY, committed, done)).unwrap()
    }

    fn completer(self: &Arc<Self>) -> JoinHandle<()> {
        let rig = Arc::clone(self);
        thread::spawn(move || {
            let (state, changed) = &*rig.bell;
            loop {
                let (seen, is_over) = *state.lock();
                if is_over {
                    return;
                }
                while rig.world.step() {}
                let mut state = state.lock();
                while *state == (seen, false) {
                    changed.wait(&mut state);
                }
            }
        })
    }

    fn end(&self, completer: JoinHandle<()>) {
        self.bell.0.lock().1 = true;
        self.bell.1.notify_all();
        completer.join().unwrap();
        self.world.set_submit_hook(None);
    }
}

/// What was told durable: the record's consistency point or the note's epoch, and its body.
type Told = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

fn appender(log: &Log, told: &Told, number: u8) -> JoinHandle<()> {
    let (log, told) = (log.clone(), Arc::clone(told));
    thread::spawn(move || {
        for record in 0..3_u8 {
            let cp = log.active_cp();
            let body = [vec![number, record], vec![record; 12_000]].concat();
            match log.append(cp, 7, &[&body]) {
                Ok(position) => {
                    let told = Arc::clone(&told);
                    let done = move |outcome: Result<(), _>| {
                        outcome.unwrap();
                        told.lock().push((cp.get(), body));
                    };
                    log.when_durable(position, Box::new(done));
                }
                Err(full) => assert!(matches!(full, LogFull::Half { .. }), "{full}"),
            }
        }
    })
}

/// Consistency points: the half is switched, the image is durable, the half is retired.
fn committer(log: &Log, committed: &Arc<Mutex<u64>>) -> JoinHandle<()> {
    let (log, committed) = (log.clone(), Arc::clone(committed));
    thread::spawn(move || {
        for _ in 0..2 {
            let cp = log.active_cp();
            log.switch_half(cp.next()).unwrap();
            log.push();
            *committed.lock() = cp.get();
            log.retire(cp);
        }
    })
}

#[test]
fn shuttle_what_was_told_durable_is_found_after_a_cut_at_any_moment() {
    check_interleavings(RUNS, || {
        let (rig, log) = Rig::new();
        let (told, committed) = (Told::default(), Arc::new(Mutex::new(0)));
        let completer = rig.completer();
        let mut threads: Vec<_> = (0..3).map(|number| appender(&log, &told, number)).collect();
        threads.push(committer(&log, &committed));
        let told_before: Vec<_> = told.lock().clone();
        let committed_before = {
            // No image becomes durable between the look and the cut.
            let committed = committed.lock();
            rig.world.power_cut();
            *committed
        };
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        rig.end(completer);
        log.abandon();
        let (_, records) = rig.open(committed_before);
        check_found(&records, &told_before, committed_before);
    });
}

#[test]
fn shuttle_every_record_is_told_and_found_without_a_cut() {
    check_interleavings(RUNS, || {
        let (rig, log) = Rig::new();
        let (told, committed) = (Told::default(), Arc::new(Mutex::new(0)));
        let completer = rig.completer();
        let mut threads: Vec<_> = (0..2).map(|number| appender(&log, &told, number)).collect();
        threads.push(committer(&log, &committed));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        rig.end(completer);
        rig.world.run_until_idle();
        let told = told.lock().clone();
        let taken = log.last_position().map_or(0, |position| position.get());
        assert_eq!(told.len() as u64, taken, "somebody waits for ever");
        log.abandon();
        rig.world.power_cut();
        let committed = *committed.lock();
        check_found(&rig.open(committed).1, &told, committed);
    });
}

/// All that was told is there, but for what a consistency point holds; one thread's records are in
/// its order.
fn check_found(records: &[Record], told: &[(u64, Vec<u8>)], committed: u64) {
    let found: Vec<&[u8]> = records.iter().map(|record| record.body.as_slice()).collect();
    for (cp, body) in told {
        let is_needed = *cp > committed;
        assert!(!is_needed || found.contains(&body.as_slice()), "{:?} is lost", &body[..2]);
    }
    for number in 0..3 {
        let own = found.iter().filter(|body| body[0] == number).map(|body| body[1]);
        assert!(own.is_sorted_by(|a, b| a < b), "the order is not that of the appends");
    }
}

/// Room for notes, dealt out as `raid` does it: the room is taken under a lock, and the note given
/// to the log outside of it.
#[derive(Default)]
struct Room {
    epoch: u64,
    used_blocks: u64,
    /// Notes under way, of even epochs and of odd ones.
    open: [u64; 2],
    is_cut: bool,
}

#[test]
fn shuttle_notes_that_were_told_durable_are_found_whole() {
    check_interleavings(RUNS, || {
        let (rig, log) = Rig::new();
        let told = Told::default();
        let room: Arc<(Mutex<Room>, Condvar)> = Arc::default();
        let completer = rig.completer();
        let capacity_blocks = log.notes().capacity_blocks();
        let blocks = capacity_blocks / 2 - 1;
        let threads: Vec<_> = (0..3_u8)
            .map(|number| {
                let (log, told, room) = (log.clone(), Arc::clone(&told), Arc::clone(&room));
                thread::spawn(move || {
                    for note in 0..2_u8 {
                        let epoch = take_room(&room, 1 + blocks, capacity_blocks);
                        let Some(epoch) = epoch else { return };
                        let bytes = vec![number, note];
                        let block = Arc::new(Block::from_prefix(&[number, note, 9]));
                        let contents = vec![block; blocks as usize];
                        let (told, room, body) =
                            (Arc::clone(&told), Arc::clone(&room), bytes.clone());
                        let done = move |outcome: Result<(), _>| {
                            outcome.unwrap();
                            told.lock().push((epoch, body));
                            room.0.lock().open[(epoch % 2) as usize] -= 1;
                            room.1.notify_all();
                        };
                        let key = (epoch, CpNumber(1));
                        log.notes().append(key, bytes, contents, Box::new(done));
                    }
                })
            })
            .collect();
        let told_before: Vec<_> = told.lock().clone();
        let epoch_before = {
            // No epoch begins between the look and the cut.
            let mut room = room.0.lock();
            rig.world.power_cut();
            room.is_cut = true;
            room.epoch
        };
        room.1.notify_all();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        rig.end(completer);
        log.abandon();
        let found = rig.open(0).0.notes().take_found();
        let is_there = |body: &[u8]| {
            found.iter().any(|Found { bytes, blocks: own }| {
                let first: Vec<u8> = [body, &[9]].concat();
                let is_whole = own.iter().all(|block| block.bytes()[..3] == first[..]);
                bytes == body && own.len() as u64 == blocks && is_whole
            })
        };
        for (epoch, body) in told_before {
            assert!(epoch + 1 < epoch_before || is_there(&body), "note {body:?} is lost");
        }
    });
}

/// The epoch of a note of so many blocks; `None` after the cut.
fn take_room(room: &(Mutex<Room>, Condvar), blocks: u64, capacity_blocks: u64) -> Option<u64> {
    let mut state = room.0.lock();
    loop {
        if state.is_cut {
            return None;
        }
        if state.used_blocks + blocks <= capacity_blocks {
            break;
        }
        // The notes of the epoch before the one that ends are not needed any more.
        if state.open[((state.epoch + 1) % 2) as usize] == 0 {
            (state.epoch, state.used_blocks) = (state.epoch + 1, 0);
            break;
        }
        room.1.wait(&mut state);
    }
    state.used_blocks += blocks;
    let epoch = state.epoch;
    state.open[(epoch % 2) as usize] += 1;
    Some(epoch)
}

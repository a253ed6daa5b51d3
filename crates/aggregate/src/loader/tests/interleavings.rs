//! Several messages that wait for the same blocks at the same time, in thousands of interleavings
//! (shuttle), beside commits that free places and a cache that keeps next to nothing.
//!
//! Run with `cargo xtask shuttle`. Each waits once
//! for each load and gets every block; whoever is forgotten shows as a deadlock; a block is not
//! read twice at one time.

use super::*;
use platform::sync::{Condvar, check_interleavings};
use shuttle::thread;

const RUNS: usize = 5000;
const BLOCKS: u64 = 3;

/// How often something was submitted, and whether the completing thread shall end.
type Bell = Arc<(Mutex<(u64, bool)>, Condvar)>;

fn completer(rig: &Arc<Rig>, bell: &Bell) -> thread::JoinHandle<()> {
    let ring = Arc::clone(bell);
    rig.world.set_submit_hook(Some(Arc::new(move || {
        ring.0.lock().0 += 1;
        ring.1.notify_all();
    })));
    let (rig, bell) = (Arc::clone(rig), Arc::clone(bell));
    thread::spawn(move || {
        loop {
            let (seen, is_over) = *bell.0.lock();
            if is_over {
                return;
            }
            let pending = rig.world.pending();
            let places: Vec<u64> = pending.iter().flat_map(|io| io.block..io.block + 1).collect();
            let distinct: std::collections::BTreeSet<_> = places.iter().collect();
            assert_eq!(places.len(), distinct.len(), "a block is read twice at one time");
            while rig.world.step() {}
            let mut state = bell.0.lock();
            while *state == (seen, false) {
                bell.1.wait(&mut state);
            }
        }
    })
}

#[test]
fn shuttle_who_waits_for_a_block_gets_it_whoever_reads_it() {
    check_interleavings(RUNS, || {
        let rig = Arc::new(Rig::new(1));
        let contents: Vec<BlockRef> = (0..BLOCKS).map(content).collect();
        for (at, content) in (0..).zip(&contents) {
            rig.write(100 + 10 * at, content);
            rig.maps.0.lock().insert(Vvbn(at), Pvbn(100 + 10 * at));
        }
        let bell = Bell::default();
        let completer = completer(&rig, &bell);
        let mut threads: Vec<_> = (0..3)
            .map(|number| {
                let (rig, contents) = (Arc::clone(&rig), contents.clone());
                thread::spawn(move || {
                    // Each wants two of three; all of them have one in common with each other.
                    let wanted = (0..BLOCKS)
                        .filter(|at| *at != number)
                        .map(|at| pointer(100 + 10 * at, at, &contents[at as usize]));
                    let wanted: Vec<LoadRequest> = wanted.collect();
                    let held = wait(&rig, &wanted);
                    for request in &wanted {
                        let at = (request.pvbn.get() - 100) / 10;
                        let found = seen(&rig, &held, request);
                        assert_eq!(found, Ok(Some(Arc::clone(&contents[at as usize]))));
                    }
                })
            })
            .collect();
        let same = Arc::clone(&rig);
        // A commit that frees one of the places, whose block nobody has written over yet.
        threads.push(thread::spawn(move || {
            same.loader.under_way.note_freed(&[Pvbn(110)]);
            same.loader.cache.remove(Pvbn(110));
        }));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        bell.0.lock().1 = true;
        bell.1.notify_all();
        completer.join().unwrap();
        rig.world.set_submit_hook(None);
        assert_eq!(rig.loader.under_way.places(), [], "a load is left");
        assert_eq!(rig.loader.lost_blocks.load(Ordering::Relaxed), 0);
    });
}

/// Loads on a thread of its own. Being told twice, or by two loads, would show.
fn wait(rig: &Rig, wanted: &[LoadRequest]) -> HeldBlocks {
    let held = HeldBlocks::default();
    let told = Arc::new((Mutex::new(0), Condvar::new()));
    let teller = Arc::clone(&told);
    let done = move || {
        *teller.0.lock() += 1;
        teller.1.notify_all();
    };
    rig.loader.load(wanted.to_vec(), held.clone(), Box::new(done));
    let mut count = told.0.lock();
    while *count == 0 {
        told.1.wait(&mut count);
    }
    assert_eq!(*count, 1);
    held
}

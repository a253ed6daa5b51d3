//! Random batches, with every order of completions the seed thinks of.

use super::model::*;
use crate::*;
use ondisk::label::RaidKind::{self, Dp, None as Unprotected, Raid4, Tp};
use platform::sync::Mutex;
use std::sync::Arc;
use units::{Dbn, Pvbn};

/// A PVBN in the first regions, so that batches meet.
fn some_pvbn(model: &Model) -> Pvbn {
    let geometry = model.store.geometry();
    let group = model.choose(geometry.groups().len() as u64) as u32;
    let disk = model.choose(geometry.group(group).data_disks() as u64) as usize;
    let location = Location { group, disk, stripe: Dbn(model.choose(63 * 3)) };
    geometry.pvbn(location).filter(|pvbn| *pvbn != Pvbn(0)).unwrap_or(Pvbn(1))
}

fn run(seed: u64, groups: &[(RaidKind, usize)], garbage: bool) {
    let mut model = Model::with_garbage(seed, groups, garbage);
    let failures = Arc::new(Mutex::new(0));
    for _ in 0..120 {
        match model.choose(10) {
            0..4 => {
                for _ in 0..model.choose(6) {
                    let pvbn = some_pvbn(&model);
                    model.write(pvbn);
                }
            }
            4 => {
                // A whole tetris, announced, in random parts.
                let tetris = model.store.geometry().tetris_of(some_pvbn(&model)).unwrap();
                let group = model.store.geometry().group(tetris.group).clone();
                let pvbns: Vec<Pvbn> = (0..group.data_disks())
                    .flat_map(|disk| (0..63).map(move |row| (disk, row)))
                    .map(|(disk, row)| group.bases[disk].offset(tetris.region * 63 + row))
                    .filter(|pvbn| *pvbn != Pvbn(0) && model.choose(50) > 0)
                    .collect();
                model.store.open_tetris(tetris, pvbns.len() as u32);
                pvbns.into_iter().for_each(|pvbn| model.write(pvbn));
            }
            5 => model.store.sync(Box::new(|result| assert_eq!(result, Ok(())))),
            6 => {
                // A read while writes are under way sees the latest.
                let known = model.blocks.len() as u64;
                if known > 0 {
                    let (pvbn, block) =
                        model.blocks.iter().nth(model.choose(known) as usize).unwrap();
                    let (pvbn, block) = (*pvbn, Arc::clone(block));
                    let proof = proof_of(pvbn, &block, model.choose(2) == 0);
                    let failures = Arc::clone(&failures);
                    let queued = Arc::clone(&block);
                    // A later write may overtake the read; then the proof fails or the new
                    // content comes: finish it first.
                    let done = Box::new(move |found: Result<_, _>| {
                        *failures.lock() += u32::from(found != Ok(queued));
                    });
                    model.store.read(BlockRead { pvbn, proof }, done);
                    model.world.run_until_idle();
                }
            }
            7 => {
                let (first, count) = (some_pvbn(&model), 1 + model.choose(80));
                let known: Vec<_> = (first.get()..first.get() + count)
                    .map_while(|number| model.blocks.get_key_value(&Pvbn(number)))
                    .collect();
                let from = model.store.geometry().locate(first).unwrap();
                let on_disk = known.iter().take_while(|(pvbn, _)| {
                    let to = model.store.geometry().locate(**pvbn);
                    to.is_some_and(|to| to.disk == from.disk && to.group == from.group)
                });
                let known: Vec<_> = on_disk.copied().collect();
                let wanted: Vec<bool> = known.iter().map(|_| model.choose(4) > 0).collect();
                let proofs = known.iter().zip(&wanted).map(|((pvbn, block), is_wanted)| {
                    is_wanted.then(|| proof_of(**pvbn, block, model.choose(2) == 0))
                });
                let proofs = proofs.collect();
                let found =
                    model.world.wait(|done| model.store.read_run(first, proofs, done)).unwrap();
                let expected = known.iter().zip(&wanted).filter(|(_, is_wanted)| **is_wanted);
                assert!(found.iter().eq(expected.map(|((_, block), _)| *block)));
            }
            _ => {
                for _ in 0..model.choose(20) {
                    model.world.step();
                }
            }
        }
    }
    assert_eq!(*failures.lock(), 0);
    assert_eq!(model.sync(), Ok(()));
    model.check_parity();
    model.check();
    let counters = model.store.status().counters;
    assert_eq!((counters.repaired_blocks, counters.damaged_blocks), (0, 0));
    model.world.power_cut();
    model.reassemble().unwrap();
    model.check();
    assert!(!model.store.status().is_degraded());
}

#[test]
fn batches_equal_the_map() {
    for seed in 0..12 {
        run(seed, &[(Raid4, 4)], false);
        run(seed, &[(Raid4, 2)], false);
        run(seed, &[(Unprotected, 1)], false);
        run(seed, &[(Unprotected, 2), (Raid4, 3), (Raid4, 6)], false);
        run(seed, &[(Dp, 3), (Tp, 7)], false);
        run(seed, &[(Tp, 4)], false);
    }
}

#[test]
fn disks_need_no_zeroing() {
    for seed in 0..6 {
        run(seed, &[(Raid4, 4)], true);
        run(seed, &[(Dp, 5)], true);
        run(seed, &[(Tp, 6)], true);
        run(seed, &[(Unprotected, 2)], true);
    }
}

#[test]
fn a_full_tetris_is_one_request_to_each_disk() {
    let mut model = Model::new(1, &[(Raid4, 4)]);
    let tetris = TetrisId { group: 0, region: 1 };
    model.store.open_tetris(tetris, 63 * 3);
    let per_disk = model.store.geometry().group(0).blocks_per_disk();
    for disk in 0..3 {
        for row in 0..63 {
            model.write(Pvbn(disk * per_disk + 63 + row));
        }
    }
    let pending = model.world.pending();
    assert_eq!(pending.len(), 4, "no reads, and it went with the last block: {pending:?}");
    assert!(pending.iter().all(|request| request.count == 64));
    assert_eq!(model.sync(), Ok(()));
    assert!(model.notes.lock().is_empty(), "full stripes need no note");
    model.check_parity();
    // A content proof of a cold block costs one request, a run costs one.
    model.reassemble().unwrap();
    let pvbn = Pvbn(63 + 5);
    let proof = proof_of(pvbn, &model.blocks[&pvbn], true);
    model.store.read(BlockRead { pvbn, proof }, Box::new(|found| assert!(found.is_ok())));
    assert_eq!(model.world.pending_count(), 1);
    model.world.run_until_idle();
    let proof = |n: u64| proof_of(Pvbn(68 + n), &model.blocks[&Pvbn(68 + n)], false);
    let proofs = (0..40).map(|n| Some(proof(n)));
    let done = Box::new(|found: Result<Vec<_>, _>| assert_eq!(found.unwrap().len(), 40));
    model.store.read_run(Pvbn(68), proofs.collect(), done);
    assert_eq!(model.world.pending_count(), 1);
    model.world.run_until_idle();
}

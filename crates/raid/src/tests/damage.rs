//! Every kind of damage to one disk is seen, made good, and written back; and disks that fail.

use super::model::*;
use crate::*;
use ondisk::identity::crc32c;
use ondisk::label::RaidKind::{self, Dp, None as Unprotected, Raid4, Tp};
use units::{Block, Pvbn};

type Harm = fn(&mut Model, Pvbn);

/// The kinds, with three data disks each.
const KINDS: [(RaidKind, usize); 3] = [(Raid4, 4), (Dp, 5), (Tp, 6)];

fn filled(seed: u64, kind: (RaidKind, usize)) -> Model {
    let mut model = Model::with_blocks(seed, kind);
    // Nothing cached: what the disks hold is what is read.
    model.reassemble().unwrap();
    model
}

fn flip(model: &Model, (disk, block): (String, u64)) {
    model.world.flip_bit(&disk, block, model.choose(32768) as usize);
}

/// Damages the identity of a block.
fn flip_identity(model: &Model, pvbn: Pvbn) {
    let row = model.store.geometry().locate(pvbn).unwrap().row();
    let (disk, block) = model.checksum_place(pvbn);
    model.world.flip_bit(&disk, block, row * 512 + model.choose(512) as usize);
}

const HARMS: [(&str, Harm); 9] = [
    ("identity flipped", |model, pvbn| flip_identity(model, pvbn)),
    ("bit flip", |model, pvbn| flip(model, model.place(pvbn))),
    ("latent error", |model, pvbn| {
        let (disk, block) = model.place(pvbn);
        model.world.fail_block(&disk, block);
    }),
    ("latent error in the checksum block", |model, pvbn| {
        let (disk, block) = model.checksum_place(pvbn);
        model.world.fail_block(&disk, block);
    }),
    ("checksum block of zeros", |model, pvbn| {
        let (disk, block) = model.checksum_place(pvbn);
        model.world.write_block(&disk, block, &Block::zeroed());
    }),
    ("block and checksum block flipped", |model, pvbn| {
        flip(model, model.place(pvbn));
        flip_identity(model, pvbn);
    }),
    ("lost write", |model, pvbn| {
        let (disk, block) = model.place(pvbn);
        model.world.lose_next_write(&disk, block);
        model.write(pvbn);
        assert_eq!(model.sync(), Ok(()));
    }),
    ("lost write of the checksum block", |model, pvbn| {
        let (disk, block) = model.checksum_place(pvbn);
        model.world.lose_next_write(&disk, block);
        model.write(pvbn);
        assert_eq!(model.sync(), Ok(()));
        model.reassemble().unwrap();
    }),
    ("misdirected write", |model, pvbn| {
        let (disk, block) = model.place(pvbn);
        let (_, victim) = model.place(Pvbn(pvbn.get() + 1));
        model.world.misdirect_next_write(&disk, block, victim);
        model.write(pvbn);
        assert_eq!(model.sync(), Ok(()));
    }),
];

#[test]
fn damage_is_repaired_where_it_is_read() {
    for (name, harm) in HARMS {
        for by_content in [true, false] {
            for seed in 0..9 {
                let mut model = filled(seed, KINDS[seed as usize % KINDS.len()]);
                let pvbn = Pvbn(1 + model.choose(38));
                harm(&mut model, pvbn);
                for number in 1..40 {
                    let found = model.read(Pvbn(number), by_content);
                    let expected = Ok(model.blocks[&Pvbn(number)].clone());
                    assert!(found == expected, "{name} {number} {found:?}");
                }
                let counters = model.store.status().counters;
                assert_eq!(counters.damaged_blocks, 0, "{name}");
                // A content proof may hold where only the identity is wrong.
                assert!(by_content || counters.repaired_blocks > 0, "{name}");
                // What was repaired is on the disk: nothing more to repair.
                model.check();
                model.reassemble().unwrap();
                model.check();
                assert!(!by_content || model.sync() == Ok(()));
                model.reassemble().unwrap();
                model.check();
                assert_eq!(model.store.status().counters.repaired_blocks, 0, "{name}");
                model.check_parity();
            }
        }
    }
}

#[test]
fn partial_writes_do_not_fold_damage_into_parity() {
    for (name, harm) in HARMS {
        for seed in 0..12 {
            let mut model = filled(seed, KINDS[seed as usize % KINDS.len()]);
            let pvbn = Pvbn(3 * (1 + model.choose(12)));
            harm(&mut model, pvbn);
            // Some stripe is written, the same or one beside it, before the damage was read.
            let per_disk = model.store.geometry().group(0).blocks_per_disk();
            model.write(Pvbn(2 * per_disk + pvbn.get() + model.choose(3)));
            assert_eq!(model.sync(), Ok(()));
            model.check();
            assert_eq!(model.store.status().counters.damaged_blocks, 0, "{name}");
            model.check_parity();
        }
    }
}

/// Disks are away, and what they hold follows from the others, of which one is harmed: the harm is
/// taken out before their identities are written, and parity is.
#[test]
fn partial_writes_to_degraded_groups_do_not_fold_damage_into_parity() {
    for (kind, disks) in [(Dp, 5), (Tp, 6)] {
        let lost = disk_sets(disks, kind.parity_disks() - 1).into_iter();
        // The first data disk is harmed.
        let lost = lost.filter(|lost| !lost.contains(&kind.parity_disks()));
        for (seed, lost) in (0..).zip(lost) {
            for (name, harm) in HARMS {
                let mut model = filled(seed, (kind, disks));
                let pvbn = Pvbn(3 * (1 + model.choose(12)));
                harm(&mut model, pvbn);
                lost.iter().for_each(|disk| model.world.set_gone(&disk_name(0, *disk), true));
                model.reassemble().unwrap();
                let per_disk = model.store.geometry().group(0).blocks_per_disk();
                // In the same region, and another row: nothing of the harmed one is read for it.
                model.write(Pvbn(per_disk + pvbn.get() + 1));
                model.write(Pvbn(2 * per_disk + pvbn.get() + 1));
                assert_eq!(model.sync(), Ok(()));
                let status = model.store.status();
                assert_eq!(status.counters.damaged_blocks, 0, "{name}, {kind:?} without {lost:?}");
                for (pvbn, block) in &model.blocks {
                    let found = model.read(*pvbn, false);
                    let is_whole = found.as_ref() == Ok(block);
                    assert!(is_whole, "{pvbn}, {name}, {kind:?} without {lost:?}: {found:?}");
                }
                model.check();
            }
        }
    }
}

#[test]
fn damage_beyond_parity_is_named() {
    let model = filled(1, (Raid4, 4));
    let per_disk = model.store.geometry().group(0).blocks_per_disk();
    let pvbn = Pvbn(9);
    flip(&model, model.place(pvbn));
    flip(&model, model.place(Pvbn(per_disk + 9)));
    for by_content in [true, false] {
        let failure = model.read(pvbn, by_content).unwrap_err();
        let text = failure.to_string();
        assert!(text.starts_with("pvbn:9 on disk g0d1 is damaged beyond repair"), "{text}");
    }
    assert_eq!(model.store.status().counters.damaged_blocks, 2);
    let beyond = model.store.geometry().end();
    let read = BlockRead { pvbn: beyond, proof: Proof::Content(Box::new(|_| true)) };
    let found = model.world.wait(|done| model.store.read(read, done));
    assert_eq!(found, Err(ReadFailure::OutOfRange { pvbn: beyond }));
}

#[test]
fn unprotected_damage_is_seen() {
    let mut model = Model::new(1, &[(Unprotected, 2)]);
    (1..20).for_each(|number| model.write(Pvbn(number)));
    assert_eq!(model.sync(), Ok(()));
    model.check();
    flip(&model, model.place(Pvbn(7)));
    assert!(matches!(model.read(Pvbn(7), true), Err(ReadFailure::Damaged { .. })));
    assert!(matches!(model.read(Pvbn(7), false), Err(ReadFailure::Damaged { .. })));
    // The wrong block, though whole.
    let check = (crc32c(&model.blocks[&Pvbn(8)]) & 0xffff) as u16;
    let proof = Proof::Identity { owner: owner_of(Pvbn(9)), check };
    let found = model.world.wait(|done| {
        model.store.read(BlockRead { pvbn: Pvbn(8), proof }, done);
    });
    assert!(matches!(found, Err(ReadFailure::Damaged { .. })));
    model.world.set_gone("g0d1", true);
    model.write(model.store.geometry().group(0).bases[0].offset(63 * 63 + 1));
    let failure = model.sync().unwrap_err();
    assert!(matches!(failure, StoreError::GroupFailed { group: 0, .. }));
    assert_eq!(model.sync(), Err(failure), "for good");
}

/// As many disks as there are parity disks are harmed in one row, each in another way.
#[test]
fn damage_to_several_disks_is_repaired() {
    for kind in [(Dp, 5), (Tp, 6)] {
        let harmed_count = kind.0.parity_disks() as u64;
        for seed in 0..40 {
            let mut model = filled(seed, kind);
            let per_disk = model.store.geometry().group(0).blocks_per_disk();
            let row = 3 * (1 + model.choose(12));
            for disk in 0..harmed_count {
                let (name, harm) = HARMS[model.choose(HARMS.len() as u64) as usize];
                // Writes to a stripe that is damaged already would be another test.
                if name.contains("write") {
                    continue;
                }
                let pvbn = Pvbn(disk * per_disk + row);
                if model.blocks.contains_key(&pvbn) {
                    harm(&mut model, pvbn);
                }
            }
            model.check();
            assert_eq!(model.store.status().counters.damaged_blocks, 0);
            model.reassemble().unwrap();
            model.check();
            assert_eq!(model.sync(), Ok(()));
            model.check_parity();
        }
    }
}

/// All sets of a group's disks with one to `count_max` of them.
fn disk_sets(disks: usize, count_max: usize) -> Vec<Vec<usize>> {
    let sets = 1_u32..1 << disks;
    let sets = sets.filter(|set| set.count_ones() as usize <= count_max);
    sets.map(|set| (0..disks).filter(|disk| set >> disk & 1 == 1).collect()).collect()
}

#[test]
fn lost_disks_are_no_loss() {
    for (kind, disks) in KINDS {
        for (seed, lost) in (0..).zip(disk_sets(disks, kind.parity_disks())) {
            let mut model = filled(seed, (kind, disks));
            let per_disk = model.store.geometry().group(0).blocks_per_disk();
            for disk in &lost {
                model.world.set_gone(&disk_name(0, *disk), true);
                model.check();
                // Degraded writes, over old and new places, whole and in part.
                for _ in 0..60 {
                    let stripe = 1 + model.choose(120);
                    let disk = model.choose(3);
                    model.write(Pvbn(disk * per_disk + stripe));
                }
                let region = 3 * 63;
                (0..3 * 63).for_each(|n| model.write(Pvbn(n / 63 * per_disk + region + n % 63)));
                assert_eq!(model.sync(), Ok(()));
                model.check();
            }
            let status = model.store.status();
            assert!(status.is_degraded());
            assert_eq!(status.counters.damaged_blocks, 0);
            // The disks come back with old content, and are not believed.
            lost.iter().for_each(|disk| model.world.set_gone(&disk_name(0, *disk), false));
            model.reassemble().unwrap();
            for disk in &lost {
                let state = model.store.status().groups[0].members[*disk].state.clone();
                assert_eq!(state, MemberState::Missing);
            }
            model.check();
            if lost.len() == kind.parity_disks() {
                // One more is too many.
                let one_more = (0..disks).find(|disk| !lost.contains(disk)).unwrap();
                model.world.set_gone(&disk_name(0, one_more), true);
                let refused = model.reassemble().unwrap_err().to_string();
                let expected = format!("group 0 is short of {} of its {disks}", lost.len() + 1);
                assert!(refused.starts_with(&expected), "{refused}");
            }
        }
    }
}

#[test]
fn disks_that_fail_in_the_middle_of_a_write_are_given_up() {
    for seed in 0..60 {
        let (kind, disks) = KINDS[seed as usize % KINDS.len()];
        let mut model = filled(seed, (kind, disks));
        let per_disk = model.store.geometry().group(0).blocks_per_disk();
        for number in 1..60 {
            model.write(Pvbn(model.choose(3) * per_disk + number));
        }
        model.store.sync(Box::new(|result| assert_eq!(result, Ok(()))));
        let first = model.choose(disks as u64) as usize;
        let lost: Vec<usize> = (0..kind.parity_disks()).map(|at| (first + at) % disks).collect();
        for disk in &lost {
            for _ in 0..model.choose(12) {
                model.world.step();
            }
            model.world.set_gone(&disk_name(0, *disk), true);
        }
        model.world.run_until_idle();
        assert_eq!(model.sync(), Ok(()));
        model.check();
        model.world.power_cut();
        for disk in &lost {
            model.world.set_gone(&disk_name(0, *disk), model.choose(2) == 0);
        }
        model.reassemble().unwrap();
        model.check();
    }
}

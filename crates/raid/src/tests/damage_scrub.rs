//! Every kind of damage, everywhere, is found by a scrub that no client helps, and repaired: after
//! it every block of every disk is what it was before the damage.

use super::model::*;
use crate::*;
use ondisk::identity::BlockOwner;
use ondisk::label::RaidKind::{self, Dp, None as Unprotected, Raid4, Tp};
use ondisk::scrub::ScrubPhase;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{BLOCK_SIZE, Block, BlockRef, CpNumber, Pvbn, Timestamp};

/// The kinds, with three data disks each.
const KINDS: [(RaidKind, usize); 3] = [(Raid4, 4), (Dp, 5), (Tp, 6)];
/// The block that is written a second time, and the next in its row, which never is.
const VICTIM: Pvbn = Pvbn(9);
const CHECKSUMS: usize = 63;

type Disks = BTreeMap<(String, u64), BlockRef>;

/// What a block becomes, of what it was before the last write, what it is, and another; `None` is
/// unreadable.
type Harm = fn(&Block, &Block, &Block) -> Option<Block>;

const HARMS: [(&str, Harm); 7] = [
    ("bit rot", |_, new, _| {
        let mut block = new.clone();
        block[1000] ^= 4;
        Some(block)
    }),
    ("torn write", |old, new, _| {
        let mut block = old.clone();
        block[..BLOCK_SIZE / 2].copy_from_slice(&new[..BLOCK_SIZE / 2]);
        Some(block)
    }),
    ("torn write, the other half", |old, new, _| {
        let mut block = new.clone();
        block[..BLOCK_SIZE / 2].copy_from_slice(&old[..BLOCK_SIZE / 2]);
        Some(block)
    }),
    ("lost write", |old, _, _| Some(old.clone())),
    ("misdirected write", |_, _, other| Some(other.clone())),
    ("block of zeros", |_, _, _| Some(Block::zeroed())),
    ("unreadable", |_, _, _| None),
];

/// The data area of all disks: labels change.
fn image(model: &Model) -> Disks {
    let mut disks = Disks::new();
    for disk in 0..model.store.geometry().group(0).disks() {
        let name = disk_name(0, disk);
        for block in media::DATA_START..media::DATA_START + 4 * 64 {
            let content = model.world.read_block(&name, block).unwrap();
            disks.insert((name.clone(), block), content);
        }
    }
    disks
}

/// The places where two images differ.
fn differences(one: &Disks, other: &Disks) -> Vec<(String, u64)> {
    let pairs = one.iter().filter(|(place, block)| other[*place] != **block);
    pairs.map(|(place, _)| place.clone()).collect()
}

fn write_again(model: &mut Model, pvbn: Pvbn, cp: u64) {
    let block = model.content();
    model.blocks.insert(pvbn, Arc::clone(&block));
    let owner = BlockOwner { cp: CpNumber(cp), ..owner_of(pvbn) };
    model.store.write(BlockWrite::new(pvbn, block, owner));
}

/// A group with some blocks, of which one was written a second time; before that and after it.
fn filled(seed: u64, kind: (RaidKind, usize)) -> (Model, Disks, Disks) {
    let mut model = Model::with_blocks(seed, kind);
    let before = image(&model);
    write_again(&mut model, VICTIM, 2);
    assert_eq!(model.sync(), Ok(()));
    model.reassemble().unwrap();
    let after = image(&model);
    (model, before, after)
}

/// A block of the first tetris.
fn place(model: &Model, member: usize, row: usize) -> (String, u64) {
    let tetris = TetrisId { group: 0, region: 0 };
    (disk_name(0, member), model.store.geometry().device_block(tetris, row))
}

fn put(model: &Model, (disk, block): &(String, u64), content: Option<Block>) {
    match content {
        Some(content) => model.world.write_block(disk, *block, &content),
        None => model.world.fail_block(disk, *block),
    }
}

fn order(model: &Model, order: ScrubOrder) -> Result<(), RaidError> {
    model.world.wait(|done| model.store.scrub(order, Timestamp(7), done))
}

/// A scrub from its beginning to its end.
fn scrub(model: &Model) -> ScrubStatus {
    assert_eq!(order(model, ScrubOrder::Start { rate: None }), Ok(()));
    let status = model.store.status().scrub;
    assert_eq!(status.phase, ScrubPhase::Finished);
    assert_eq!(status.done_tetrises, status.tetrises);
    status
}

/// The data disk with the victim, and all parity disks.
fn members((kind, _): (RaidKind, usize)) -> impl Iterator<Item = usize> {
    0..=kind.parity_disks()
}

#[test]
fn every_damage_everywhere_is_found_and_repaired() {
    for (seed, kind) in (0..).zip(KINDS) {
        let (mut model, before, after) = filled(seed, kind);
        let row = VICTIM.get() as usize;
        for member in members(kind) {
            for at in [row, CHECKSUMS] {
                for (name, harm) in HARMS {
                    let place = place(&model, member, at);
                    let other = &after[&(place.0.clone(), place.1 - 1)];
                    let harmed = harm(&before[&place], &after[&place], other);
                    if harmed.as_ref() == Some(&*after[&place]) {
                        // The torn half has nothing new.
                        continue;
                    }
                    put(&model, &place, harmed);
                    model.reassemble().unwrap();
                    let status = scrub(&model);
                    let what = format!("{name} in row {at} of disk {member} of {kind:?}");
                    assert_eq!(status.repaired(), 1, "{what}: {status:?}");
                    let is_data = member == kind.0.parity_disks();
                    let kinds = (status.repaired_data, status.repaired_checksums);
                    let expected =
                        (u64::from(is_data && at == row), u64::from(is_data && at != row));
                    assert_eq!(kinds, expected, "{what}");
                    assert_eq!(status.damaged, 0, "{what}");
                    assert_eq!(differences(&image(&model), &after), [], "{what}");
                }
            }
        }
        let status = scrub(&model);
        assert_eq!((status.repaired(), status.damaged), (0, 0), "{status:?}");
        assert_eq!(status.started, Timestamp(7));
        model.check();
    }
}

/// The same by reading, where a read sees it: in the block and in its identity.
#[test]
fn what_a_read_sees_it_repairs() {
    for (seed, kind) in (0..).zip(KINDS) {
        let (mut model, before, after) = filled(seed, kind);
        for by_content in [true, false] {
            for at in [VICTIM.get() as usize, CHECKSUMS] {
                for (name, harm) in HARMS {
                    let place = place(&model, kind.0.parity_disks(), at);
                    let other = &after[&(place.0.clone(), place.1 - 1)];
                    put(&model, &place, harm(&before[&place], &after[&place], other));
                    model.reassemble().unwrap();
                    let what = format!("{name} in row {at} of {kind:?}");
                    let found = model.read(VICTIM, by_content);
                    assert!(found.as_ref() == Ok(&model.blocks[&VICTIM]), "{what}");
                    if by_content && at == CHECKSUMS {
                        // The pointer proves the block; what else is wrong a scrub finds.
                        scrub(&model);
                    }
                    if at == VICTIM.get() as usize {
                        assert_eq!(model.store.status().counters.repaired_blocks, 1, "{what}");
                    }
                    // Rot may be in the identity of another block, too.
                    let left = scrub(&model).damaged;
                    assert_eq!((left, differences(&image(&model), &after)), (0, vec![]), "{what}");
                }
            }
        }
    }
}

/// A write that a disk acknowledged and lost, block and identity: the pair that was there before
/// proves itself. Two parity blocks tell who is right; one does not, and nothing is made to agree.
#[test]
fn a_lost_pair_is_repaired_where_parity_tells_and_never_made_good() {
    for (seed, kind) in (0..).zip(KINDS) {
        let (mut model, before, after) = filled(seed, kind);
        for member in members(kind) {
            for at in [VICTIM.get() as usize, CHECKSUMS] {
                let place = place(&model, member, at);
                put(&model, &place, Some((*before[&place]).clone()));
            }
            let harmed = image(&model);
            model.reassemble().unwrap();
            let status = scrub(&model);
            let what = format!("disk {member} of {kind:?}: {status:?}");
            if kind.0 == Raid4 {
                assert_eq!((status.repaired(), status.damaged), (0, 1), "{what}");
                assert_eq!(differences(&image(&model), &harmed), [], "{what}");
                // A reader knows by its pointer.
                model.check();
            } else {
                assert_eq!((status.repaired(), status.damaged), (2, 0), "{what}");
            }
            for at in [VICTIM.get() as usize, CHECKSUMS] {
                let place = place(&model, member, at);
                put(&model, &place, Some((*after[&place]).clone()));
            }
            assert_eq!(differences(&image(&model), &after), [], "{what}");
        }
    }
}

/// A write came to its disk and not to the parity, and the note of its stripe is lost with the log.
/// A scrub cannot tell that from parity that knows better, unless it is told.
#[test]
fn parity_that_missed_a_write_is_made_by_a_scrub_that_trusts_data() {
    for (seed, kind) in (0..).zip(KINDS) {
        let (mut model, before, after) = filled(seed, kind);
        let miss = |model: &Model| {
            for member in 0..kind.0.parity_disks() {
                for at in [VICTIM.get() as usize, CHECKSUMS] {
                    let place = place(model, member, at);
                    put(model, &place, Some((*before[&place]).clone()));
                }
            }
        };
        miss(&model);
        model.reassemble().unwrap();
        let status = scrub(&model);
        assert_eq!((status.repaired(), status.damaged), (0, 1), "{kind:?}: {status:?}");
        assert_eq!(order(&model, ScrubOrder::MakeParity), Ok(()));
        model.store.resume();
        model.world.run_until_idle();
        let status = model.store.status().scrub;
        let repaired = 2 * kind.0.parity_disks() as u64;
        assert_eq!((status.repaired(), status.damaged), (repaired, 0), "{kind:?}: {status:?}");
        assert_eq!(differences(&image(&model), &after), [], "{kind:?}");
        // It is the only one that does.
        miss(&model);
        model.reassemble().unwrap();
        let status = scrub(&model);
        assert_eq!((status.repaired(), status.damaged), (0, 1), "{kind:?}: {status:?}");
    }
}

/// Where nothing was before, the identity in parity says which disk lost it.
#[test]
fn a_first_write_that_was_lost_is_repaired() {
    for (seed, kind) in (0..).zip(KINDS) {
        // Alone in its row, and not.
        for pvbn in [Pvbn(50), Pvbn(42)] {
            let (mut model, ..) = filled(seed, kind);
            let (disk, block) = model.place(pvbn);
            model.world.lose_next_write(&disk, block);
            let (disk, block) = model.checksum_place(pvbn);
            model.world.lose_next_write(&disk, block);
            write_again(&mut model, pvbn, 3);
            assert_eq!(model.sync(), Ok(()));
            model.reassemble().unwrap();
            let status = scrub(&model);
            assert_eq!((status.repaired(), status.damaged), (2, 0), "{kind:?} {status:?}");
            model.check();
            assert_eq!(model.store.status().counters.repaired_blocks, 2, "no read repaired more");
            model.check_parity();
        }
    }
}

#[test]
fn what_nobody_wrote_is_left_alone() {
    for kind in KINDS.into_iter().chain([(Unprotected, 1)]) {
        let mut model = Model::with_garbage(3, &[kind], true);
        let garbage = image(&model);
        let status = scrub(&model);
        assert_eq!((status.repaired(), status.damaged), (0, 0), "{kind:?} {status:?}");
        assert_eq!(differences(&image(&model), &garbage), []);
        model.write(Pvbn(70));
        assert_eq!(model.sync(), Ok(()));
        let written = image(&model);
        let status = scrub(&model);
        assert_eq!((status.repaired(), status.damaged), (0, 0), "{kind:?} {status:?}");
        assert_eq!(differences(&image(&model), &written), []);
        // Even where it cannot be read: that is damage to nothing.
        model.world.fail_block(&disk_name(0, kind.0.parity_disks()), media::DATA_START + 3);
        let status = scrub(&model);
        assert_eq!((status.repaired(), status.damaged), (0, 0), "{kind:?} {status:?}");
    }
}

#[test]
fn damage_beyond_repair_is_named_and_not_overwritten() {
    for kind in KINDS {
        let (mut model, _, after) = filled(5, kind);
        let per_disk = model.store.geometry().group(0).blocks_per_disk();
        // One more in a row than parity makes good: parity disks, then the two data disks.
        let disks = kind.0.parity_disks();
        let harmed: Vec<usize> = (1..disks).chain([disks, disks + 1]).collect();
        for member in harmed {
            let place = place(&model, member, 9);
            let mut block = (*after[&place]).clone();
            block[7 + 100 * member] ^= 1 << member;
            put(&model, &place, Some(block));
        }
        let before = image(&model);
        model.reassemble().unwrap();
        let status = scrub(&model);
        assert_eq!((status.repaired(), status.damaged), (0, 2), "{kind:?} {status:?}");
        let named: Vec<String> = status.findings.iter().map(ToString::to_string).collect();
        let second = Pvbn(per_disk + 9);
        let expected =
            [format!("pvbn:9 on disk g0d{disks}"), format!("{second} on disk g0d{}", disks + 1)];
        assert_eq!(named, expected);
        assert_eq!(differences(&image(&model), &before), []);
    }
    let (mut model, ..) = filled(5, (Unprotected, 2));
    let (disk, block) = model.place(Pvbn(5));
    model.world.flip_bit(&disk, block, 77);
    model.reassemble().unwrap();
    let status = scrub(&model);
    assert_eq!((status.repaired(), status.damaged), (0, 1), "{status:?}");
}

/// A block and all parity of its row are not what they should be, as a crash leaves a row that was
/// being written.
#[test]
fn what_a_crash_left_and_nobody_uses_is_no_damage() {
    let cases = [(true, false), (false, false), (true, true), (false, true)];
    for (kind, (is_used, is_unreadable)) in
        KINDS.into_iter().flat_map(|kind| cases.map(|case| (kind, case)))
    {
        let (mut model, _, after) = filled(5, kind);
        for member in 0..=kind.0.parity_disks() {
            let place = place(&model, member, 9);
            let mut block = (*after[&place]).clone();
            block[7 + 100 * member] ^= 1 << member;
            put(&model, &place, (!is_unreadable).then_some(block));
        }
        model.reassemble().unwrap();
        model.store.set_use_query(Arc::new(move |blocks, done| {
            done(blocks.into_iter().map(|block| is_used || block != VICTIM).collect());
        }));
        let status = scrub(&model);
        if is_used {
            assert_eq!((status.repaired(), status.damaged), (0, 1), "{kind:?} {status:?}");
            continue;
        }
        // The other blocks of the row are somebody's: their parity is made, of what the disk has.
        let repaired = kind.0.parity_disks() as u64 + u64::from(is_unreadable);
        assert_eq!((status.repaired(), status.damaged), (repaired, 0), "{kind:?} {status:?}");
        model.blocks.remove(&VICTIM);
        model.check();
        for lost in kind.0.parity_disks()..kind.1 {
            model.world.set_gone(&disk_name(0, lost), true);
            model.reassemble().unwrap();
            model.check();
            model.world.set_gone(&disk_name(0, lost), false);
        }
    }
}

/// Whether a block is in the row of the victim, on whichever disk.
fn is_in_row_of_victim(model: &Model, pvbn: Pvbn) -> bool {
    let row_of = |pvbn| model.store.geometry().locate(pvbn).map(|at| (at.tetris(), at.row()));
    row_of(pvbn) == row_of(VICTIM)
}

/// Parity that a row contradicts, and what is wrong beside it in the parity of the identities.
const DOUBTS: [&str; 2] = ["rotten, identities unreadable", "stale, another identity rotten"];

fn raise_doubt(model: &Model, kind: (RaidKind, usize), doubt: &str, before: &Disks, after: &Disks) {
    let row = VICTIM.get() as usize;
    for member in 0..kind.0.parity_disks() {
        let (parity, identities) = (place(model, member, row), place(model, member, CHECKSUMS));
        if doubt == DOUBTS[0] {
            let mut block = (*after[&parity]).clone();
            block[7 + 100 * member] ^= 1 << member;
            put(model, &parity, Some(block));
            put(model, &identities, None);
        } else {
            put(model, &parity, Some((*before[&parity]).clone()));
            let mut block = (*before[&identities]).clone();
            block[20 * 64 + 5] ^= 1;
            put(model, &identities, Some(block));
        }
    }
}

/// One row of a tetris contradicts its parity. It kept the parity of the identities of all rows
/// from being made good, which nobody was told where the row is nobody's (`--sick`, seed 28282).
#[test]
fn regression_a_row_that_is_nobodys_does_not_keep_identities_without_parity() {
    let cases = DOUBTS.into_iter().flat_map(|doubt| [(doubt, false), (doubt, true)]);
    let cases = KINDS.into_iter().flat_map(|kind| cases.clone().map(move |case| (kind, case)));
    for (kind, (doubt, is_used)) in cases {
        let (mut model, before, after) = filled(5, kind);
        raise_doubt(&model, kind, doubt, &before, &after);
        let harmed = image(&model);
        model.reassemble().unwrap();
        let row: Vec<Pvbn> = (0..model.store.geometry().group(0).blocks_per_disk() * 3)
            .map(Pvbn)
            .filter(|pvbn| is_in_row_of_victim(&model, *pvbn))
            .collect();
        assert_eq!(row.len(), 3);
        model.store.set_use_query(Arc::new(move |blocks, done| {
            done(blocks.into_iter().map(|block| is_used || !row.contains(&block)).collect());
        }));
        for is_first in [true, false] {
            let status = scrub(&model);
            let found = (status.repaired(), status.damaged);
            let what = format!("{doubt}, {is_used} in {kind:?}: {status:?}");
            if is_used {
                // What the disks have may be what was there before a write that one of them lost.
                assert_eq!(found, (0, 1), "{what}");
                assert_eq!(differences(&image(&model), &harmed), [], "{what}");
            } else {
                let repaired = if is_first { 2 * kind.0.parity_disks() as u64 } else { 0 };
                assert_eq!(found, (repaired, 0), "{what}");
                assert_eq!(differences(&image(&model), &after), [], "{what}");
            }
        }
        model.check();
    }
}

/// While the owner is asked whose the row is, a block of it is written, and the disk loses the
/// write: parity is the only copy of it, and what the owner then says is of before.
#[test]
fn what_is_written_while_the_owner_is_asked_is_not_nobodys() {
    for doubt in DOUBTS {
        let kind = KINDS[0];
        let (mut model, before, after) = filled(5, kind);
        raise_doubt(&model, kind, doubt, &before, &after);
        model.reassemble().unwrap();
        let asked = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&asked);
        model.store.set_use_query(Arc::new(move |blocks, done| {
            *keep.lock() = Some((blocks, done));
        }));
        assert_eq!(order(&model, ScrubOrder::Start { rate: None }), Ok(()));
        let (blocks, done) = asked.lock().take().expect("the row is in doubt");
        for (disk, block) in [model.place(VICTIM), model.checksum_place(VICTIM)] {
            model.world.lose_next_write(&disk, block);
        }
        write_again(&mut model, VICTIM, 3);
        assert_eq!(model.sync(), Ok(()));
        done(blocks.into_iter().map(|block| !is_in_row_of_victim(&model, block)).collect());
        model.world.run_until_idle();
        assert_eq!(model.store.status().scrub.phase, ScrubPhase::Finished);
        model.check();
    }
}

/// As many disks are gone as parity makes good but for one block, which has rotted.
#[test]
fn a_degraded_group_is_repaired_as_far_as_it_can_be() {
    for kind in [(Dp, 5), (Tp, 6)] {
        let disks = kind.1;
        let (mut model, _, after) = filled(6, kind);
        let world = model.world.snapshot();
        let sets = 1_u32..1 << disks;
        let sets =
            sets.filter(|set| (1..kind.0.parity_disks()).contains(&(set.count_ones() as usize)));
        for gone in sets {
            let is_gone = |disk: &usize| gone >> disk & 1 == 1;
            for rotten in (0..disks).filter(|disk| !is_gone(disk)) {
                model.world.restore(&world);
                let place = place(&model, rotten, 9);
                let mut block = (*after[&place]).clone();
                block[70] ^= 1;
                put(&model, &place, Some(block));
                for disk in (0..disks).filter(is_gone) {
                    model.world.set_gone(&disk_name(0, disk), true);
                }
                model.reassemble().unwrap();
                let status = scrub(&model);
                let what = format!("{gone:b} gone, {rotten} rotten of {kind:?}: {status:?}");
                // In row 9 one data disk has a block that nobody named.
                assert_eq!((status.repaired(), status.damaged), (1, 0), "{what}");
                assert_eq!(differences(&image(&model), &after), [], "{what}");
                model.check();
            }
        }
    }
}

/// A lost disk's block that only all three parity blocks together give, because two blocks that
/// nobody named have rotted: none of the three is written, though none agrees with what is read.
#[test]
fn parity_that_a_lost_disk_needs_is_not_written() {
    let mut model = Model::with_garbage(3, &[(Tp, 6)], true);
    model.write(VICTIM);
    assert_eq!(model.sync(), Ok(()));
    let row = VICTIM.get() as usize;
    for member in [4, 5] {
        let (disk, block) = place(&model, member, row);
        model.world.flip_bit(&disk, block, member * 1000);
    }
    let harmed = image(&model);
    model.world.set_gone(&disk_name(0, 3), true);
    model.reassemble().unwrap();
    let status = scrub(&model);
    assert_eq!((status.repaired(), status.damaged), (0, 1), "{status:?}");
    assert_eq!(differences(&image(&model), &harmed), []);
    model.check();
}

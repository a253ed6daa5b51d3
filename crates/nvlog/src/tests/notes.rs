//! Notes of stripes: what a start finds of them, whenever the power goes.

use super::*;
use crate::{Found, Notes};
use ondisk::log::LOG_NOTE_BLOCKS_MAX;
use platform::simulated::IoKind;
use proptest::prelude::*;
use units::Block;

fn content(number: u64, blocks: u64) -> Found {
    let bytes = [number.to_le_bytes(), blocks.to_le_bytes()].concat();
    let block = |at: u64| {
        let mut block = Block::zeroed();
        block.chunks_exact_mut(16).for_each(|chunk| chunk[..8].copy_from_slice(&bytes[..8]));
        block[8..16].copy_from_slice(&at.to_le_bytes());
        Arc::new(block)
    };
    let blocks = (0..blocks).map(block).collect();
    Found { bytes, blocks }
}

/// A world, and what was given to it: note, epoch of this life, consistency point, answer.
struct Model {
    world: SimulatedWorld,
    log: Log,
    given: Vec<(Found, u64, u64, Told)>,
    epoch: u64,
    used: u64,
    number: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let world = SimulatedWorld::new(seed);
        format(&world, size_blocks(20));
        let (log, _) = open(&world, 0);
        Self { world, log, given: Vec::new(), epoch: 0, used: 0, number: 0 }
    }

    fn notes(&self) -> Arc<Notes> {
        Arc::clone(self.log.notes())
    }

    /// As the store does: an epoch begins when all notes are answered and the last one's room is
    /// used up.
    fn append(&mut self, blocks: u64, cp: u64) {
        if self.used + 1 + blocks > self.notes().capacity_blocks() {
            self.world.run_until_idle();
            (self.epoch, self.used) = (self.epoch + 1, 0);
        }
        self.used += 1 + blocks;
        self.number += 1;
        let (note, told) = (content(self.number, blocks), Told::default());
        let teller = Arc::clone(&told);
        let done = Box::new(move |result| *teller.lock() = Some(result));
        let (bytes, contents) = (note.bytes.clone(), note.blocks.clone());
        self.notes().append((self.epoch, CpNumber(cp)), bytes, contents, done);
        self.given.push((note, self.epoch, cp, told));
    }

    /// All notes of the last two epochs that were answered are there, in order, and some behind
    /// them; none of a complete consistency point.
    fn reopen(&mut self, committed: u64) {
        self.log.abandon();
        self.world.power_cut();
        self.log = open(&self.world, committed).0;
        let found = self.notes().take_found();
        let is_late = |(_, epoch, cp, _): &&(Found, u64, u64, Told)| {
            *cp > committed && *epoch + 1 >= self.epoch
        };
        let late: Vec<_> = self.given.iter().filter(is_late).collect();
        let answered = late.iter().rposition(|(.., told)| told.lock().is_some());
        let answered = answered.map_or(0, |last| last + 1);
        // What was before may still be there.
        let first = late.first().map(|(note, ..)| note);
        let older = found.iter().position(|note| Some(note) == first).unwrap_or(found.len());
        let found = &found[older..];
        assert!(found.len() >= answered, "{} of {answered}", found.len());
        for (found, (given, ..)) in found.iter().zip(&late) {
            assert_eq!(found, given);
        }
        self.given.clear();
        (self.epoch, self.used) = (0, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_was_answered_is_found(
        seed in any::<u64>(),
        lives in proptest::collection::vec(
            (proptest::collection::vec((0..40_u64, 1..4_u64, 0..6_u8), 1..60), 0..4_u64),
            1..4,
        ),
    ) {
        let mut model = Model::new(seed);
        for (notes, committed) in lives {
            for (blocks, cp, steps) in notes {
                model.append(blocks, cp);
                (0..steps).for_each(|_| { model.world.step(); });
            }
            model.reopen(committed);
        }
    }
}

/// Of the notes of an epoch that is over none comes back once another has its place.
#[test]
fn an_epoch_ends_as_a_whole() {
    let mut model = Model::new(7);
    for _ in 0..3 {
        for _ in 0..10 {
            model.append(18, 1);
        }
        model.world.run_until_idle();
    }
    assert_eq!(model.epoch, 2);
    let found = open(&model.world, 0).0.notes().take_found();
    let numbers: Vec<u8> = found.iter().map(|note| note.bytes[0]).collect();
    assert_eq!(numbers, (11..=30).collect::<Vec<u8>>());
    assert_eq!(open(&model.world, 1).0.notes().take_found(), []);
    // The next life's first note takes the place of the older one.
    model.reopen(0);
    model.append(0, 1);
    model.world.run_until_idle();
    let found = open(&model.world, 0).0.notes().take_found();
    let numbers: Vec<u8> = found.iter().map(|note| note.bytes[0]).collect();
    assert_eq!(numbers, (21..=31).collect::<Vec<u8>>());
}

#[test]
fn the_largest_note_has_room_and_notes_that_gather_go_as_one() {
    let mut model = Model::new(3);
    assert_eq!(model.notes().capacity_blocks(), LOG_NOTE_BLOCKS_MAX);
    model.append(LOG_NOTE_BLOCKS_MAX - 1, 1);
    model.append(1, 1);
    model.world.run_until_idle();
    for _ in 0..5 {
        model.append(2, 1);
    }
    let pending = |model: &Model| {
        model.world.pending().iter().map(|io| (io.kind, io.count)).collect::<Vec<_>>()
    };
    assert_eq!(pending(&model), [(IoKind::Write, 3)]);
    assert!(model.world.complete_one(0) && model.world.complete_one(0));
    assert_eq!(pending(&model), [(IoKind::Write, 12)], "those that came meanwhile");
    model.world.run_until_idle();
    let found = open(&model.world, 0).0.notes().take_found();
    assert_eq!(found.len(), 7);
    assert_eq!(found[0], content(1, LOG_NOTE_BLOCKS_MAX - 1));
}

/// An epoch has begun, and a note of the one before is late: both are found, in order.
#[test]
fn a_note_of_the_epoch_before_may_be_late() {
    let mut model = Model::new(4);
    model.append(1, 1);
    model.epoch = 1;
    model.append(2, 1);
    model.epoch = 0;
    model.append(3, 1);
    model.world.run_until_idle();
    let found = open(&model.world, 0).0.notes().take_found();
    let numbers: Vec<u8> = found.iter().map(|note| note.bytes[0]).collect();
    assert_eq!(numbers, [1, 3, 2]);
}

/// A disk that fails once: nothing is promised any more.
#[test]
fn a_failed_write_fails_all_that_follow() {
    let mut model = Model::new(3);
    model.append(1, 1);
    model.world.run_until_idle();
    model.world.set_gone(DISK, true);
    model.append(1, 1);
    model.append(1, 1);
    model.world.run_until_idle();
    model.world.set_gone(DISK, false);
    model.append(1, 1);
    model.world.run_until_idle();
    let failed = |told: &Told| matches!(*told.lock(), Some(Err(_)));
    let answers: Vec<bool> = model.given.iter().map(|(.., told)| failed(told)).collect();
    assert_eq!(answers, [false, true, true, true]);
}

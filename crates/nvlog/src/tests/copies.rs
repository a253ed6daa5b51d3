//! A log with copies: disks go and come, and whatever a start believes has everything.

use super::*;
use crate::{CopyState, CopyWitness, FoundCopies, Places};
use ondisk::log_copies::LogCopies;
use platform::WriteDone;
use proptest::prelude::*;
use units::Block;
use zerocopy::{FromBytes, IntoBytes};

const COPIES: [&str; 2] = ["first", "second"];
const LABEL: &str = "label";

/// Keeps it in a block of a disk, as labels do.
struct Witness(SimulatedWorld);

impl Witness {
    fn record(&self) -> LogCopies {
        let block = self.0.read_block(LABEL, 0).map_or_else(Block::zeroed, |one| (*one).clone());
        let (record, _) = LogCopies::read_from_prefix(block.bytes()).expect("a block is longer");
        record
    }
}

impl CopyWitness for Witness {
    fn record(&self, whole: &[u64], done: WriteDone) {
        let block = Block::from_prefix(self.record().next(whole).as_bytes());
        let disk: Arc<dyn Disk> = self.0.disk(LABEL).expect("there is a label");
        disk.write_durable(0, vec![Arc::new(block)], done);
    }
}

fn copy(world: &SimulatedWorld, at: usize) -> Arc<dyn Disk> {
    world.disk(COPIES[at]).expect("there is a disk")
}

fn try_open_copies(
    world: &SimulatedWorld,
    there: &[usize],
    committed: u64,
) -> Result<FoundCopies, LogError> {
    let witness = Arc::new(Witness(world.clone()));
    let places = Places {
        disks: there.iter().map(|at| copy(world, *at)).collect(),
        whole: witness.record().whole(),
        witness,
        replacement: LogUuid([9; 16]),
        accepts_loss: false,
    };
    world.wait(|done| crate::open_copies(places, IDENTITY, CpNumber(committed), done))
}

/// A world with a log of one copy, and a disk for another.
fn fresh_copies(half_blocks: u64, seed: u64) -> (SimulatedWorld, Log) {
    let world = SimulatedWorld::new(seed);
    world.add_disk(LABEL, 1);
    for name in COPIES {
        world.add_disk(name, size_blocks(half_blocks));
    }
    let formatted = world.wait(|done| Log::format(&copy(&world, 0), IDENTITY, done));
    assert_eq!(formatted, Ok(()));
    let found = try_open_copies(&world, &[0, 1], 0).expect("the log opens");
    assert!(matches!(found.others[0].1, Err(LogError::NotALog { .. })));
    (world, found.log)
}

fn join(world: &SimulatedWorld, log: &Log, identity: u64, at: usize) {
    let joined = world.wait(|done| log.join(identity, copy(world, at), done));
    assert_eq!(joined, Ok(()));
}

/// A consistency point from freeze to commit.
fn commit_all(world: &SimulatedWorld, log: &Log) -> u64 {
    let cp = log.active_cp();
    log.switch_half(cp.next()).expect("the other half is free");
    log.retire(cp);
    world.run_until_idle();
    cp.get()
}

fn states(log: &Log) -> Vec<CopyState> {
    log.copies().into_iter().map(|copy| copy.state).collect()
}

#[test]
fn a_copy_that_joined_is_whole_with_the_next_consistency_point() {
    let (world, log) = fresh_copies(20, 1);
    log_durably(&world, &log, b"before");
    join(&world, &log, 7, 1);
    assert_eq!(states(&log), [CopyState::Whole, CopyState::Joining]);
    log_durably(&world, &log, b"beside");
    drop(log);
    // Nobody believes it yet.
    let stale = try_open_copies(&world, &[1], 0).err().expect("it lacks what was before");
    assert_eq!(stale, LogError::StaleCopy { disk: COPIES[1].to_owned() });
    let found = try_open_copies(&world, &[0, 1], 0).expect("the log opens");
    assert_eq!(bodies(&found.records), [b"before".as_slice(), b"beside"]);
    assert_eq!(found.others[0].1, Ok(()), "it is a copy of the log");
    let log = found.log;
    join(&world, &log, 8, 1);
    let committed = commit_all(&world, &log);
    assert_eq!(states(&log), [CopyState::Whole, CopyState::Whole]);
    log_durably(&world, &log, b"after");
    drop(log);
    world.set_gone(COPIES[0], true);
    let found = try_open_copies(&world, &[0, 1], committed).expect("the other copy is whole");
    assert_eq!(bodies(&found.records), [b"after"]);
}

#[test]
fn notes_of_a_copy_that_joined_are_found() {
    let (world, log) = fresh_copies(20, 1);
    let note = |log: &Log, cp: u64, byte: u8| {
        let told = Told::default();
        let teller = Arc::clone(&told);
        let done = Box::new(move |result| *teller.lock() = Some(result));
        log.notes().append((0, CpNumber(cp)), vec![byte], Vec::new(), done);
        world.run_until_idle();
        assert_eq!(*told.lock(), Some(Ok(())));
    };
    note(&log, 1, 1);
    join(&world, &log, 7, 1);
    note(&log, 1, 2);
    let committed = commit_all(&world, &log);
    note(&log, committed + 1, 3);
    drop(log);
    let log = try_open_copies(&world, &[1], committed).expect("the joined copy is whole").log;
    let found: Vec<_> = log.notes().take_found().into_iter().map(|note| note.bytes).collect();
    assert_eq!(found, [[3]]);
}

#[test]
fn a_copy_is_not_whole_while_notes_are_needed_that_it_has_not() {
    let (world, log) = fresh_copies(20, 1);
    let cp = log.active_cp();
    log.notes().append((0, cp.next()), vec![1], Vec::new(), Box::new(|_| ()));
    world.run_until_idle();
    join(&world, &log, 7, 1);
    commit_all(&world, &log);
    assert_eq!(states(&log), [CopyState::Whole, CopyState::Joining]);
    commit_all(&world, &log);
    assert_eq!(states(&log), [CopyState::Whole, CopyState::Whole]);
}

#[test]
fn nothing_is_acknowledged_before_the_labels_leave_a_lost_copy_out() {
    let (world, log) = fresh_copies(20, 1);
    join(&world, &log, 7, 1);
    commit_all(&world, &log);
    world.set_gone(COPIES[1], true);
    world.set_hung(LABEL, true);
    let told = wait(&log, append(&log, b"alone"));
    world.run_until_idle();
    assert_eq!(*told.lock(), None, "a start could believe the copy that lacks it");
    world.set_hung(LABEL, false);
    world.run_until_idle();
    assert_eq!(*told.lock(), Some(Ok(())));
    assert!(matches!(&states(&log)[1], CopyState::Lost(cause) if cause.contains("gone")));
    // The last one takes the log with it.
    world.set_gone(COPIES[0], true);
    let told = wait(&log, append(&log, b"nowhere"));
    world.run_until_idle();
    assert!(matches!(&*told.lock(), Some(Err(_))));
    assert!(log.failure().is_some());
}

#[test]
fn of_two_copies_the_one_without_damage_is_read() {
    let (world, log) = fresh_copies(20, 1);
    join(&world, &log, 7, 1);
    let committed = commit_all(&world, &log);
    for body in [b"one".as_slice(), b"two", b"three"] {
        log_durably(&world, &log, body);
    }
    drop(log);
    for name in COPIES {
        let image = world.snapshot();
        // The batches of the second half, where the first two records are.
        (0..2).for_each(|block| world.flip_bit(name, LOG_HEADER_BLOCKS + 20 + block, 99));
        let found = try_open_copies(&world, &[0, 1], committed).expect("one copy is whole");
        assert_eq!(found.log.missing(), None);
        assert_eq!(bodies(&found.records), [b"one".as_slice(), b"two", b"three"]);
        world.restore(&image);
    }
}

/// A copy was read alone, by a configuration that names its place alone, that had missed records.
#[test]
fn a_copy_is_no_log_of_its_own() {
    let (world, log) = fresh_copies(20, 1);
    join(&world, &log, 7, 1);
    drop(log);
    let disk = copy(&world, 1);
    let opened = world.wait(|done| Log::open(&disk, IDENTITY, CpNumber(0), done));
    assert_eq!(opened.err(), Some(LogError::StaleCopy { disk: COPIES[1].to_owned() }));
}

/// What one copy lost another one has, which may be read tomorrow.
#[test]
fn a_damaged_copy_is_not_taken_while_a_whole_one_is_away() {
    let (world, log) = fresh_copies(20, 1);
    join(&world, &log, 7, 1);
    let committed = commit_all(&world, &log);
    for body in [b"one".as_slice(), b"two", b"three"] {
        log_durably(&world, &log, body);
    }
    drop(log);
    world.flip_bit(COPIES[0], LOG_HEADER_BLOCKS + 20, 99);
    let alone = try_open_copies(&world, &[0], committed).err().expect("it lacks the first record");
    assert_eq!(alone, LogError::OnlyDamaged { disk: COPIES[0].to_owned() });
    world.set_gone(COPIES[1], true);
    let away = try_open_copies(&world, &[0, 1], committed).err().expect("the same");
    assert!(matches!(away, LogError::Disk { .. }), "{away}");
    world.set_gone(COPIES[1], false);
    let found = try_open_copies(&world, &[0, 1], committed).expect("it is back");
    assert_eq!(bodies(&found.records), [b"one".as_slice(), b"two", b"three"]);
}

/// The disk of a copy was written over while labels still named it.
#[test]
fn a_copy_joins_when_the_one_that_was_on_its_disk_is_named_no_more() {
    let (world, log) = fresh_copies(20, 1);
    join(&world, &log, 7, 1);
    commit_all(&world, &log);
    let header = world.read_block(COPIES[1], 0);
    world.set_gone(COPIES[1], true);
    world.set_hung(LABEL, true);
    let told = wait(&log, append(&log, b"alone"));
    world.run_until_idle();
    assert_eq!(*told.lock(), None);
    world.set_gone(COPIES[1], false);
    log.join(8, copy(&world, 1), Box::new(|joined| assert_eq!(joined, Ok(()))));
    world.run_until_idle();
    assert_eq!(world.read_block(COPIES[1], 0), header, "it has everything that was acknowledged");
    world.set_hung(LABEL, false);
    world.run_until_idle();
    assert_eq!(*told.lock(), Some(Ok(())));
    assert_eq!(states(&log), [CopyState::Whole, CopyState::Joining]);
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Note,
    Run(u8),
    Freeze,
    Commit,
    Go(usize),
    Return(usize),
    Join,
    /// Some copies are there, all if it is above 1; the point after it commits, or not.
    Cut(u8, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..9000_usize).prop_map(Step::Append),
        4 => Just(Step::Note),
        10 => (1..8_u8).prop_map(Step::Run),
        4 => Just(Step::Freeze),
        4 => Just(Step::Commit),
        2 => (0..2_usize).prop_map(Step::Go),
        4 => (0..2_usize).prop_map(Step::Return),
        4 => Just(Step::Join),
        3 => (0..4_u8, any::<bool>()).prop_map(|(there, commits)| Step::Cut(there, commits)),
    ]
}

struct Model {
    world: SimulatedWorld,
    log: Log,
    committed: u64,
    frozen: Option<CpNumber>,
    /// Of the present life and what was found of those before: number, consistency point, answer.
    records: Vec<(u64, u64, Told)>,
    notes: Vec<(u64, u64, Told)>,
    number: u64,
    notes_blocks: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let (world, log) = fresh_copies(20, seed);
        let (records, notes) = (Vec::new(), Vec::new());
        let (committed, frozen, number, notes_blocks) = (0, None, 0, 0);
        Self { world, log, committed, frozen, records, notes, number, notes_blocks }
    }

    fn told(&mut self) -> (u64, Told) {
        self.number += 1;
        (self.number, Told::default())
    }

    fn append(&mut self, bytes: usize) {
        let (number, told) = self.told();
        let mut body = number.to_le_bytes().to_vec();
        body.resize(8 + bytes, number as u8);
        let cp = self.log.active_cp();
        let Ok(position) = self.log.append(cp, 7, &[&body]) else { return };
        let teller = Arc::clone(&told);
        self.log.when_durable(position, Box::new(move |result| *teller.lock() = Some(result)));
        self.records.push((number, cp.get(), told));
    }

    /// Of the point under way, in the first epoch.
    fn note(&mut self) {
        let Some(cp) = self.frozen else { return };
        if self.notes_blocks == self.log.notes().capacity_blocks() {
            return;
        }
        self.notes_blocks += 1;
        let (number, told) = self.told();
        let teller = Arc::clone(&told);
        let done = Box::new(move |result| *teller.lock() = Some(result));
        let bytes = number.to_le_bytes().to_vec();
        self.log.notes().append((0, cp), bytes, Vec::new(), done);
        self.notes.push((number, cp.get(), told));
    }

    fn commit(&mut self, cp: CpNumber) {
        self.committed = cp.get();
        self.frozen = None;
        self.log.retire(cp);
    }

    /// The disks without a copy get one, as far as they work.
    fn join(&mut self) {
        for (at, name) in COPIES.into_iter().enumerate() {
            let is_used = |copy: &crate::CopyStatus| {
                copy.disk == name && !matches!(copy.state, CopyState::Lost(_))
            };
            if !self.log.copies().iter().any(is_used) {
                let identity = 1000 + self.told().0;
                self.log.join(identity, copy(&self.world, at), Box::new(|_| ()));
                self.world.run_until_idle();
            }
        }
    }

    /// Power cut; the next start finds some of the copies, and all of them if those are too few.
    fn cut(&mut self, there: &[usize], commits: bool) {
        self.log.abandon();
        self.world.power_cut();
        let found = try_open_copies(&self.world, there, self.committed).or_else(|_| {
            COPIES.into_iter().for_each(|name| self.world.set_gone(name, false));
            try_open_copies(&self.world, &[0, 1], self.committed)
        });
        let found = found.expect("with all copies the log opens");
        assert_eq!(found.log.missing(), None, "honest disks lose nothing");
        let numbers = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().expect("eight"));
        let records: Vec<u64> = found.records.iter().map(|record| numbers(&record.body)).collect();
        check(&mut self.records, self.committed, &records, "records");
        let notes = found.log.notes().take_found();
        let first = self.notes.first().map_or(u64::MAX, |(first, ..)| *first);
        let notes = notes.iter().map(|note| numbers(&note.bytes));
        let notes: Vec<u64> = notes.filter(|number| *number >= first).collect();
        check(&mut self.notes, self.committed, &notes, "notes");
        // They may be found again, before those of the next life.
        self.notes.clear();
        (self.log, self.notes_blocks) = (found.log, 0);
        let older = CpNumber(self.log.active_cp().get() - 1);
        self.frozen = (!self.log.can_switch()).then_some(older);
        if commits {
            self.commit(self.log.active_cp());
        }
        self.world.run_until_idle();
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Append(bytes) => self.append(bytes),
            Step::Note => self.note(),
            Step::Run(count) => (0..count).for_each(|_| _ = self.world.step()),
            Step::Freeze => {
                let cp = self.log.active_cp();
                let is_switched = self.frozen.is_none() && self.log.switch_half(cp.next()).is_ok();
                self.frozen = if is_switched { Some(cp) } else { self.frozen };
            }
            Step::Commit => {
                // Its stripes were written, so their notes were durable.
                self.world.run_until_idle();
                if let Some(cp) = self.frozen.filter(|_| self.log.failure().is_none()) {
                    self.commit(cp);
                }
            }
            Step::Go(at) => self.world.set_gone(COPIES[at], true),
            Step::Return(at) => self.world.set_gone(COPIES[at], false),
            Step::Join => self.join(),
            Step::Cut(0, commits) => self.cut(&[0], commits),
            Step::Cut(1, commits) => self.cut(&[1], commits),
            Step::Cut(_, commits) => self.cut(&[0, 1], commits),
        }
    }
}

/// What was given comes back as a prefix, with everything in it that was told durable.
fn check(given: &mut Vec<(u64, u64, Told)>, committed: u64, found: &[u64], name: &str) {
    given.retain(|(_, cp, _)| *cp > committed);
    let is_promised = |(.., told): &(u64, u64, Told)| matches!(&*told.lock(), Some(Ok(())));
    let promised = given.iter().rposition(is_promised).map_or(0, |last| last + 1);
    let numbers: Vec<u64> = given.iter().map(|(number, ..)| *number).collect();
    assert!(found.len() >= promised, "{name}: {found:?} of {numbers:?}, {promised} promised");
    assert_eq!(found, &numbers[..found.len()], "{name}");
    given.truncate(found.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_start_finds_what_was_promised_whatever_copies_were_away(
        seed in any::<u64>(),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut model = Model::new(seed);
        steps.iter().for_each(|step| model.step(step));
        model.step(&Step::Cut(2, true));
    }
}

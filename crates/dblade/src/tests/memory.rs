//! Two aggregates under one cap of dirty memory, one of which cannot write what is dirty.

use super::*;
use aggregate::AggregateError;
use file_service::WriteResult;
use file_service::calls;
use platform::completion::{Promise, promise};
use platform::watched::Watch;
use std::sync::atomic::Ordering;

/// Bytes of each write.
const PIECE: usize = 1 << 16;
/// Steps that one answer may take, with the consistency point that it waits for: some hundred.
const STEPS_MAX: u32 = 20_000;
/// What a disk may take before it counts as failed.
const TIMEOUT_NANOSECONDS: u64 = 60_000_000_000;

type Answer = Promise<Result<WriteResult, FsError>>;

/// A node with two aggregates, each a traditional volume on disks and a log of its own.
struct Two {
    node: Node,
    watch: Arc<Watch>,
    files: [FileHandle; 2],
}

impl Two {
    fn new(seed: u64) -> Self {
        let world = SimulatedWorld::new(seed);
        let watch = Watch::new(Arc::new(world.clone()), TIMEOUT_NANOSECONDS);
        let node = Node::start(&world);
        for aggregate in ["a1", "a2"] {
            let disk = |disk: usize| -> Arc<dyn Disk> {
                watch.over(world.add_disk(&format!("{aggregate}{disk}"), DISK_BLOCKS))
            };
            let disks = (0..DISKS).map(disk).collect();
            let request = CreateAggregate::new(aggregate, RaidKind::Raid4, disks);
            let request = CreateAggregate { traditional: true, ..request };
            node.wait(|done| node.engine.create_aggregate(request, done)).unwrap();
        }
        let files = ["a1", "a2"].map(|volume| node.write_file(node.root(volume), "file", vec![1]));
        let two = Self { node, watch, files };
        two.commit(0).unwrap();
        two.commit(1).unwrap();
        two.settle();
        two
    }

    fn aggregate(&self, index: usize) -> Arc<aggregate::Aggregate> {
        self.node.engine.aggregate_named(["a1", "a2"][index]).unwrap()
    }

    fn commit(&self, index: usize) -> Result<(), AggregateError> {
        let aggregate = self.aggregate(index);
        self.node.wait(|done| aggregate.request_consistency_point(Some(done)))
    }

    /// The aggregate's disks answer no more, or again, late.
    fn hang(&self, index: usize, hangs: bool) {
        for disk in 0..DISKS {
            self.node.world.set_hung(&format!("{}{disk}", ["a1", "a2"][index]), hangs);
        }
    }

    /// Writes a piece that may stay in memory.
    fn write(&self, index: usize, piece: u64) -> Answer {
        self.write_bytes(index, piece, PIECE)
    }

    /// Writes the first bytes of a piece.
    fn write_bytes(&self, index: usize, piece: u64, bytes: usize) -> Answer {
        let (file, stability) = (self.files[index], Stability::Unstable);
        let data = Bytes::from(content(piece, bytes));
        let write = calls::Write { file, offset: piece * PIECE as u64, data, stability };
        promise(|done| self.node.service.write(&Caller::root(), write, done))
    }

    /// Runs until it is answered, and fails if that takes long: whoever waits must not spin.
    fn answered(&self, answer: &Answer) -> Result<WriteResult, FsError> {
        for _ in 0..STEPS_MAX {
            if let Some(outcome) = answer.lock().take() {
                return outcome;
            }
            assert!(self.node.run(), "nothing left to run and no answer");
        }
        panic!("no answer after {STEPS_MAX} steps");
    }

    /// Runs what there is to run, and fails if there is no end of it.
    fn settle(&self) {
        let more = (0..STEPS_MAX).all(|_| self.node.run());
        assert!(!more, "still running after {STEPS_MAX} steps");
    }

    /// Writes to the first aggregate, whose disks hang, until it takes no more; what waits.
    fn fill_first(&self) -> Vec<Answer> {
        self.hang(0, true);
        let answers: Vec<Answer> = (0..100).map(|piece| self.write(0, piece)).collect();
        self.settle();
        let waiting = |answer: &Answer| answer.lock().is_none();
        let waiting: Vec<Answer> = answers.into_iter().filter(waiting).collect();
        assert!(!waiting.is_empty(), "6 MiB fit into dirty memory of 4 MiB");
        waiting
    }

    /// Writes four times as much to the second aggregate as may be dirty at a time.
    fn write_second(&self) {
        for piece in 0..256 {
            self.answered(&self.write(1, piece)).unwrap();
        }
        self.settle();
    }
}

#[test]
fn an_aggregate_goes_on_beside_one_whose_disks_hang() {
    for seed in 0..4 {
        let two = Two::new(seed);
        let waiting = two.fill_first();
        two.write_second();
        two.hang(0, false);
        for answer in &waiting {
            two.answered(answer).unwrap();
        }
        two.commit(0).unwrap();
        two.commit(1).unwrap();
        two.settle();
        assert_eq!(two.node.engine.memory_blocks().1, 0, "dirty memory was not given back");
    }
}

/// A stream waits for its consistency point, and those beside it who write a little do not.
#[test]
fn small_writes_go_past_a_stream_that_waits_for_room() {
    for seed in 0..4 {
        let two = Two::new(seed);
        let waiting = two.fill_first();
        for piece in 200..220 {
            two.answered(&two.write_bytes(0, piece, 4096)).unwrap();
        }
        assert!(waiting.iter().all(|answer| answer.lock().is_none()), "a large one went, too");
        two.hang(0, false);
        for answer in &waiting {
            two.answered(answer).unwrap();
        }
    }
}

#[test]
fn an_aggregate_goes_on_beside_one_that_fails_while_it_is_full() {
    for seed in 0..4 {
        let two = Two::new(seed);
        let waiting = two.fill_first();
        two.node.world.advance(TIMEOUT_NANOSECONDS + 1);
        two.watch.expire();
        two.settle();
        for answer in &waiting {
            assert_eq!(two.answered(answer).map(drop), Err(FsError::Offline));
        }
        two.write_second();
        two.node.engine.tick();
        two.settle();
        two.commit(1).unwrap();
        two.settle();
        assert_eq!(two.node.engine.memory_blocks().1, 0, "dirty memory was not given back");
        assert_eq!(two.node.engine.outages().len(), 1);
    }
}

/// A failure that is not one of disks leaves the aggregate where it is, out of service.
#[test]
fn an_aggregate_that_has_failed_gives_its_memory_back_at_once() {
    let two = Two::new(5);
    let waiting = two.fill_first();
    assert!(two.node.engine.memory_blocks().1 > 700);
    let what = "the aggregate's image";
    two.aggregate(0).fail(AggregateError::Contradiction { what, problem: "found by a test" });
    two.settle();
    for answer in &waiting {
        assert_eq!(two.answered(answer).map(drop), Err(FsError::Io));
    }
    assert_eq!(two.node.engine.memory_blocks().1, 0, "dirty memory was not given back");
    two.write_second();
    assert!(two.aggregate(0).is_failed());
}

/// An aggregate that nothing is asked of holds most of the memory: it is asked for it.
#[test]
fn memory_that_was_borrowed_is_given_back_when_another_aggregate_wants_it() {
    let two = Two::new(6);
    // More than its guaranteed quarter, and less than lets a consistency point begin.
    for piece in 0..22 {
        two.answered(&two.write(0, piece)).unwrap();
    }
    two.settle();
    let committed = two.aggregate(0).committed();
    for piece in 0..64 {
        two.answered(&two.write(1, piece)).unwrap();
    }
    two.settle();
    assert!(two.aggregate(0).committed() > committed, "it was not asked for what it borrowed");
}

/// Clients waited until a consistency point had ended: the disks cannot keep up.
#[test]
fn consistency_points_are_timed_and_those_that_clients_wait_for_are_counted() {
    let two = Two::new(7);
    let waiting = two.fill_first();
    two.hang(0, false);
    for answer in &waiting {
        two.answered(answer).unwrap();
    }
    // The second finds nothing changed: it was none.
    two.commit(0).unwrap();
    two.commit(0).unwrap();
    two.settle();
    let counted = |index: usize| {
        let aggregate = two.aggregate(index);
        let committed = aggregate.statistics.consistency_points.load(Ordering::Relaxed);
        for (phase, durations) in aggregate.phase_durations().named() {
            assert_eq!(durations.count(), committed, "{phase}");
        }
        aggregate.statistics.back_to_back.load(Ordering::Relaxed)
    };
    assert!(counted(0) > 0);
    assert_eq!(counted(1), 0, "nobody waited there");
}

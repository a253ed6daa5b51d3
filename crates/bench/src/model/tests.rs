//! The model with costs that are given: what comes out can be calculated.

use super::cores::{Cores, Lanes};
use super::disk::ModelDisk;
use super::figures::{PhaseShare, name};
use super::world::{Event, Lane, World};
use super::*;
use crate::memory::COMMON_BYTE;
use affinity::{Access, AffinityId, AffinityKind, Message, Outcome, Scheduler};
use aggregate::Phase;
use platform::sync::Mutex;
use platform::{Clock, Disk};
use std::sync::Arc;
use units::{BLOCK_SIZE, Block};

const CALL: u64 = 300;
const MESSAGE: u64 = 1_000;
const COMPLETION: u64 = 200;
const FIXED: Costs = Costs::Fixed { call: CALL, message: MESSAGE, completion: COMPLETION };

/// Two volumes on some cores.
struct Small {
    world: Arc<World>,
    scheduler: Scheduler,
    cores: Cores,
    volumes: [AffinityId; 2],
    logical: [AffinityId; 2],
    began: u64,
}

fn small(cores: usize, completions: usize) -> Small {
    let world = Arc::new(World::new(FIXED));
    let scheduler = Scheduler::new(Arc::clone(&world) as Arc<dyn Clock>);
    let aggregate = scheduler.add(scheduler.root(), AffinityKind::Aggregate);
    let volumes = [(); 2].map(|()| scheduler.add(aggregate, AffinityKind::Volume));
    let logical = volumes.map(|volume| scheduler.add(volume, AffinityKind::VolumeLogical));
    let lanes = Lanes { workers: cores, completions, log: 1, calls: 1 };
    let cores = Cores::new(&world, &scheduler, cores, lanes);
    let began = world.now();
    Small { world, scheduler, cores, volumes, logical, began }
}

fn nothing() -> Box<dyn Message> {
    Box::new(|_: &mut Access<'_>| Outcome::Done)
}

impl Small {
    /// Goes on until nothing is left; the time that it took.
    fn elapsed(&mut self) -> u64 {
        assert!(!self.cores.run_until(|| false), "nothing is left to happen");
        self.world.now() - self.began
    }

    /// The time that one message in each of these affinities takes.
    fn messages(mut self, affinities: &[AffinityId]) -> u64 {
        affinities.iter().for_each(|affinity| self.scheduler.send(*affinity, nothing()));
        self.elapsed()
    }
}

#[test]
fn messages_of_two_volumes_take_half_the_time_on_two_cores() {
    for (cores, turns) in [(1, 8), (2, 4), (16, 4)] {
        let small = small(cores, 1);
        let [first, second] = small.logical;
        let elapsed = small.messages(&[first, second].repeat(4));
        assert_eq!(elapsed, turns * MESSAGE, "{cores} cores");
    }
}

#[test]
fn an_affinity_does_not_scale_and_shuts_out_those_beneath() {
    let small_one = small(16, 1);
    let affinity = small_one.logical[0];
    assert_eq!(small_one.messages(&[affinity; 8]), 8 * MESSAGE);
    let small_two = small(16, 1);
    let path = [small_two.volumes[0], small_two.logical[0]];
    assert_eq!(small_two.messages(&path), 2 * MESSAGE);
}

#[test]
fn what_a_message_sends_or_wakes_begins_when_it_is_over() {
    let mut small = small(16, 1);
    let (scheduler, next) = (small.scheduler.clone(), small.logical[1]);
    let chain = move |_: &mut Access<'_>| {
        scheduler.send(next, nothing());
        Outcome::Done
    };
    small.scheduler.send(small.logical[0], Box::new(chain));
    assert_eq!(small.elapsed(), 2 * MESSAGE);

    // Woken at once: it runs again when it has given its affinity back.
    let mut has_waited = false;
    let waits = move |_: &mut Access<'_>| {
        if std::mem::replace(&mut has_waited, true) {
            return Outcome::Done;
        }
        Outcome::Suspend(Box::new(affinity::Waker::wake))
    };
    small.scheduler.send(small.logical[0], Box::new(waits));
    assert_eq!(small.elapsed(), 4 * MESSAGE);
}

#[test]
fn completions_wait_for_their_threads_and_for_cores() {
    for (cores, threads, turns) in [(16, 1, 6), (16, 2, 3), (1, 2, 6)] {
        let mut small = small(cores, threads);
        for _ in 0..6 {
            let task = Event::Ready(Lane::Completions, Box::new(|| {}));
            small.world.note(small.began, task);
        }
        assert_eq!(small.elapsed(), turns * COMPLETION, "{cores} cores, {threads} threads");
        let usage = small.cores.take_usage();
        assert_eq!(usage.lane(Lane::Completions), 6 * COMPLETION);
        assert_eq!(usage.cores() * cores as u64, 6_000_000 / turns);
    }
}

const SLOW: Medium = Medium {
    read_bandwidth: 8 * BLOCK_SIZE as u64 * 1_000_000,
    write_bandwidth: 4 * BLOCK_SIZE as u64 * 1_000_000,
    latency_nanoseconds: 10_000,
    depth: 100,
};
/// What such a disk takes to write a block.
const WRITING: u64 = 250;

/// The time until ten writes of four blocks are over, in turns on so many disks.
fn ten_writes(disks: usize, medium: Medium) -> u64 {
    let mut small = small(16, 16);
    let disk = |number: usize| ModelDisk::new(&small.world, format!("d{number}"), 1 << 30, medium);
    let disks: Vec<_> = (0..disks).map(disk).collect();
    let block = Block::shared(&[COMMON_BYTE; BLOCK_SIZE]);
    for write in 0..10 {
        let disk = &disks[write % disks.len()];
        disk.write(4 * write as u64, vec![Arc::clone(&block); 4], Box::new(|done| done.unwrap()));
    }
    small.elapsed()
}

#[test]
fn a_disk_moves_as_much_as_it_can_and_no_more() {
    let latency = SLOW.latency_nanoseconds;
    assert_eq!(ten_writes(1, SLOW), 40 * WRITING + latency + COMPLETION);
    assert_eq!(ten_writes(2, SLOW), 20 * WRITING + latency + COMPLETION);
    let one_by_one = Medium { depth: 1, ..SLOW };
    assert_eq!(ten_writes(1, one_by_one), 10 * (4 * WRITING + latency) + COMPLETION);
}

#[test]
fn a_disk_reads_what_was_written_and_flushes_after_it() {
    let mut small = small(1, 1);
    let disk = ModelDisk::new(&small.world, "d".to_owned(), 1 << 30, SLOW);
    let block = Block::shared(&[COMMON_BYTE; BLOCK_SIZE]);
    disk.write(7, vec![Arc::clone(&block); 4], Box::new(|done| done.unwrap()));
    disk.flush(Box::new(|done| done.unwrap()));
    let latency = SLOW.latency_nanoseconds;
    assert_eq!(small.elapsed(), 4 * WRITING + 2 * latency + COMPLETION);
    assert_eq!((disk.take_busy(), disk.take_busy()), (4 * WRITING, 0));
    let read = Arc::new(Mutex::new(Vec::new()));
    let same = Arc::clone(&read);
    disk.read(10, 2, Box::new(move |done| *same.lock() = done.unwrap()));
    small.elapsed();
    let read = read.lock();
    assert!(*read[0] == *block && read[1].is_zero());
    assert!(!Arc::ptr_eq(&read[0], &block), "a device writes into memory of its own");
}

fn bench(medium: Medium) -> ModelBench {
    ModelBench {
        cores: Vec::new(),
        disks: Vec::new(),
        group_size: 12,
        medium,
        size: ByteSize(64 << 20),
        memory: ByteSize(128 << 20),
        volumes: 2,
        files: 2,
        depth: 4,
        request: ByteSize(64 << 10),
        completion_threads: None,
        rounds: 1,
    }
}

fn shape(cores: usize, disks: usize) -> Shape {
    Shape { cores, disks, group_size: 12 }
}

#[test]
fn the_same_costs_give_the_same_figures() {
    let run = || run(&bench(Medium::NVME), shape(4, 5), FIXED).unwrap();
    assert_eq!(run(), run());
}

#[test]
fn an_engine_that_costs_little_is_as_fast_as_its_disks() {
    let medium = Medium { read_bandwidth: 50_000_000, write_bandwidth: 50_000_000, ..SLOW };
    // Twice the cache, so that reads come from the disks.
    let bench = ModelBench { size: ByteSize(192 << 20), ..bench(medium) };
    let rates = [3, 5].map(|disks| run(&bench, shape(16, disks), FIXED).unwrap());
    for (rounds, data_disks) in rates.iter().zip([2, 4]) {
        for round in rounds {
            let most = data_disks * medium.read_bandwidth;
            // A few of the blocks that are read are in the cache still.
            assert!(round.rate < most * 21 / 20 && round.rate * 2 > most, "{round:?}");
        }
    }
}

#[test]
fn an_engine_that_costs_much_is_as_fast_as_its_cores() {
    let costs = Costs::Fixed { call: 1_000_000, message: 1_000_000, completion: 1_000_000 };
    let run = |cores| run(&bench(Medium::NVME), shape(cores, 5), costs).unwrap();
    let ([written, read], [written_by_four, read_by_four]) = (run(1), run(4));
    for (one, four) in [(&written, &written_by_four), (&read, &read_by_four)] {
        assert_eq!(one.shares.first_saturated(), Bound::Cores, "{one:?}");
        assert!(four.rate > one.rate * 3 && four.rate < one.rate * 5, "{one:?} {four:?}");
    }
}

#[test]
fn the_busiest_part_is_what_saturates_if_any_does() {
    let idle = Shares {
        cores: 0,
        no_core: 0,
        one_core: 0,
        completions: 0,
        affinity: ("VolumeVbn:7".to_owned(), 0),
        disks: 0,
        busiest_disk: 0,
        log: 0,
        kinds: Vec::new(),
        calls: 0,
        phases: Vec::new(),
        consistency_points: (0, 0),
    };
    assert_eq!(idle.first_saturated(), Bound::Depth);
    let completions = Shares { completions: 950_000, cores: 900_000, ..idle.clone() };
    assert_eq!(completions.first_saturated(), Bound::Completions);
    let affinity = Shares { affinity: ("VolumeVbn:7".to_owned(), 990_000), ..completions };
    assert_eq!(affinity.first_saturated().to_string(), "affinity VolumeVbn:7");
    let phases = [(Phase::Idle, 300_000), (Phase::Syncing, 200_000), (Phase::Freezing, 500_000)];
    let share = |(phase, time)| PhaseShare { name: name(phase), time, busy_cores: 1_000_000 };
    let phases = phases.map(share).to_vec();
    let points = Shares { phases, busiest_disk: 800_000, ..idle };
    assert_eq!(points.first_saturated(), Bound::ConsistencyPoint("freezing"));
}

//! Read reallocation: what lies scattered and is read in order lies in order afterwards, for the
//! file and for snapshots alike, and nobody sees anything of it but the disks.

use super::*;
use platform::sync::atomic::Ordering;

const BLOCK: usize = 4096;
const BLOCKS: usize = 1024;
const TICK_NANOSECONDS: u64 = 100_000_000;

/// What the file holds after random overwrites of a quarter.
fn aged() -> Vec<u8> {
    let mut data = content(1, BLOCKS * BLOCK);
    let new = content(2, BLOCKS * BLOCK);
    for at in (0..BLOCKS).step_by(4) {
        data[at * BLOCK..(at + 1) * BLOCK].copy_from_slice(&new[at * BLOCK..(at + 1) * BLOCK]);
    }
    data
}

impl Node {
    fn write_block(&self, file: FileHandle, at: usize, data: &[u8]) {
        let (offset, stability) = ((at * BLOCK) as u64, Stability::Unstable);
        let data = Bytes::copy_from_slice(data);
        self.ask(calls::Write { file, offset, data, stability }).unwrap();
    }

    /// A file that was written in order, and of which a quarter was overwritten at random; with
    /// nothing in memory.
    fn with_aged_file(seed: u64, prepare: impl FnOnce(&Self)) -> Self {
        let node = Self::create(&SimulatedWorld::new(seed), RaidKind::Raid4, false);
        let file = node.write_file(node.root("home"), "file", content(1, BLOCKS * BLOCK));
        node.commit_all();
        prepare(&node);
        let data = aged();
        // Blocks that one consistency point writes lie together: there are many.
        for index in 0..BLOCKS / 4 {
            let at = index * 97 % (BLOCKS / 4) * 4;
            node.write_block(file, at, &data[at * BLOCK..(at + 1) * BLOCK]);
            if index % 8 == 7 {
                node.commit_all();
            }
        }
        node.cut_power()
    }

    fn cut_power(self) -> Self {
        Self::open(&self.power_cut()).0
    }

    fn file(&self) -> Vec<u8> {
        self.read_file(self.root("home"), "file").unwrap()
    }

    fn snapshot_content(&self) -> Vec<u8> {
        let look = |directory, name: &str| {
            self.ask(calls::Lookup { directory, name: name.as_bytes().to_vec() }).unwrap().handle
        };
        let image = look(look(self.root("home"), ".snapshot"), "before");
        self.read_file(image, "file").unwrap()
    }

    /// Time passes.
    fn tick_for(&self, ticks: u32) {
        for _ in 0..ticks {
            self.world.advance(TICK_NANOSECONDS);
            self.engine.tick();
            self.settle();
        }
    }

    /// What was reallocated since the start.
    fn reallocated(&self) -> u64 {
        let aggregate = self.engine.aggregate_named("a1").unwrap();
        aggregate.statistics.reallocated_blocks.load(Ordering::Relaxed)
    }

    /// Whether readers of the volume ask where blocks lie.
    fn may_have_wrong_hints(&self) -> bool {
        let served = self.engine.volume_named("home").unwrap();
        served.aggregate.has_moved(served.environment.volume)
    }

    fn used_blocks(&self) -> u64 {
        self.engine.volume_summaries()[0].used_blocks
    }

    /// Reads the file in order, and has what is scattered of it written anew.
    fn read_and_reallocate(&self) {
        assert!(self.file() == aged());
        self.tick_for(20);
        self.commit_all();
    }
}

#[test]
fn a_file_that_is_read_in_order_lies_in_order_afterwards() {
    let node = Node::with_aged_file(41, |_| ());
    node.read_and_reallocate();
    let moved = node.reallocated();
    assert!(moved > BLOCKS as u64 / 2 && moved <= BLOCKS as u64, "{moved} blocks");
    assert!(!node.may_have_wrong_hints(), "pointers know, and there are no others");
    // No block twice: the next reader has the rest done at most, and then nothing is left to do.
    let node = node.cut_power();
    node.read_and_reallocate();
    assert!(node.reallocated() <= BLOCKS as u64 - moved, "{} blocks again", node.reallocated());
    let node = node.cut_power();
    node.read_and_reallocate();
    assert_eq!(node.reallocated(), 0);
}

/// Eight calls of a reader are under way before the first is answered: no look ahead comes before
/// them.
#[test]
fn what_a_reader_with_many_calls_under_way_loads_itself_is_written_anew() {
    let node = Node::with_aged_file(67, |_| ());
    let name = b"file".to_vec();
    let file = node.ask(calls::Lookup { directory: node.root("home"), name }).unwrap().handle;
    for offset in (0..BLOCKS * BLOCK).step_by(32 * BLOCK) {
        let read = calls::Read { file, offset: offset as u64, count: 32 * BLOCK as u32 };
        read.send(&node.service, &Caller::root(), Box::new(|read| assert!(read.is_ok())));
        if offset / (32 * BLOCK) % 8 == 7 {
            node.settle();
        }
    }
    node.tick_for(20);
    node.commit_all();
    let moved = node.reallocated();
    assert!(moved > BLOCKS as u64 / 2 && moved <= BLOCKS as u64, "{moved} blocks");
    assert!(node.cut_power().file() == aged());
}

#[test]
fn snapshots_hold_no_second_copy_and_find_theirs() {
    let create = SnapshotRequest::Create("before".to_owned());
    let node = Node::with_aged_file(43, |node| {
        node.wait(|done| node.engine.request_snapshot("home", create, done)).unwrap();
        node.settle();
    });
    let used = node.used_blocks();
    node.read_and_reallocate();
    assert!(node.reallocated() > BLOCKS as u64 / 2, "{} blocks", node.reallocated());
    let more = node.used_blocks().saturating_sub(used);
    assert!(more < 20, "{more} blocks more are in use");
    assert!(node.may_have_wrong_hints());
    // What follows is written over the old places.
    node.write_file(node.root("home"), "other", content(3, 3_000_000));
    node.commit_all();
    let node = node.cut_power();
    assert!(node.snapshot_content() == content(1, BLOCKS * BLOCK));
    assert!(node.file() == aged());
}

/// What changes after it was made dirty, and before it is written, is a new block.
#[test]
fn a_block_that_changes_meanwhile_leaves_the_snapshot_its_old_content() {
    let create = SnapshotRequest::Create("before".to_owned());
    let node = Node::with_aged_file(47, |_| ());
    node.wait(|done| node.engine.request_snapshot("home", create, done)).unwrap();
    node.settle();
    let file = node.ask(calls::Lookup { directory: node.root("home"), name: b"file".to_vec() });
    let (file, mut data) = (file.unwrap().handle, aged());
    for offset in (0..512 * BLOCK as u64).step_by(16 * BLOCK) {
        node.ask(calls::Read { file, offset, count: 16 * BLOCK as u32 }).unwrap();
    }
    node.world.advance(TICK_NANOSECONDS);
    node.engine.tick();
    // Until it is dirty: the consistency point that begins for it comes later.
    while node.engine.volume_named("home").unwrap().scattered.has_work() && node.run() {}
    let written = node.reallocated();
    let new = content(5, BLOCK);
    for at in (0..BLOCKS).step_by(7) {
        data[at * BLOCK..(at + 1) * BLOCK].copy_from_slice(&new);
        node.write_block(file, at, &new);
    }
    node.commit_all();
    assert!(node.reallocated() > written, "some of it was dirty when blocks changed: {written}");
    let node = node.cut_power();
    assert!(node.file() == data);
    assert!(node.snapshot_content() == aged());
}

/// As the simulator has it: whatever is read, however small the file.
#[test]
fn what_is_read_is_reallocated_if_all_is_to_be() {
    let node = Node::create(&SimulatedWorld::new(53), RaidKind::None, false);
    let data = content(7, 20 * BLOCK);
    node.write_file(node.root("home"), "file", data.clone());
    node.commit_all();
    let world = node.power_cut();
    let tuning = Tuning { reallocates_all: true, ..Tuning::default() };
    let (node, _) = Node::open_tuned(&world, tuning);
    for _ in 0..2 {
        assert!(node.file() == data);
    }
    node.tick_for(1);
    node.commit_all();
    assert_eq!(node.reallocated(), 20);
    let node = node.cut_power();
    assert!(node.file() == data);
}

#[test]
fn a_volume_that_is_not_to_be_reallocated_is_left_alone() {
    let node = Node::with_aged_file(59, |node| {
        let off = |done| node.engine.change_volume("home", off(), done);
        node.wait(off).unwrap();
    });
    node.read_and_reallocate();
    assert_eq!(node.reallocated(), 0);
    // Nor what was found before.
    let node = Node::with_aged_file(61, |_| ());
    assert!(node.file() == aged());
    node.wait(|done| node.engine.change_volume("home", off(), done)).unwrap();
    node.tick_for(20);
    node.commit_all();
    assert_eq!(node.reallocated(), 0);
}

fn off() -> VolumeChange {
    VolumeChange { reallocation: Some(Reallocation::Off), ..VolumeChange::default() }
}

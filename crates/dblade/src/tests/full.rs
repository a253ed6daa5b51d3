//! Filled to the last block and emptied again, on aggregates of 64 MiB: the operation is refused,
//! never the consistency point; deleting always works; what `df` says is there.

use super::*;
use file_service::FileSystemStatistics;
use file_service::calls;

/// Of 64 MiB in four disks.
const TINY_DISK_BLOCKS: u64 = 4096;
const PIECE_BYTES: usize = 64 << 10;

/// A node with `volumes` volumes, each as large as the aggregate; none for a traditional one.
pub(super) fn tiny(world: &SimulatedWorld, kind: RaidKind, volumes: usize) -> Node {
    for disk in 0..DISKS {
        world.add_disk(&format!("disk{disk}"), TINY_DISK_BLOCKS);
    }
    world.add_disk("log", 1412);
    let node = Node::start(world);
    let (disks, traditional) = (node.disks(), volumes == 0);
    let request = CreateAggregate { traditional, ..CreateAggregate::new("a1", kind, disks) };
    node.wait(|done| node.engine.create_aggregate(request, done)).unwrap();
    for volume in 0..volumes {
        let request =
            VolumeRequest::new(&format!("v{volume}"), "a1", TINY_DISK_BLOCKS * DISKS as u64);
        node.wait(|done| node.engine.create_volumes(request, done)).unwrap();
    }
    node
}

fn names(volumes: usize) -> Vec<String> {
    match volumes {
        0 => vec!["a1".to_owned()],
        _ => (0..volumes).map(|volume| format!("v{volume}")).collect(),
    }
}

impl Node {
    fn write_piece(&self, file: FileHandle, offset: u64, data: Vec<u8>) -> Result<(), FsError> {
        let (data, stability) = (Bytes::from(data), Stability::FileSync);
        self.ask(calls::Write { file, offset, data, stability }).map(drop)
    }

    pub(super) fn remove(&self, directory: FileHandle, name: &str) -> Result<(), FsError> {
        let caller = Caller::root();
        let remove = |service: &Service, done: Done<file_service::NodeChange>| {
            service.remove(
                &caller,
                calls::Remove { directory, name: name.as_bytes().to_vec() },
                done,
            );
        };
        self.call(remove).map(drop)
    }

    fn statistics(&self, file: FileHandle) -> FileSystemStatistics {
        self.ask(calls::Statistics { file }).unwrap()
    }

    /// Writes files of `pieces` pieces each in turn to all of `roots` until none takes more; their
    /// names, and how many pieces were written.
    fn fill(&self, roots: &[FileHandle], pieces: u64) -> (Vec<Vec<String>>, u64) {
        let (mut made, mut written) = (vec![Vec::new(); roots.len()], 0);
        let mut open: Vec<usize> = (0..roots.len()).collect();
        for number in 0.. {
            open.retain(|volume| {
                let name = format!("file{number}");
                let Ok(file) = self.create_file(roots[*volume], &name) else { return false };
                made[*volume].push(name);
                (0..pieces).all(|piece| {
                    let data = content(number << 8 | piece, PIECE_BYTES);
                    match self.write_piece(file, piece * PIECE_BYTES as u64, data) {
                        Ok(()) => written += 1,
                        Err(FsError::NoSpace) => return false,
                        Err(error) => panic!("{error}"),
                    }
                    true
                })
            });
            if open.is_empty() {
                break;
            }
        }
        (made, written)
    }
}

/// Fills, overwrites what is there, removes everything, and again; the last time over a power cut.
fn filled_and_emptied(seed: u64, kind: RaidKind, volumes: usize, pieces: u64) {
    let world = SimulatedWorld::new(seed);
    let mut node = tiny(&world, kind, volumes);
    let mut most = 0;
    for round in 0..3 {
        let roots: Vec<FileHandle> = names(volumes).iter().map(|name| node.root(name)).collect();
        let (made, written) = node.fill(&roots, pieces);
        most = most.max(written);
        // Space came back whole: the last rounds take what the first took.
        assert!(written * 10 >= most * 9, "seed {seed}: {written} pieces, {most} before");
        if round == 2 {
            node.engine.halt();
            world.power_cut();
            node = Node::open(&world).0;
        }
        for (root, names) in roots.iter().zip(&made) {
            for name in names {
                node.remove(*root, name).unwrap();
            }
        }
        node.consistency_point();
        node.settle();
    }
    let root = node.root(&names(volumes)[0]);
    node.write_file(root, "again", content(1, 5_000_000));
    assert_eq!(node.read_file(root, "again").unwrap(), content(1, 5_000_000));
    assert!(node.engine.aggregate_named("a1").unwrap().failure().is_none());
}

#[test]
fn a_full_volume_takes_more_when_it_is_larger_and_less_when_it_is_smaller() {
    const SMALL_BLOCKS: u64 = 1024;
    const LARGE_BLOCKS: u64 = 4096;
    let world = SimulatedWorld::new(11);
    let node = tiny(&world, RaidKind::Raid4, 1);
    let request = VolumeRequest::new("home", "a1", SMALL_BLOCKS);
    node.wait(|done| node.engine.create_volumes(request, done)).unwrap();
    let resize = |node: &Node, blocks: u64| {
        node.wait(|done| node.engine.resize_volume("home", blocks, done))
    };
    let root = node.root("home");
    let fill = |node: &Node| {
        let written = node.fill(&[root], 4).1;
        node.commit_all();
        written
    };
    let total = |node: &Node| node.statistics(root).total_bytes / units::BLOCK_SIZE_U64;
    let small = fill(&node);
    resize(&node, LARGE_BLOCKS).unwrap();
    assert_eq!(total(&node), LARGE_BLOCKS);
    // Names of the second filling are those of the first.
    let names: Vec<String> = (0..1000).map(|number| format!("file{number}")).collect();
    let empty = |node: &Node| {
        for name in &names {
            assert!(matches!(node.remove(root, name), Ok(()) | Err(FsError::NotFound)));
        }
        node.commit_all();
    };
    let refused = resize(&node, SMALL_BLOCKS / 2).unwrap_err();
    assert!(refused.to_string().contains("files and snapshots use"), "{refused}");
    empty(&node);
    let large = fill(&node);
    assert!(large >= 3 * small, "{large} pieces, {small} before");
    resize(&node, LARGE_BLOCKS + 500).unwrap();
    node.engine.halt();
    world.power_cut();
    let node = Node::open(&world).0;
    assert_eq!(total(&node), LARGE_BLOCKS + 500);
    empty(&node);
    resize(&node, SMALL_BLOCKS).unwrap();
    assert_eq!(total(&node), SMALL_BLOCKS);
    let again = fill(&node);
    assert!(again.abs_diff(small) <= small / 8, "{again} pieces, {small} at first");
    node.engine.halt();
    world.power_cut();
    let node = Node::open(&world).0;
    assert_eq!(total(&node), SMALL_BLOCKS);
    assert!(node.fill(&[root], 4).1 <= small / 8, "it is still full");
}

#[test]
fn one_volume_is_filled_and_emptied() {
    filled_and_emptied(1, RaidKind::Raid4, 1, 40);
    filled_and_emptied(2, RaidKind::None, 1, 1);
}

#[test]
fn a_traditional_volume_is_filled_and_emptied() {
    filled_and_emptied(3, RaidKind::Raid4, 0, 40);
    filled_and_emptied(4, RaidKind::None, 0, 1);
}

#[test]
fn many_volumes_are_filled_and_emptied() {
    filled_and_emptied(5, RaidKind::Raid4, 40, 3);
    filled_and_emptied(6, RaidKind::None, 100, 1);
}

#[test]
fn volumes_are_refused_before_the_aggregate_has_no_room_for_their_roots() {
    let world = SimulatedWorld::new(7);
    let node = tiny(&world, RaidKind::Raid4, 1);
    let root = node.root("v0");
    node.fill(&[root], 16);
    let mut made = 0;
    let refusal = loop {
        let request = VolumeRequest::new(&format!("w{made}"), "a1", 1024);
        match node.wait(|done| node.engine.create_volumes(request, done)) {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 1000, "an aggregate that is full takes volume after volume");
    };
    assert!(refusal.to_string().contains("the aggregate is full"), "{refusal}");
    node.wait(|done| node.engine.delete_volume("v0", done)).unwrap();
    node.settle();
    let root = node.root(if made > 0 { "w0" } else { return });
    node.write_file(root, "again", content(1, 1_000_000));
}

#[test]
fn what_is_said_to_be_free_can_be_written() {
    for (seed, volumes) in [(8, 1), (9, 0)] {
        let world = SimulatedWorld::new(seed);
        let node = tiny(&world, RaidKind::Raid4, volumes);
        let root = node.root(&names(volumes)[0]);
        for (number, target) in [20_u64 << 20, 10 << 20, 0].into_iter().enumerate() {
            let available = node.statistics(root).available_bytes;
            let file = node.create_file(root, &format!("part{number}")).unwrap();
            let room = available.saturating_sub(target) / PIECE_BYTES as u64;
            assert!(room > 0, "{available} bytes");
            for piece in 0..room {
                let data = content(piece, PIECE_BYTES);
                let written = node.write_piece(file, piece * PIECE_BYTES as u64, data);
                assert!(written.is_ok(), "piece {piece} of {room}: {available} bytes were free");
            }
        }
    }
}

#[test]
fn room_shows_as_soon_as_it_is_asked_for() {
    let world = SimulatedWorld::new(10);
    let node = tiny(&world, RaidKind::Raid4, 1);
    let root = node.root("v0");
    let (made, _) = node.fill(&[root], 16);
    let before = node.statistics(root).available_bytes;
    for name in &made[0] {
        node.remove(root, name).unwrap();
    }
    // Nobody waits for the timer, which this world's clock has not reached.
    let after = node.statistics(root).available_bytes;
    assert!(after > before + (20 << 20), "{before} bytes were free, {after} are");
}

#[test]
fn snapshots_are_deleted_on_a_full_aggregate() {
    let world = SimulatedWorld::new(11);
    let node = tiny(&world, RaidKind::Raid4, 1);
    let root = node.root("v0");
    let request = |request| node.wait(|done| node.engine.request_snapshot("v0", request, done));
    node.write_file(root, "kept", content(1, 20_000_000));
    request(SnapshotRequest::Create("full".to_owned())).unwrap();
    let (made, _) = node.fill(&[root], 16);
    for name in made[0].iter().chain([&"kept".to_owned()]) {
        node.remove(root, name).unwrap();
    }
    node.settle();
    node.fill(&[root], 16);
    request(SnapshotRequest::Delete("full".to_owned())).unwrap();
    node.settle();
    node.write_file(root, "again", content(2, 10_000_000));
    assert_eq!(node.read_file(root, "again").unwrap(), content(2, 10_000_000));
}

/// Makes snapshots of a volume until no more is taken; how many, and why no more.
fn make_snapshots(node: &Node, volume: &str) -> (u64, String) {
    for made in 0.. {
        let request = SnapshotRequest::Create(format!("snapshot{made}"));
        let outcome = node.wait(|done| node.engine.request_snapshot(volume, request, done));
        if let Err(error) = outcome {
            return (made, error.to_string());
        }
        node.settle();
    }
    unreachable!("there is a limit")
}

/// A snapshot keeps the metafiles of its image, which no operation was charged for.
#[test]
fn snapshots_fill_what_there_is_and_are_refused_then() {
    let most = "has 1023 snapshots, the most";
    let (volume_is, aggregate_is) = ("the volume is full", "the aggregate is full");
    for (volume, is_filled, least, why) in [
        ("v0", false, 1023, most),
        ("v0", true, 10, aggregate_is),
        ("a1", false, 1023, most),
        ("a1", true, 10, aggregate_is),
        ("small", false, 100, volume_is),
    ] {
        let world = SimulatedWorld::new(13);
        let node = tiny(&world, RaidKind::Raid4, usize::from(volume != "a1"));
        if volume == "small" {
            let request = VolumeRequest::new("small", "a1", 1024);
            node.wait(|done| node.engine.create_volumes(request, done)).unwrap();
        }
        let root = node.root(volume);
        node.write_file(root, "kept", content(1, 1 << 20));
        if is_filled {
            let (files, _) = node.fill(&[root], 16);
            for name in files[0].iter().take(4) {
                node.remove(root, name).unwrap();
            }
            node.consistency_point();
            node.settle();
        }
        let (made, refused) = make_snapshots(&node, volume);
        assert!(made >= least && refused.contains(why), "{made} snapshots: {refused}");
        for snapshot in 0..made {
            let request = SnapshotRequest::Delete(format!("snapshot{snapshot}"));
            node.wait(|done| node.engine.request_snapshot(volume, request, done)).unwrap();
        }
        node.settle();
        node.write_file(root, "again", content(2, 600_000));
        assert_eq!(node.read_file(root, "again").unwrap(), content(2, 600_000));
        assert_eq!(node.read_file(root, "kept").unwrap(), content(1, 1 << 20));
    }
}

#[test]
fn many_volumes_delete_their_snapshots_at_once_on_a_full_aggregate() {
    const VOLUMES: usize = 60;
    let world = SimulatedWorld::new(12);
    let node = tiny(&world, RaidKind::None, VOLUMES);
    let roots: Vec<FileHandle> = names(VOLUMES).iter().map(|name| node.root(name)).collect();
    for (root, name) in roots.iter().zip(names(VOLUMES)) {
        node.write_file(*root, "kept", content(1, 300_000));
        let request = SnapshotRequest::Create("full".to_owned());
        node.wait(|done| node.engine.request_snapshot(&name, request, done)).unwrap();
        node.remove(*root, "kept").unwrap();
    }
    let (_, written) = node.fill(&roots, 1);
    assert!(written > 100, "{written} pieces");
    for name in names(VOLUMES) {
        let request = SnapshotRequest::Delete("full".to_owned());
        node.engine.request_snapshot(&name, request, Box::new(|outcome| outcome.unwrap()));
    }
    node.settle();
    let (_, more) = node.fill(&roots, 1);
    assert!(more > VOLUMES as u64 * 3, "{more} pieces of {VOLUMES} times 300 kB");
}

/// Has many volumes of a full aggregate deal with their snapshots at one freeze; how many of them
/// were refused.
fn all_at_once(
    (volumes, kept_bytes): (usize, usize),
    request: fn(String) -> SnapshotRequest,
) -> (Node, Vec<FileHandle>, usize) {
    let world = SimulatedWorld::new(12);
    let node = tiny(&world, RaidKind::None, volumes);
    let names = names(volumes);
    let roots: Vec<FileHandle> = names.iter().map(|name| node.root(name)).collect();
    for (root, name) in roots.iter().zip(&names) {
        node.write_file(*root, "kept", content(1, kept_bytes));
        let request = SnapshotRequest::Create("full".to_owned());
        node.wait(|done| node.engine.request_snapshot(name, request, done)).unwrap();
    }
    node.fill(&roots, 1);
    let refused: Arc<Mutex<(usize, usize)>> = Arc::default();
    for name in &names {
        let slot = Arc::clone(&refused);
        let answered = move |outcome: Result<(), _>| {
            let (all, refused) = &mut *slot.lock();
            *all += 1;
            *refused += usize::from(outcome.is_err());
        };
        node.engine.request_snapshot(name, request("full".to_owned()), Box::new(answered));
    }
    node.settle();
    let failure = node.engine.aggregate_named("a1").unwrap().failure();
    assert!(failure.is_none(), "{failure:?}");
    let (all, refused) = *refused.lock();
    assert_eq!(all, volumes, "each is answered");
    (node, roots, refused)
}

/// The consistency point found no room for what restores write, and the aggregate went out of
/// service.
#[test]
fn regression_many_volumes_are_restored_at_once_on_a_full_aggregate() {
    for (volumes, kept_bytes) in [(15, 1_000_000), (60, 300_000), (120, 60_000)] {
        let (node, roots, refused) = all_at_once((volumes, kept_bytes), SnapshotRequest::Restore);
        // With so many there may be no room for the maps of some, which say so.
        assert!(refused == 0 || volumes == 120, "{refused} of {volumes} are not restored");
        for root in &roots {
            assert!(node.read_file(*root, "kept").unwrap() == content(1, kept_bytes));
        }
        let restored = roots.iter().filter(|root| node.read_file(**root, "file0").is_err());
        assert_eq!(restored.count(), volumes - refused);
    }
}

#[test]
fn regression_very_many_volumes_delete_their_snapshots_at_once_on_a_full_aggregate() {
    let (_, _, refused) = all_at_once((120, 60_000), SnapshotRequest::Delete);
    assert_eq!(refused, 0);
}

/// Sixty volumes with a late snapshot on a full aggregate, and removals until there is no room for
/// more. Some of the files are so long that they are emptied in the background.
fn removals_without_end() -> (Node, Vec<FileHandle>) {
    const VOLUMES: usize = 60;
    let world = SimulatedWorld::new(12);
    let node = tiny(&world, RaidKind::None, VOLUMES);
    let names = names(VOLUMES);
    let roots: Vec<FileHandle> = names.iter().map(|name| node.root(name)).collect();
    for root in &roots {
        for number in 0..160 {
            let file = node.create_file(*root, &format!("kept{number}")).unwrap();
            if number % 40 == 39 {
                node.write_piece(file, 1 << 30, content(number, 4096)).unwrap();
            }
        }
    }
    node.consistency_point();
    node.settle();
    for name in &names {
        let request = SnapshotRequest::Create("late".to_owned());
        node.wait(|done| node.engine.request_snapshot(name, request, done)).unwrap();
    }
    node.settle();
    node.fill(&roots[VOLUMES - 1..], 1);
    node.consistency_point();
    node.settle();
    let mut refused = 0;
    'all: for number in (7..160).step_by(8) {
        for root in &roots[..VOLUMES - 1] {
            match node.remove(*root, &format!("kept{number}")) {
                Ok(()) => {}
                Err(FsError::NoSpace) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            if refused > 100 {
                break 'all;
            }
        }
    }
    assert!(refused > 100, "only {refused} are refused");
    (node, roots)
}

/// Snapshots keep what removals write anew, until there is no room for another removal. A removal
/// waited then for a commit that never came, and so did the background work: for ever, at 100 % of
/// a processor. Restoring and deleting snapshots works all the same.
#[test]
fn regression_removals_without_room_are_refused_and_snapshots_make_room() {
    let (node, roots) = removals_without_end();
    // It comes to rest.
    node.settle();
    let request = |volume: &str, request: SnapshotRequest| {
        node.wait(|done| node.engine.request_snapshot(volume, request, done)).unwrap();
    };
    request("v7", SnapshotRequest::Restore("late".to_owned()));
    assert!(node.read_file(roots[7], "kept7").is_ok());
    for volume in 0..60 {
        request(&format!("v{volume}"), SnapshotRequest::Delete("late".to_owned()));
    }
    node.settle();
    node.write_file(roots[3], "again", content(2, 1_000_000));
    assert_eq!(node.read_file(roots[3], "again").unwrap(), content(2, 1_000_000));
}

/// A volume of its own was full after removals that its snapshot kept from freeing anything, and a
/// restore was refused. It is what makes room.
#[test]
fn regression_a_volume_is_restored_after_everything_was_removed() {
    let world = SimulatedWorld::new(12);
    let node = tiny(&world, RaidKind::None, 1);
    let request = VolumeRequest::new("small", "a1", 1024);
    node.wait(|done| node.engine.create_volumes(request, done)).unwrap();
    let root = node.root("small");
    let name = |number: u64| format!("a file with a long name, number {number}");
    for number in 0..6000 {
        node.create_file(root, &name(number)).unwrap();
    }
    node.consistency_point();
    node.settle();
    let request = |request| node.wait(|done| node.engine.request_snapshot("small", request, done));
    request(SnapshotRequest::Create("all".to_owned())).unwrap();
    node.settle();
    node.fill(&[root], 1);
    for number in 0..6000 {
        node.remove(root, &name(number)).unwrap();
    }
    node.consistency_point();
    node.settle();
    request(SnapshotRequest::Restore("all".to_owned())).unwrap();
    assert!(node.read_file(root, &name(17)).is_ok());
}

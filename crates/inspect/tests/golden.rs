//! Images of aggregates that earlier builds wrote, kept for ever: each is opened by this build, or
//! refused with the message that says why.
//!
//! `tests/golden/` has two files for each image. `NAME.image` is every block of its disks and its
//! log, compressed. `NAME.txt` is what a client has to find in it, or `NAME.refused` is what this
//! build says of each of its disks. An image is never written again: a build whose format differs
//! adds one of its own, with
//!
//!     GOLDEN_WRITE=NAME cargo test -p inspect --test golden
//!
//! which writes the images of [`KINDS`] under names that begin with `NAME`, unless they are there.
//! `NAME` is the version of the format, and what else is new.

#![allow(clippy::unwrap_used, reason = "a test's helpers")]

mod logs;
mod node;

use bytes::Bytes;
use file_service::{
    Caller, CreateMode, Done, FileKind, FileService, NewNode, SetAttributes, Stability, calls,
};
use model_fs::{Image, Mix, Numbers};
use node::Node;
use ondisk::identity::crc32c_of_bytes;
use ondisk::label::RaidKind;
use ondisk::log::LogHeader;
use platform::simulated::SimulatedWorld;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use units::{BLOCK_SIZE, Block};
use volume::SnapshotRequest;

/// What is written: a name, the seed of the work, the kind of RAID, whether it is a traditional
/// volume.
const KINDS: [(&str, u64, RaidKind, bool); 3] = [
    ("raid4", 1, RaidKind::Raid4, false),
    ("dp", 2, RaidKind::Dp, false),
    ("traditional", 4, RaidKind::None, true),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Disks as bytes: of each the length of its name, its name, its size in blocks, how many blocks
/// are not zero, and these, each behind its number. All numbers have 8 bytes, little-endian.
fn packed(world: &SimulatedWorld) -> Vec<u8> {
    let mut bytes = Vec::new();
    let number = |bytes: &mut Vec<u8>, number: u64| bytes.extend(number.to_le_bytes());
    for name in world.disk_names() {
        let size_blocks = world.disk(&name).map_or(0, |disk| platform::Disk::size_blocks(&*disk));
        let content = (0..size_blocks).filter_map(|block| {
            let found = world.read_block(&name, block)?;
            (!found.is_zero()).then_some((block, found))
        });
        let content: Vec<_> = content.collect();
        number(&mut bytes, name.len() as u64);
        bytes.extend(name.as_bytes());
        number(&mut bytes, size_blocks);
        number(&mut bytes, content.len() as u64);
        for (block, found) in content {
            number(&mut bytes, block);
            bytes.extend(found.bytes());
        }
    }
    bytes
}

/// The world of packed disks.
fn unpacked(bytes: &[u8]) -> SimulatedWorld {
    let world = SimulatedWorld::new(7);
    let mut rest = bytes;
    let mut take = |count: usize| {
        let (taken, left) = rest.split_at(count);
        rest = left;
        taken
    };
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let mut left = bytes.len();
    while left > 0 {
        let name_bytes = number(take(8)) as usize;
        let name = String::from_utf8(take(name_bytes).to_vec()).unwrap();
        let (size_blocks, count) = (number(take(8)), number(take(8)));
        world.add_disk(&name, size_blocks);
        for _ in 0..count {
            let block = number(take(8));
            world.write_block(&name, block, &Block::from_prefix(take(BLOCK_SIZE)));
        }
        left -= 24 + name_bytes + count as usize * (8 + BLOCK_SIZE);
    }
    world
}

/// What this build says of disks that it does not read: a line for each.
fn refusals(world: &SimulatedWorld) -> String {
    let mut text = String::new();
    for name in world.disk_names() {
        let disk: Arc<dyn platform::Disk> = world.disk(&name).unwrap();
        let head = world.read_block(&name, 0).unwrap();
        let refused = if LogHeader::is_claimed_by(&head) {
            LogHeader::from_block(&head).unwrap_err().to_string()
        } else {
            world.wait(|done| media::read_label(&disk, done)).unwrap_err().to_string()
        };
        writeln!(text, "{name}: {refused}").unwrap();
    }
    text
}

/// What a client finds: a line for each file, and for each snapshot.
fn description(node: &Node, snapshots: &[&str]) -> String {
    let mut drive = || {
        node.run();
    };
    let image = Image::capture(&*node.service, node.root(), &mut drive).unwrap();
    let mut text = String::new();
    for (path, found) in &image.nodes {
        let content: Vec<u8> = found
            .blocks
            .iter()
            .filter(|(_, block)| !block.is_zero())
            .flat_map(|(fbn, block)| fbn.to_le_bytes().into_iter().chain(block.bytes().to_vec()))
            .collect();
        let kind = match found.kind {
            FileKind::Regular => "file",
            FileKind::Directory => "directory",
            FileKind::Symlink => "link",
            FileKind::BlockDevice => "block",
            FileKind::CharacterDevice => "character",
            FileKind::Fifo => "fifo",
            FileKind::Socket => "socket",
        };
        writeln!(
            text,
            "/{} {kind} mode {:o} links {} owner {}:{} size {} content {:08x} device {}:{} text \
             '{}' xattrs {}",
            path.escape_ascii(),
            found.mode,
            found.links,
            found.uid,
            found.gid,
            found.size,
            crc32c_of_bytes(&content),
            found.device.0,
            found.device.1,
            found.text.escape_ascii(),
            found.xattrs.iter().fold(String::new(), |all, (name, value)| {
                format!("{all}{}={:08x},", name.escape_ascii(), crc32c_of_bytes(value))
            }),
        )
        .unwrap();
    }
    for snapshot in snapshots {
        let digest = node.inspect(|inspector| inspector.snapshot_digest(node.volume, snapshot));
        writeln!(text, "snapshot {snapshot} {:016x}", digest.unwrap()).unwrap();
    }
    text
}

const SNAPSHOTS: [&str; 2] = ["first", "second"];

/// Entries of a directory whose tree has two levels.
const ENTRIES: usize = 300;
/// Where a file has a block each: its tree has three levels.
const OFFSETS: [u64; 4] = [0, 9 << 12, 1 << 30, 40 << 30];

/// A large directory and a file with far holes, which random work does not make.
fn make_large(node: &Node) {
    let caller = Caller::root();
    let ask = |directory, name: String| {
        let (set, mode) = (SetAttributes::default(), CreateMode::Guarded);
        let call = calls::Create { directory, name: name.into_bytes(), mode, set };
        let made = node.wait(|done: Done<_>| node.service.create(&caller, call, done));
        made.unwrap().0.handle
    };
    let make = calls::MakeNode {
        directory: node.root(),
        name: b"many".to_vec(),
        node: NewNode::Directory,
        set: SetAttributes::default(),
    };
    let made = node.wait(|done: Done<_>| node.service.make_node(&caller, make, done));
    let directory = made.unwrap().0.handle;
    for entry in 0..ENTRIES {
        ask(directory, format!("entry number {entry}"));
    }
    let file = ask(directory, "far".to_owned());
    for offset in OFFSETS {
        let data = Bytes::from(format!("at {offset}"));
        let write = calls::Write { file, offset, stability: Stability::FileSync, data };
        node.wait(|done: Done<_>| node.service.write(&caller, write, done)).unwrap();
    }
}

/// Has everything that was written survive a power cut.
fn commit_all(node: &Node) {
    let mut drive = || {
        node.run();
    };
    let image = Image::capture(&*node.service, node.root(), &mut drive).unwrap();
    for found in image.nodes.values().filter(|found| found.kind == FileKind::Regular) {
        let call = calls::Commit::of(found.handle);
        node.wait(|done: Done<_>| node.service.commit(&Caller::root(), call, done)).unwrap();
    }
}

/// An aggregate after work of every kind, with snapshots, whose power went while the log had
/// operations that no consistency point has.
fn written(seed: u64, kind: RaidKind, traditional: bool) -> (Node, String) {
    let node = Node::create(seed, kind, traditional);
    let world = node.world.clone();
    let mut numbers = || world.choose(u64::MAX);
    for snapshot in [Some(SNAPSHOTS[0]), Some("deleted"), Some(SNAPSHOTS[1]), None] {
        let mut executor = node.executor();
        for _ in 0..25 {
            let operation = Mix::EVERYTHING.operation(&mut Numbers(&mut numbers));
            executor.run(&operation, &mut || {
                node.run();
            });
        }
        if let Some(name) = snapshot {
            node.snapshot(SnapshotRequest::Create(name.to_owned())).unwrap();
        }
    }
    node.snapshot(SnapshotRequest::Delete("deleted".to_owned())).unwrap();
    make_large(&node);
    node.settle();
    let mut executor = node.executor();
    for _ in 0..20 {
        let operation = Mix::EVERYTHING.operation(&mut Numbers(&mut numbers));
        executor.run(&operation, &mut || {
            node.run();
        });
    }
    commit_all(&node);
    let described = description(&node, &SNAPSHOTS);
    (node, described)
}

fn write_images(date: &str) {
    for (name, seed, kind, traditional) in KINDS {
        let path = folder().join(format!("{date}-{name}.image"));
        if path.exists() {
            continue;
        }
        let (node, described) = written(seed, kind, traditional);
        let world = node.world.clone();
        node.engine.halt();
        world.power_cut();
        fs::create_dir_all(folder()).unwrap();
        fs::write(&path, lz4_flex::compress_prepend_size(&packed(&world))).unwrap();
        fs::write(path.with_extension("txt"), described).unwrap();
    }
}

#[test]
fn images_of_every_format_are_opened() {
    if let Some(date) = std::env::var_os("GOLDEN_WRITE") {
        write_images(date.to_str().unwrap());
    }
    let mut images: Vec<PathBuf> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    images.retain(|path| path.extension().is_some_and(|extension| extension == "image"));
    images.sort();
    assert!(images.len() >= 2 * KINDS.len(), "the images are gone: {images:?}");
    for path in images {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let bytes = lz4_flex::decompress_size_prepended(&fs::read(&path).unwrap()).unwrap();
        let world = unpacked(&bytes);
        assert_eq!(packed(&world), bytes, "{name}");
        if let Ok(expected) = fs::read_to_string(path.with_extension("refused")) {
            assert_eq!(refusals(&world), expected, "{name}");
            continue;
        }
        let node = Node::open(&world, name.ends_with("traditional"));
        let expected = fs::read_to_string(path.with_extension("txt")).unwrap();
        assert_eq!(description(&node, &SNAPSHOTS), expected, "{name}");
        node.consistency_point();
        node.expect_clean(name);
        let mut numbers = || world.choose(u64::MAX);
        let mut executor = node.executor();
        for _ in 0..60 {
            let operation = Mix::EVERYTHING.operation(&mut Numbers(&mut numbers));
            executor.run(&operation, &mut || {
                node.run();
            });
        }
        node.consistency_point();
        node.expect_clean(&format!("{name}, after work of this build"));
    }
}

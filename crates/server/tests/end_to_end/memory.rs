//! The cap on memory holds: what the operating system counted for the server at its worst moment,
//! after reading and writing ten times what its cache holds, is within what the configuration says.

use crate::place::{Place, Server};
use nfs_client::{NfsClient, Request, results};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

/// Connections, each with a file of its own, besides two programs on a FUSE mount.
const CONNECTIONS: u64 = 8;
/// What both kinds move at once: the largest transfer of a server with little memory.
const PIECE_BYTES: usize = 128 << 10;

/// The most memory that a process had at one time.
fn peak_bytes(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn piece(seed: u64) -> Vec<u8> {
    crate::files::content(seed, PIECE_BYTES)
}

/// Writes a file over NFS, reads it twice, writes it over, and reads it again.
fn nfs_load(place: &Place, number: u64, pieces: u64) {
    let mut client = NfsClient::connect(place.nfs_address()).unwrap();
    let root = client.mount("/home").unwrap();
    let file = client.create(&root, &format!("nfs{number}")).unwrap();
    for round in 0..2 {
        for index in 0..pieces {
            let data = piece(number << 32 | round << 24 | index);
            let at = index * PIECE_BYTES as u64;
            let answer = client.call(&Request::write(&file, at, &data, index % 4 == 0)).unwrap();
            let written = results::written(&answer).unwrap();
            assert_eq!(written.count as usize, data.len());
        }
        client.commit(&file).unwrap();
        for index in 0..pieces {
            let at = index * PIECE_BYTES as u64;
            let answer = client.call(&Request::read(&file, at, PIECE_BYTES as u32)).unwrap();
            let (data, _) = results::data(&answer).unwrap();
            let expected = piece(number << 32 | round << 24 | index);
            assert!(data == expected, "file {number}, piece {index}, round {round}");
        }
    }
}

/// The same through a mount.
fn fuse_load(mountpoint: &Path, number: u64, pieces: u64) {
    let path = mountpoint.join(format!("fuse{number}"));
    for round in 0..2 {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).unwrap();
        for index in 0..pieces {
            file.write_all(&piece(number << 40 | round << 24 | index)).unwrap();
        }
        file.sync_all().unwrap();
        // The kernel's cache must not answer.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        file.rewind().unwrap();
        let mut data = vec![0; PIECE_BYTES];
        for index in 0..pieces {
            file.read_exact(&mut data).unwrap();
            assert!(data == piece(number << 40 | round << 24 | index), "file {number} at {index}");
        }
    }
}

/// Many small files, so that inodes and directories have their part.
fn names_load(place: &Place, number: u64) {
    let mut client = NfsClient::connect(place.nfs_address()).unwrap();
    let root = client.mount("/home").unwrap();
    let directory = client.make_directory(&root, &format!("names{number}")).unwrap();
    for index in 0..4000 {
        let file = client.create(&directory, &format!("name-{index}")).unwrap();
        client.write(&file, 0, b"a few bytes", false).unwrap();
    }
    assert_eq!(client.list(&directory).unwrap().len(), 4000);
}

/// A load on one volume, beside `idle_volumes` others.
fn stays_within(cap_mib: u64, data_mib: u64, idle_volumes: usize) {
    let place = Place::with_disks(&format!("4x{}M", data_mib), &format!("{cap_mib}M"));
    let server = place.serve();
    place.ok(&["aggr", "create", "a1", "--disks", "4", "--raid", "raid4"]);
    let size = format!("{}M", data_mib * 2);
    place.ok(&[
        "volume",
        "create",
        "home",
        "--size",
        &size,
        "--export",
        "127.0.0.1:rw:none:insecure",
    ]);
    let names: Vec<String> = (0..idle_volumes).map(|number| format!("idle{number}")).collect();
    if idle_volumes > 0 {
        let mut create = vec!["volume", "create", "--size", "1G"];
        create.extend(names.iter().map(String::as_str));
        place.ok(&create);
    }
    let mountpoint = place.path("mountpoint");
    fs::create_dir(&mountpoint).unwrap();
    let mounted = place.stroop(&["mount", "home", &mountpoint.display().to_string()]);
    let mounted = mounted.status.success();
    if !mounted {
        println!("skipped: FUSE cannot be used here");
    }
    let files = CONNECTIONS + 2;
    let pieces = data_mib * (1 << 20) / PIECE_BYTES as u64 / files;
    std::thread::scope(|scope| {
        for number in 0..CONNECTIONS {
            let place = &place;
            scope.spawn(move || nfs_load(place, number, pieces));
        }
        for number in 0..2 {
            let (place, mountpoint) = (&place, &mountpoint);
            scope.spawn(move || match mounted {
                true => fuse_load(mountpoint, number, pieces),
                false => nfs_load(place, CONNECTIONS + number, pieces),
            });
            scope.spawn(move || names_load(place, number));
        }
    });
    let peak = peak_bytes(&server);
    let memory = &place.json(&["status"])["memory"];
    println!("cap {cap_mib} MiB, peak {} KiB: {memory}", peak >> 10);
    assert!(peak <= cap_mib << 20, "{} KiB of {cap_mib} MiB: {memory}", peak >> 10);
    if mounted {
        place.ok(&["unmount", &mountpoint.display().to_string()]);
    }
    server.stop();
}

#[test]
fn the_smallest_cap_holds_over_ten_times_the_cache() {
    // Of 64 MiB the cache has at most 32.
    stays_within(64, 320, 0);
}

/// What volumes take is no block, and blocks make room for it.
#[test]
fn a_cap_holds_with_many_volumes() {
    stays_within(128, 400, 400);
}

/// Memory that is there for blocks, whether they hold something or not, and all that the operating
/// system counts for the server.
fn blocks_and_used_bytes(place: &Place) -> (u64, u64) {
    let memory = &place.json(&["status"])["memory"];
    let of_blocks = |name: &str| ["clean", "dirty", "moving", "spare"].contains(&name);
    let consumers = memory["consumers"].as_array().unwrap().iter();
    let consumers = consumers.filter(|consumer| of_blocks(consumer["name"].as_str().unwrap()));
    let blocks = consumers.map(|consumer| consumer["bytes"].as_u64().unwrap()).sum();
    (blocks, memory["used_bytes"].as_u64().unwrap())
}

/// Of 128 MiB some 68 are for blocks.
const POPULATED_BYTES: u64 = 64 << 20;

#[test]
fn memory_is_there_from_the_start_where_the_configuration_says_so() {
    let place = Place::with_disks("1x64M", "128M");
    let config = place.path("stroop.toml");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains("[node]\n"), "{text}");
    fs::write(&config, text.replace("[node]\n", "[node]\npopulate_at_start = true\n")).unwrap();
    let server = place.serve();
    loop {
        let (blocks, used) = blocks_and_used_bytes(&place);
        assert!(used <= 128 << 20, "{used}");
        if blocks >= POPULATED_BYTES {
            assert!(used >= blocks, "{used} bytes are in memory, and of them {blocks}");
            break;
        }
    }
    server.stop();
}

#[test]
fn memory_is_there_once_a_node_is_used_and_not_before() {
    let place = Place::with_disks("1x512M", "128M");
    let server = place.serve();
    place.ok(&["aggr", "create", "a1", "--disks", "1", "--raid", "none"]);
    let export = "127.0.0.1:rw:none:insecure";
    place.ok(&["volume", "create", "home", "--size", "256M", "--export", export]);
    let (blocks, _) = blocks_and_used_bytes(&place);
    assert!(blocks < 16 << 20, "unused: {blocks}");
    // More than what makes it a node that is used, and less than all, though it is written twice.
    nfs_load(&place, 0, 180);
    while blocks_and_used_bytes(&place).0 < POPULATED_BYTES {}
    server.stop();
}

#[test]
fn a_cap_below_the_minimum_is_refused() {
    let place = Place::with_disks("4x64M", "1G");
    let config = place.path("stroop.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("1GiB", "63MiB")).unwrap();
    let error = place.refused(&["serve"], 2);
    assert!(error.contains("63MiB is not between 64MiB and"), "{error}");
}

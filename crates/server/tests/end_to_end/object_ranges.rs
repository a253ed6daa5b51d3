//! Aggregates on object ranges: a directory, and a bucket of a real S3 server (moto, which
//! `scripts/moto.sh` installs). Without it the test of the bucket fails and says what is missing.

use crate::files::{check, connect, content, fill};
use crate::place::{Place, Server};
use nfs_client::NfsClient;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// An S3 server on a port of its own; killed when it is dropped.
struct Moto {
    child: Child,
    address: SocketAddr,
}

impl Moto {
    fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/moto.sh");
        let found = Command::new(script).output().unwrap();
        let told = String::from_utf8_lossy(&found.stderr).into_owned();
        assert!(found.status.success(), "scripts/moto.sh cannot install the S3 server: {told}");
        let program = String::from_utf8(found.stdout).unwrap();
        let mut command = Command::new(program.trim());
        command.args(["-H", "127.0.0.1", "-p", "0"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the S3 server ended");
            if let Some((_, rest)) = line.split_once("Running on http://") {
                break rest.trim().parse().unwrap();
            }
        };
        // It writes a line for each request, which must go somewhere.
        platform::thread::spawn("moto-log", move || std::io::copy(&mut log, &mut std::io::sink()))
            .unwrap();
        let moto = Self { child, address };
        moto.request("PUT /bucket");
        moto
    }

    /// One request without credentials; the whole answer.
    fn request(&self, what: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(
            stream,
            "{what} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.address
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{what}: {answer}");
        answer
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", "testing".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
        ]
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SECRET: &str = "a-secret-that-nobody-must-see";

fn start_with_volume(place: &Place, disk: &str) -> Server {
    let server = place.serve();
    let listed = place.json(&["disk", "list"]);
    assert_eq!(listed["records"][0]["name"], disk, "{listed}");
    assert_eq!(listed["records"][0]["size_bytes"], 1_u64 << 30);
    place.ok(&["aggr", "create", "a1", "--disks", disk, "--raid", "none", "--dry-run"]);
    place.ok(&["aggr", "create", "a1", "--disks", disk, "--raid", "none"]);
    let export = "127.0.0.1:rw:none:insecure";
    place.ok(&["volume", "create", "home", "--size", "100M", "--export", export]);
    let listed = place.json(&["disk", "list"]);
    assert_eq!(listed["records"][0]["aggregate"], "a1");
    server
}

/// Files over NFS, a kill, a clean stop: all is there each time.
fn check_lives(place: &Place, disk: &str) {
    let server = start_with_volume(place, disk);
    let (mut client, root) = connect(place);
    let directory = client.make_directory(&root, "first").unwrap();
    let model = fill(&mut client, &directory, 1);
    server.kill();

    let server = place.serve();
    assert!(place.check_codes().is_empty(), "{:?}", place.check_codes());
    let (mut client, root) = connect(place);
    check(&mut client, &directory, &model);
    // A consistency point, so that the image is in the objects; then more in the log.
    place.ok(&["snapshot", "create", "home@one"]);
    let second = client.make_directory(&root, "second").unwrap();
    let more = fill(&mut client, &second, 5000);
    server.kill();

    let server = place.serve();
    let (mut client, _) = connect(place);
    check(&mut client, &directory, &model);
    check(&mut client, &second, &more);
    server.stop();

    // Without the size in its name: it is there.
    place.name_disk(disk);
    let server = place.serve();
    let (mut client, _) = connect(place);
    check(&mut client, &directory, &model);
    check(&mut client, &second, &more);
    server.stop();
}

#[test]
fn an_aggregate_lies_in_a_directory_of_objects() {
    let objects = tempfile::tempdir().unwrap();
    let disk = format!("object:{}/range", objects.path().display());
    let place = Place::with_disk(&format!("{disk}?size=1GiB"), Vec::new());
    check_lives(&place, &disk);
    let names = std::fs::read_dir(objects.path().join("range")).unwrap();
    let names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for name in ["disk", "lock", "head-00", "head-08", "tail", "data-0000000000000000"] {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
    assert!(names.iter().all(|name| !name.contains('#')), "{names:?}");
}

/// Objects with blocks of data.
fn data_objects(range: &Path) -> usize {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let names = std::fs::read_dir(range).unwrap().map(name);
    names.filter(|name| name.to_string_lossy().starts_with("data-")).count()
}

#[test]
fn files_move_to_objects_are_read_there_and_go() {
    const FILES: u64 = 3;
    let objects = tempfile::tempdir().unwrap();
    let range = objects.path().join("range");
    let disk = format!("object:{}", range.display());
    let place = Place::with_disks("3x64M", "1G");
    place.add_disk(&format!("{disk}?size=1GiB"));
    let server = place.serve();
    place.ok(&["aggr", "create", "a1", "--disks", "3", "--raid", "raid4"]);
    place.ok(&["aggr", "add", "a1", "--disks", &disk, "--raid", "none"]);
    let export = "127.0.0.1:rw:none:insecure";
    place.ok(&["volume", "create", "home", "--size", "100M", "--export", export]);
    let (mut client, root) = connect(&place);
    for number in 0..FILES {
        let file = client.create(&root, &format!("large-{number}")).unwrap();
        client.write(&file, 0, &content(number, 16 << 20), false).unwrap();
        client.commit(&file).unwrap();
    }
    let mut snapshots = 0;
    // Each is a consistency point.
    let mut snapshot = || {
        snapshots += 1;
        assert!(snapshots < 1000, "{} objects", data_objects(&range));
        place.ok(&["snapshot", "create", &format!("home@{snapshots}")]);
        place.ok(&["snapshot", "delete", &format!("home@{snapshots}"), "--yes"]);
    };
    snapshot();
    assert_eq!(data_objects(&range), 0, "nothing is written there that has room elsewhere");
    let set = place.ok(&["volume", "set", "home", "--tiering-policy", "all"]);
    assert_eq!(set.trim_end(), "home: tiering policy all");
    while data_objects(&range) < 12 {
        snapshot();
    }
    let check = |client: &mut NfsClient, root: &[u8]| {
        for number in 0..FILES {
            let file = client.lookup(root, &format!("large-{number}")).unwrap();
            assert!(client.read(&file).unwrap() == content(number, 16 << 20), "{number}");
        }
    };
    check(&mut client, &root);
    server.kill();
    let server = place.serve();
    let shown = place.json(&["volume", "show", "home"]);
    assert_eq!(shown["tiering_policy"], "all");
    let tiered_bytes = shown["tiered_bytes"].as_u64().unwrap();
    assert!(tiered_bytes >= 12 << 20, "{tiered_bytes}");
    assert_eq!(place.json(&["aggr", "show", "a1"])["tiered_bytes"], tiered_bytes);
    let groups = place.json(&["aggr", "show", "a1", "--map"])["map"]["groups"].clone();
    let cells = |group: usize| groups[group]["cells"].as_array().map(Vec::len);
    assert!(cells(0) > Some(0) && cells(1) == Some(0), "{groups}");
    assert_eq!(groups[1]["media"], "object");
    let ranges = groups[1]["by_free_share"].as_array().unwrap().iter();
    assert!(ranges.map(|areas| areas.as_u64().unwrap()).sum::<u64>() > 0, "{groups}");
    let (mut client, root) = connect(&place);
    check(&mut client, &root);
    assert!(place.check_codes().is_empty(), "{:?}", place.check_codes());
    for number in 0..FILES {
        client.remove(&root, &format!("large-{number}")).unwrap();
    }
    while data_objects(&range) > 0 {
        snapshot();
    }
    server.stop();
}

#[test]
fn objects_go_when_nothing_is_in_them() {
    const FILES: u64 = 5;
    let objects = tempfile::tempdir().unwrap();
    let disk = format!("object:{}/range", objects.path().display());
    let place = Place::with_disk(&format!("{disk}?size=1GiB"), Vec::new());
    let server = start_with_volume(&place, &disk);
    let count = || data_objects(&objects.path().join("range"));
    let (mut client, root) = connect(&place);
    for number in 0..FILES {
        let file = client.create(&root, &format!("large-{number}")).unwrap();
        client.write(&file, 0, &content(number, 16 << 20), false).unwrap();
        client.commit(&file).unwrap();
    }
    // Each snapshot is a consistency point.
    place.ok(&["snapshot", "create", "home@one"]);
    let before = count();
    assert!(before >= 20, "{before} objects of 4 MiB hold 80 MiB");
    for number in 1..FILES {
        client.remove(&root, &format!("large-{number}")).unwrap();
    }
    place.ok(&["snapshot", "create", "home@two"]);
    assert!(count() >= 20, "{}, and a snapshot holds all 80 MiB", count());
    // The second may have caught files that were being freed.
    place.ok(&["snapshot", "delete", "home@one", "--yes"]);
    place.ok(&["snapshot", "delete", "home@two", "--yes"]);
    let mut number = 0;
    // Blocks of deleted snapshots come back in the background, a bit with each consistency point.
    while count() > before / 2 {
        number += 1;
        assert!(number < 1000, "{} of {before} objects are left", count());
        place.ok(&["snapshot", "create", &format!("home@again-{number}")]);
        place.ok(&["snapshot", "delete", &format!("home@again-{number}"), "--yes"]);
    }
    server.kill();
    let _server = place.serve();
    let (mut client, root) = connect(&place);
    let file = client.lookup(&root, "large-0").unwrap();
    assert!(client.read(&file).unwrap() == content(0, 16 << 20));
}

#[test]
fn an_aggregate_lies_in_a_bucket_of_a_real_s3_server() {
    let moto = Moto::start();
    let disk = "s3://bucket/ranges/one";
    let place = Place::with_disk(&format!("{disk}?size=1GiB"), moto.variables());
    check_lives(&place, disk);
    let listing = moto.request("GET /bucket?list-type=2");
    for key in ["disk", "lease", "head-00", "tail", "data-0000000000000000"] {
        assert!(listing.contains(&format!("ranges/one/{key}<")), "{key}: {listing}");
    }
}

#[test]
fn a_bucket_in_use_is_not_taken_and_no_secret_is_told() {
    let moto = Moto::start();
    let disk = "s3://bucket/range";
    let sized = format!("{disk}?size=1GiB");
    let place = Place::with_disk(&sized, moto.variables());
    let server = start_with_volume(&place, disk);
    let other = Place::with_disk(&sized, moto.variables());
    let second = other.serve();
    let listed = other.json(&["disk", "list"]);
    let note = listed["records"][0]["note"].as_str().unwrap();
    assert!(note.contains("in use by another process"), "{note}");
    let create = ["aggr", "create", "b1", "--disks", disk, "--raid", "none", "--force", "--yes"];
    let refused = other.stroop(&create);
    assert!(!refused.status.success());
    let mut second = second;
    second.signal("TERM");
    let (_, log) = second.end();
    assert!(!log.contains(SECRET), "{log}");
    let (mut client, root) = connect(&place);
    let directory = client.make_directory(&root, "work").unwrap();
    let model = fill(&mut client, &directory, 7);
    check(&mut client, &directory, &model);

    // The S3 server goes away for good: the log takes what it can, and nobody is told a secret.
    drop(moto);
    let mut server = server;
    server.signal("KILL");
    let (_, log) = server.end();
    assert!(!log.contains(SECRET) && !log.contains("panicked"), "{log}");
    let status = place.stroop(&["disk", "list"]);
    assert!(!status.status.success());
}

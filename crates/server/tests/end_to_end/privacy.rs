//! Files that hold data are their owner's alone.

use crate::files::{check, connect, fill};
use crate::place::{Place, text};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.append(&mut files(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Whatever the umask; and an image that a user made is taken from others with the aggregate.
#[test]
fn what_a_server_makes_or_takes_nobody_else_may_read() {
    let folder = tempfile::tempdir().unwrap();
    let range = folder.path().join("range");
    let place = Place::new();
    assert_eq!(mode(&place.disk(1)), 0o600);
    let own = place.disk(4);
    fs::remove_file(&own).unwrap();
    File::create(&own).unwrap().set_len(64 << 20).unwrap();
    set_mode(&own, 0o666);
    place.add_disk(&format!("object:{}?size=1GiB", range.display()));
    let server = place.serve();
    assert_eq!(mode(&own), 0o666, "it is nobody's as yet");
    place.ok(&["aggr", "create", "a1", "--disks", "4", "--raid", "raid4"]);
    let objects = format!("object:{}", range.display());
    place.ok(&["aggr", "add", "a1", "--disks", &objects, "--raid", "none"]);
    place.ok(&["volume", "create", "home", "--size", "20M"]);
    server.stop();
    assert_eq!(mode(&range), 0o700);
    let all = [files(&place.path("state")), files(&range)].concat();
    assert!(all.len() > 12, "{all:?}");
    for file in all {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn images_and_journals_of_others_are_refused_with_the_command_that_mends_them() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    server.stop();
    let (disk, journal) = (place.disk(2), files(&place.path("state/journal")).remove(0));
    set_mode(&disk, 0o604);
    let server = place.serve();
    assert_eq!(place.check_codes(), ["AGGR_OFFLINE"], "it is not opened without the disk either");
    let command = format!("chmod 600 {}", disk.display());
    let status = text(&place.stroop(&["status"]).stdout);
    assert!(status.contains(&command), "{status}");
    let error = place.refused(&["aggr", "online", "a1"], 5);
    assert!(error.contains(&command), "{error}");
    set_mode(&disk, 0o600);
    set_mode(&journal, 0o640);
    let error = place.refused(&["aggr", "online", "a1"], 1);
    assert!(error.contains(&format!("chmod 600 {}", journal.display())), "{error}");
    set_mode(&journal, 0o600);
    place.ok(&["aggr", "online", "a1"]);
    assert!(place.check_codes().is_empty());
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    server.stop();
}

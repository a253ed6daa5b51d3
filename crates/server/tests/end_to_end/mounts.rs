//! FUSE mounts of the real binary: what was written through them is there after SIGKILL.
//!
//! Where nothing can be mounted the tests say so and pass.

use crate::files::{connect, content};
use crate::place::{Place, Server, text};
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A directory to mount at. At the end what is mounted there is detached, and it can be removed.
pub struct Mountpoint(PathBuf);

impl Mountpoint {
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Mountpoint {
    fn drop(&mut self) {
        for (program, option) in [("umount", "-l"), ("chattr", "-i")] {
            let _ = Command::new(program).args([option, self.text()]).output();
        }
    }
}

/// Whether volumes can be mounted here; a reason is printed if not.
pub fn can_mount() -> bool {
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        eprintln!("skipped: /dev/fuse cannot be opened: {error}");
        return false;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may mount by the kernel");
        return false;
    }
    true
}

/// A place with a volume that is mounted; none where that cannot be done.
pub fn mounted() -> Option<(Place, Server, Mountpoint)> {
    if !can_mount() {
        return None;
    }
    let (place, server) = Place::with_volume();
    let directory = place.path("mnt");
    fs::create_dir(&directory).unwrap();
    let mountpoint = Mountpoint(directory);
    place.ok(&["mount", "home", mountpoint.text()]);
    Some((place, server, mountpoint))
}

#[test]
fn what_was_written_before_a_sync_is_there_after_a_kill() {
    let Some((place, server, mountpoint)) = mounted() else { return };
    let files = (0..50).map(|number| (format!("file-{number}"), content(number, 30_000)));
    let files: Vec<_> = files.collect();
    for (name, data) in &files {
        fs::write(mountpoint.file(name), data).unwrap();
    }
    assert_eq!(place.json(&["sync", "home"])["volumes"][0], "home");
    server.kill();
    let _server = place.serve();
    for (name, data) in &files {
        assert!(fs::read(mountpoint.file(name)).unwrap() == *data, "{name} differs");
    }
}

/// Programs notice nothing, and the start makes the mount again under the new name.
#[test]
fn a_mount_follows_its_volume_to_a_new_name() {
    let Some((place, server, mountpoint)) = mounted() else { return };
    let data = content(1, 30_000);
    fs::write(mountpoint.file("before"), &data).unwrap();
    let open = fs::File::open(mountpoint.file("before")).unwrap();
    let told = place.ok(&["volume", "rename", "home", "work"]);
    assert!(told.contains(&format!("stays mounted on this machine at {}", mountpoint.text())));
    fs::write(mountpoint.file("after"), &data).unwrap();
    let shown = place.json(&["volume", "show", "work"]);
    assert_eq!(shown["mountpoints"][0], mountpoint.text());
    place.refused(&["volume", "delete", "work", "--yes"], 4);
    place.ok(&["sync"]);
    drop(open);
    server.kill();
    let _server = place.serve();
    for name in ["before", "after"] {
        assert!(fs::read(mountpoint.file(name)).unwrap() == data, "{name} differs");
    }
    assert_eq!(place.json(&["mount"])["records"][0]["volume"], "work");
}

/// A kernel takes the size that it knows for the end of a file: on two mounts, and beside an NFS
/// client, appends were written over what others had appended, and locks and pauses helped nothing.
#[test]
fn regression_appends_write_over_nothing_that_others_wrote() {
    let Some((place, _server, mountpoint)) = mounted() else { return };
    let second = place.path("second");
    fs::create_dir(&second).unwrap();
    let second = Mountpoint(second);
    place.ok(&["mount", "home", second.text()]);
    let (mut client, root) = connect(&place);
    let open = |place: &Mountpoint| {
        OpenOptions::new().create(true).append(true).open(place.file("log")).unwrap()
    };
    let mut logs = [open(&mountpoint), open(&second)];
    let mut expected = Vec::new();
    for number in 0..40_u64 {
        let line = content(number, 700 + 13 * number as usize);
        match number % 4 {
            // NFS has no append: a client writes behind the size that it asked for.
            3 => {
                let file = client.lookup(&root, "log").unwrap();
                client.write(&file, expected.len() as u64, &line, true).unwrap();
            }
            side => logs[side as usize % 2].write_all(&line).unwrap(),
        }
        expected.extend_from_slice(&line);
    }
    for log in logs {
        log.sync_all().unwrap();
    }
    assert!(fs::read(mountpoint.file("log")).unwrap() == expected, "by the first mount");
    assert!(fs::read(second.file("log")).unwrap() == expected, "by the second");
    let file = client.lookup(&root, "log").unwrap();
    assert!(client.read(&file).unwrap() == expected, "over NFS");
    for mountpoint in [&mountpoint, &second] {
        place.ok(&["unmount", mountpoint.text()]);
    }
}

/// `cp`, `sync`, SIGKILL left files of 0 bytes: nothing but the next consistency point, ten seconds
/// later, made durable what was written.
#[test]
fn regression_what_was_closed_is_logged_before_the_next_consistency_point() {
    let Some((place, server, mountpoint)) = mounted() else { return };
    let data = content(7, 1 << 20);
    let state = || {
        let shown = place.json(&["aggr", "show", "a1"]);
        (shown["consistency_point"].as_u64().unwrap(), shown["log_used_bytes"].as_u64().unwrap())
    };
    // A consistency point may come between by chance.
    let logged = (0..3).find_map(|number| {
        let (before, _) = state();
        let name = format!("file-{number}");
        fs::write(mountpoint.file(&name), &data).unwrap();
        loop {
            let (now, used_bytes) = state();
            if now != before {
                return None;
            }
            if used_bytes >= data.len() as u64 {
                return Some(name);
            }
        }
    });
    let name = logged.expect("a closed file is logged");
    server.kill();
    let _server = place.serve();
    assert!(fs::read(mountpoint.file(&name)).unwrap() == data);
}

/// A mount died with its server, and programs then wrote into the directory below.
#[test]
fn regression_mounts_outlive_the_server() {
    let Some((place, server, mountpoint)) = mounted() else { return };
    let data = content(7, 100_000);
    fs::write(mountpoint.file("file"), &data).unwrap();
    let is_back = || fs::read(mountpoint.file("file")).is_ok_and(|found| found == data);
    place.ok(&["sync"]);
    server.kill();
    assert!(!is_back());
    let server = place.serve();
    assert!(is_back(), "it was made again before the server was ready");
    server.stop();
    let below = fs::write(mountpoint.file("stray"), "text");
    let mode = fs::metadata(&mountpoint.0).unwrap().permissions().mode();
    assert!(below.is_err() || mode & 0o777 == 0, "the directory below is sealed");
    let _ = fs::remove_file(mountpoint.file("stray"));
    let server = place.serve();
    assert!(is_back());
    place.ok(&["unmount", mountpoint.text()]);
    fs::write(mountpoint.file("own"), "text").unwrap();
    let refused = place.refused(&["mount", "home", mountpoint.text()], 4);
    assert!(refused.contains("'own' would be hidden"), "{refused}");
    server.stop();
    let _server = place.serve();
    assert!(!is_back(), "it was given up");
    assert_eq!(place.json(&["mount"])["num_records"], 0);
}

#[test]
fn a_mount_that_is_missing_is_a_health_check() {
    let Some((place, _server, mountpoint)) = mounted() else { return };
    assert!(Command::new("umount").arg(mountpoint.text()).status().unwrap().success());
    assert_eq!(place.check_codes(), ["MOUNT_MISSING"]);
    while mount_events(&place) != ["MOUNT_MISSING"] {}
    assert!(place.ok(&["mount"]).contains("missing"));
    let refused = place.refused(&["volume", "delete", "home", "--yes"], 4);
    assert!(refused.contains("unmount"), "{refused}");
    place.ok(&["unmount", mountpoint.text()]);
    assert!(place.check_codes().is_empty());
    while mount_events(&place) != ["MOUNT_MISSING", "MOUNT_MISSING_CLEARED"] {}
}

/// The mount was listed under the name of before, and the volume could be deleted below it.
#[test]
fn regression_a_new_name_that_was_not_recorded_hides_no_mount() {
    let Some((place, server, mountpoint)) = mounted() else { return };
    let in_the_way = place.path("state/mounts.new");
    fs::create_dir(&in_the_way).unwrap();
    let refused = place.refused(&["volume", "rename", "home", "work"], 1);
    assert!(refused.contains("the record of mounts cannot be written"), "{refused}");
    assert_eq!(place.json(&["mount"])["records"][0]["volume"], "work");
    for command in [["volume", "delete", "work", "--yes"], ["volume", "offline", "work", "--yes"]] {
        let refused = place.refused(&command, 4);
        assert!(refused.contains("it is mounted at"), "{refused}");
    }
    // The record follows the volume when it can be written again, though it has the first name.
    fs::remove_dir(&in_the_way).unwrap();
    place.ok(&["volume", "rename", "work", "house"]);
    server.stop();
    let _server = place.serve();
    let listed = place.json(&["mount"]);
    assert_eq!(listed["records"][0]["volume"], "house");
    assert_eq!(listed["records"][0]["missing"], serde_json::Value::Null);
    place.ok(&["unmount", mountpoint.text()]);
}

/// The events about mounts.
fn mount_events(place: &Place) -> Vec<String> {
    let listed = place.json(&["event", "list"]);
    let events = listed["records"].as_array().unwrap();
    let codes = events.iter().map(|event| event["code"].as_str().unwrap().to_owned());
    codes.filter(|code| code.contains("MOUNT")).collect()
}

/// A mount that was there and could not be made again was told by a health check alone.
#[test]
fn regression_a_mount_that_is_not_made_again_is_an_event() {
    let Some((place, server, mountpoint)) = mounted() else { return };
    server.stop();
    let server = place.serve();
    assert_eq!(place.json(&["mount"])["records"][0]["missing"], serde_json::Value::Null);
    server.stop();
    let ended = Command::new("chattr").args(["-i", mountpoint.text()]).output().unwrap();
    assert!(ended.status.success() || fs::metadata(&mountpoint.0).is_ok());
    fs::set_permissions(&mountpoint.0, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&mountpoint.0, place.path("moved")).unwrap();
    let server = place.serve();
    while mount_events(&place).is_empty() {}
    assert_eq!(mount_events(&place), ["MOUNT_MISSING"], "nothing was told of clean restarts");
    server.stop();
    let _server = place.serve();
    assert_eq!(mount_events(&place), ["MOUNT_MISSING"], "it is told once");
    fs::rename(place.path("moved"), &mountpoint.0).unwrap();
    while mount_events(&place).len() < 2 {}
    assert_eq!(mount_events(&place), ["MOUNT_MISSING", "MOUNT_MISSING_CLEARED"]);
}

/// As mount(8) calls it, by its name.
#[test]
fn mount_has_a_helper() {
    let Some((place, _server, mountpoint)) = mounted() else { return };
    let helper = |words: &[&str]| {
        let program = place.path("mount.stroop");
        if !program.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_stroop"), &program).unwrap();
        }
        let config = format!("config={}", place.path("stroop.toml").display());
        let output = Command::new(program).args(words).args(["-o", &config]).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let done = (Some(0), String::new(), String::new());
    let mount = ["home", mountpoint.text(), "-o", "rw,_netdev"];
    assert_eq!(helper(&mount), done, "it is there already");
    place.ok(&["unmount", mountpoint.text()]);
    assert_eq!(helper(&mount), done);
    assert_eq!(place.json(&["mount"])["num_records"], 1);
    let (status, _, error) = helper(&["none", mountpoint.text()]);
    assert!(status == Some(32) && error.contains("none"), "{error}");
    let (status, _, error) = helper(&["home", mountpoint.text(), "-o", "ro"]);
    assert!(status == Some(1) && error.contains("'ro'"), "{error}");
}

/// umount(8) called a helper that gave the mount up: after a clean shutdown, which unmounts
/// everything before it stops the server, the mount was missing.
#[test]
fn regression_a_mount_outlives_a_clean_shutdown_of_the_system() {
    let Some((place, server, mountpoint)) = mounted() else { return };
    fs::write(mountpoint.file("file"), "text").unwrap();
    assert!(Command::new("umount").arg(mountpoint.text()).status().unwrap().success());
    server.stop();
    let _server = place.serve();
    assert_eq!(fs::read(mountpoint.file("file")).unwrap(), b"text");
    // Called by the old name, the program does nothing to the mount.
    let program = place.path("umount.fuse.stroop");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_stroop"), &program).unwrap();
    let config = format!("config={}", place.path("stroop.toml").display());
    let called = Command::new(program).args([mountpoint.text(), "-o", &config]).output().unwrap();
    assert!(!called.status.success());
    assert_eq!(place.json(&["mount"])["num_records"], 1);
}

/// A container that was started meanwhile has a copy of the mount, which the kernel keeps when the
/// mount itself is ended: unmounting it, and the server's stop, waited for ever.
#[test]
fn regression_a_copy_of_a_mount_in_another_namespace_is_not_waited_for() {
    let Some((place, server, mountpoint)) = mounted() else { return };
    let container = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", "echo ready; read line"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        child
    };
    let end = |mut child: std::process::Child| {
        drop(child.stdin.take());
        child.wait().unwrap();
    };
    let first = container();
    place.ok(&["unmount", mountpoint.text()]);
    place.ok(&["mount", "home", mountpoint.text()]);
    let second = container();
    server.stop();
    end(first);
    end(second);
}

/// The server mounted a new volume of the same name where that of an aggregate had been that was
/// away, and programs wrote into the wrong one.
#[test]
fn regression_another_volume_of_the_name_is_not_mounted_in_its_place() {
    if !can_mount() {
        return;
    }
    let (place, server) = Place::with_volume_on("4x64M", ("2", "none"));
    place.ok(&["aggr", "create", "b1", "--disks", "2", "--raid", "none"]);
    let directory = place.path("mnt");
    fs::create_dir(&directory).unwrap();
    let mountpoint = Mountpoint(directory);
    place.ok(&["mount", "home", mountpoint.text()]);
    server.stop();
    let away = |number: usize| place.path(&format!("away-{number}"));
    for number in [1, 2] {
        fs::rename(place.disk(number), away(number)).unwrap();
    }
    let server = place.serve();
    place.ok(&["volume", "create", "home", "--size", "20M", "--aggr", "b1"]);
    let missing = || place.json(&["mount"])["records"][0]["missing"].as_str().map(str::to_owned);
    while missing().is_some_and(|cause| !cause.contains("another one has its name")) {}
    assert!(missing().is_some(), "it is mounted");
    place.ok(&["volume", "rename", "home", "other"]);
    server.stop();
    for number in [1, 2] {
        fs::rename(away(number), place.disk(number)).unwrap();
    }
    let _server = place.serve();
    assert_eq!(missing(), None, "the right one is mounted again");
}

/// What programs have written is in the volume after a clean stop, though they have not closed
/// their files; and no restore goes on below what the kernel believes.
#[test]
fn a_mount_that_writes_back_loses_nothing_at_a_stop_and_refuses_a_restore() {
    let Some((place, server, mountpoint)) = mounted() else { return };
    place.ok(&["unmount", mountpoint.text()]);
    place.ok(&["mount", "home", mountpoint.text(), "--write-back"]);
    place.ok(&["snapshot", "create", "home@one"]);
    let restore = ["snapshot", "restore", "home@one", "--yes"];
    let refused = place.refused(&restore, 4);
    assert!(refused.contains("is mounted with write-back at"), "{refused}");
    let file = fs::File::create(mountpoint.file("a")).unwrap();
    (&file).write_all(&[7; 1 << 20]).unwrap();
    server.stop();
    drop(file);
    let _server = place.serve();
    assert_eq!(place.json(&["mount"])["records"][0]["write_back"], true);
    assert!(fs::read(mountpoint.file("a")).unwrap() == vec![7; 1 << 20]);
    place.ok(&["unmount", mountpoint.text()]);
    place.ok(&restore);
    place.ok(&["mount", "home", mountpoint.text()]);
    assert!(!mountpoint.file("a").exists());
    place.ok(&["unmount", mountpoint.text()]);
}

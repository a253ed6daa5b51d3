//! What files hold, and who may.

use super::{Fixture, NOBODY, run, shell};
use rustix::fs::{AtFlags, FallocateFlags, OFlags, SeekFrom};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

#[test]
fn files_are_made_written_read_and_removed() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.at("a");
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| ((number * 7) >> 3) as u8).collect();
    fs::write(&path, &content).unwrap();
    assert_eq!(fs::read(&path).unwrap(), content);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"tail").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 3_000_004);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(5).unwrap();
    file.write_all_at(b"xyz", 10).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(&path).unwrap(), [&content[..5], &[0; 5], b"xyz"].concat());
    File::create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0, "O_TRUNC");
    fs::remove_file(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::read_dir(fixture.folder.path()).unwrap().count(), 0);
}

/// The mode as `stat` asks for it: for nothing else, so that the kernel may answer with what it
/// knows though it would ask anew for the size (xfstests generic/355, 683 to 685).
fn mode(path: &Path) -> String {
    let output = Command::new("stat").args(["-c", "%a"]).arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn writes_by_others_clear_setuid() {
    let Some(fixture) = Fixture::new() else { return };
    check_that_writes_clear_setuid(&fixture);
}

pub(crate) fn check_that_writes_clear_setuid(fixture: &Fixture) {
    for (name, script) in [
        ("written", "printf x >> written"),
        ("cut", "truncate -s 1 cut"),
        ("emptied", ": > emptied"),
        ("reserved", "fallocate -l 100 reserved"),
        ("kept", "fallocate -n -l 100 kept"),
        ("punched", "fallocate -p -l 4 punched"),
        ("zeroed", "fallocate -z -l 4 zeroed"),
        (
            "direct",
            "dd if=/dev/zero of=direct bs=4096 count=1 oflag=direct conv=notrunc status=none",
        ),
    ] {
        let path = fixture.at(name);
        fs::write(&path, "program").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        shell(fixture.folder.path(), script);
        assert_eq!(mode(&path), "6777", "{name}: root may");
        let script = ["-ec", script];
        run(Command::new("sh").args(script).uid(NOBODY).current_dir(fixture.folder.path()));
        assert_eq!(mode(&path), "777", "{name}");
    }
}

#[test]
fn permissions_are_checked_at_the_open() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.at("a");
    fs::write(&path, "secret").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o606)).unwrap();
    // The file is opened while others may, and used after they may not.
    let script = "exec 3<>a; mkfifo ready go 2>/dev/null; cat <&3";
    let folder = fixture.folder.path();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    run(Command::new("sh").args(["-ec", script]).uid(NOBODY).gid(NOBODY).current_dir(folder));
    let mut opened = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    opened.write_all(b"still").unwrap();
    let refused = Command::new("cat").arg(&path).uid(NOBODY).output().unwrap();
    assert!(!refused.status.success());
}

#[test]
fn unlinked_open_files_live_until_they_are_closed() {
    let Some(mut fixture) = Fixture::new() else { return };
    let path = fixture.at("a");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(b"kept").unwrap();
    fs::remove_file(&path).unwrap();
    file.set_len(3).unwrap();
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), file.metadata().unwrap().nlink()), ("kep", 0));
    assert_eq!(fixture.service.file_count(fixture.root()), 2);
    drop(file);
    // The end of the mount lets go of whatever the kernel did not say it closed.
    fixture.mount.take().unwrap().stop().unwrap();
    assert_eq!(fixture.service.file_count(fixture.root()), 1);
}

#[test]
fn a_file_is_made_without_a_name_and_gets_one() {
    let Some(mut fixture) = Fixture::new() else { return };
    let open = |more| {
        let flags = OFlags::RDWR | OFlags::TMPFILE | more;
        rustix::fs::open(fixture.folder.path(), flags, rustix::fs::Mode::from_raw_mode(0o640))
    };
    let mut file = match open(OFlags::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::OPNOTSUPP) => {
            eprintln!("skipped: this kernel does not send O_TMPFILE (it is older than 6.2)");
            return;
        }
        Err(error) => panic!("O_TMPFILE: {error}"),
    };
    file.write_all(b"kept").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(fixture.folder.path()).unwrap().count(), 0);
    let named = |file: &File, name: &str| {
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
        let (here, follow) = (rustix::fs::CWD, AtFlags::SYMLINK_FOLLOW);
        rustix::fs::linkat(here, link, here, fixture.at(name), follow)
    };
    assert_eq!(named(&file, "a"), Ok(()));
    let found = fs::metadata(fixture.at("a")).unwrap();
    assert_eq!((found.nlink(), found.mode() & 0o7777), (1, 0o640));
    drop(file);
    assert_eq!(fs::read(fixture.at("a")).unwrap(), b"kept");

    let never_named = File::from(open(OFlags::EXCL).unwrap());
    assert_eq!(named(&never_named, "b"), Err(rustix::io::Errno::NOENT));
    assert_eq!(fixture.service.file_count(fixture.root()), 3);
    drop(never_named);
    // The end of the mount lets go of whatever the kernel did not say it closed.
    fixture.mount.take().unwrap().stop().unwrap();
    assert_eq!(fixture.service.file_count(fixture.root()), 2);
}

#[test]
fn holes_are_made_and_found() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.at("a");
    fs::write(&path, vec![7; 65_536]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 4096, 8192).unwrap();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(4096));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(4096)), Ok(12_288));
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 60_000, 10_000).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 100_000, 4096).unwrap();
    let mut expected = vec![7; 70_000];
    expected[4096..12_288].fill(0);
    expected[60_000..].fill(0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    let collapse = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(collapse, Err(rustix::io::Errno::OPNOTSUPP));
    let beyond = rustix::fs::seek(&file, SeekFrom::Data(70_000));
    assert_eq!(beyond, Err(rustix::io::Errno::NXIO));
}

#[test]
fn direct_writes_run_beside_each_other() {
    const WRITERS: u64 = 4;
    const BYTES: u64 = 1 << 20;
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.at("a");
    File::create(&path).unwrap().set_len(WRITERS * BYTES).unwrap();
    let direct = OFlags::DIRECT.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(direct);
    let file = options.open(&path).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let file = &file;
            scope.spawn(move || {
                let data = vec![writer as u8 + 1; BYTES as usize];
                for part in data.chunks(1 << 16).enumerate() {
                    let at = writer * BYTES + (part.0 as u64) * (1 << 16);
                    file.write_all_at(part.1, at).unwrap();
                }
            });
        }
    });
    let found = fs::read(&path).unwrap();
    for (writer, part) in found.chunks(BYTES as usize).enumerate() {
        assert!(part.iter().all(|byte| *byte == writer as u8 + 1));
    }
}

#[test]
fn access_is_the_kernels() {
    let Some(fixture) = Fixture::new() else { return };
    fs::write(fixture.at("a"), "").unwrap();
    let path = fixture.at("a");
    let access = rustix::fs::Access::EXEC_OK;
    let cwd = rustix::fs::CWD;
    let refused = rustix::fs::accessat(cwd, &path, access, AtFlags::empty());
    assert_eq!(refused, Err(rustix::io::Errno::ACCESS));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o100)).unwrap();
    rustix::fs::accessat(cwd, &path, access, AtFlags::empty()).unwrap();
}

/// The kernel may not leave truncation to OPEN: it asks whether a program runs only afterwards.
#[test]
fn regression_a_running_program_is_not_truncated() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.at("program");
    let program =
        ["/usr/bin/sleep", "/bin/sleep"].into_iter().find(|path| fs::exists(path).unwrap());
    // Another process writes it. What this one holds open for writing, a child that a test beside
    // this one has just forked holds too, and such a program cannot be run.
    assert!(Command::new("cp").arg(program.unwrap()).arg(&path).status().unwrap().success());
    let length = fs::metadata(&path).unwrap().len();
    let mut running = Command::new(&path).arg("60").spawn().unwrap();
    for flags in [OFlags::WRONLY, OFlags::RDWR, OFlags::RDONLY | OFlags::TRUNC] {
        let opened = rustix::fs::open(&path, flags, 0.into());
        assert_eq!(opened.unwrap_err(), rustix::io::Errno::TXTBSY, "{flags:?}");
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
    running.kill().unwrap();
    running.wait().unwrap();
    rustix::fs::open(&path, OFlags::RDONLY | OFlags::TRUNC, 0.into()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

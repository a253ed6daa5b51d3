//! Names, owners and attributes.

use super::{Fixture, NOBODY, call, run, shell};
use file_service::{Caller, FileService, calls};
use rustix::fs::{OFlags, RenameFlags, XattrFlags};
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

#[test]
fn inode_numbers_are_the_services() {
    let Some(mut fixture) = Fixture::new() else { return };
    fs::create_dir(fixture.at("d")).unwrap();
    fs::write(fixture.at("d/a"), "x").unwrap();
    let root = Caller::root();
    let lookup = |directory, name: &[u8]| {
        call(|done| {
            fixture.service.lookup(&root, calls::Lookup { directory, name: name.to_vec() }, done)
        })
        .unwrap()
        .handle
    };
    let file = lookup(lookup(fixture.root(), b"d"), b"a");
    assert_eq!(fs::metadata(fixture.at("d/a")).unwrap().ino(), file.inode.get());
    let listed = fs::read_dir(fixture.at("d")).unwrap().next().unwrap().unwrap();
    assert_eq!(std::os::unix::fs::DirEntryExt::ino(&listed), file.inode.get());
    fixture.remount();
    assert_eq!(fs::metadata(fixture.at("d/a")).unwrap().ino(), file.inode.get());
}

#[test]
fn names_link_move_and_swap() {
    let Some(fixture) = Fixture::new() else { return };
    fs::write(fixture.at("a"), "a").unwrap();
    fs::hard_link(fixture.at("a"), fixture.at("b")).unwrap();
    assert_eq!(fs::metadata(fixture.at("a")).unwrap().nlink(), 2);
    symlink("../somewhere", fixture.at("l")).unwrap();
    assert_eq!(fs::read_link(fixture.at("l")).unwrap(), Path::new("../somewhere"));
    fs::create_dir(fixture.at("d")).unwrap();
    assert_eq!(fs::metadata(fixture.folder.path()).unwrap().nlink(), 3);
    fs::rename(fixture.at("b"), fixture.at("d/c")).unwrap();
    let root = rustix::fs::open(fixture.folder.path(), OFlags::DIRECTORY, 0.into()).unwrap();
    let rename = |from, to, flags| rustix::fs::renameat_with(&root, from, &root, to, flags);
    let taken = rename("a", "d", RenameFlags::NOREPLACE);
    assert_eq!(taken, Err(rustix::io::Errno::EXIST));
    rename("a", "d", RenameFlags::EXCHANGE).unwrap();
    assert!(fixture.at("a/c").is_file() && fixture.at("d").is_file());
    let below = fs::rename(fixture.at("a"), fixture.at("a/x"));
    assert_eq!(below.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(fs::remove_dir(fixture.at("a")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
}

#[test]
fn files_belong_to_their_makers() {
    let Some(fixture) = Fixture::new() else { return };
    let folder = fixture.at("shared");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, None, Some(50)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o2777)).unwrap();
    let script = "umask 022; echo x > a; mkdir d; ln -s a l; mkfifo f";
    run(Command::new("sh").args(["-ec", script]).uid(NOBODY).gid(60).current_dir(&folder));
    for name in ["a", "d", "l", "f"] {
        let found = fs::symlink_metadata(folder.join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (NOBODY, 50), "{name}: setgid directory");
    }
    assert_eq!(fs::metadata(folder.join("a")).unwrap().mode(), 0o100_644);
    assert_eq!(fs::metadata(folder.join("d")).unwrap().mode(), 0o042_755);
}

#[test]
fn large_directories_are_listed_whole() {
    const FILES: usize = 3000;
    let Some(fixture) = Fixture::new() else { return };
    for number in 0..FILES {
        File::create(fixture.at(&format!("a rather long name for a file {number}"))).unwrap();
    }
    let names = |path: &Path| {
        let entries = fs::read_dir(path).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let listed = names(fixture.folder.path());
    assert_eq!(listed.len(), FILES);
    assert_eq!(listed.iter().collect::<HashSet<_>>().len(), FILES);
    // Removing while listing neither repeats nor skips.
    let mut removed = 0;
    for entry in fs::read_dir(fixture.folder.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!((removed, names(fixture.folder.path()).len()), (FILES, 0));
}

#[test]
fn extended_attributes_are_kept() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.at("a");
    fs::write(&path, "").unwrap();
    let value = vec![7; 60_000];
    rustix::fs::setxattr(&path, "user.large", &value, XattrFlags::CREATE).unwrap();
    rustix::fs::setxattr(&path, "trusted.t", b"", XattrFlags::empty()).unwrap();
    let again = rustix::fs::setxattr(&path, "user.large", b"", XattrFlags::CREATE);
    assert_eq!(again, Err(rustix::io::Errno::EXIST));
    let mut buffer = vec![0; 65_536];
    let length = rustix::fs::getxattr(&path, "user.large", &mut buffer[..]).unwrap();
    assert_eq!(&buffer[..length], value);
    let short = rustix::fs::getxattr(&path, "user.large", &mut [0_u8; 9][..]);
    assert_eq!(short, Err(rustix::io::Errno::RANGE));
    let length = rustix::fs::listxattr(&path, &mut buffer[..]).unwrap();
    assert_eq!(&buffer[..length], b"trusted.t\0user.large\0");
    rustix::fs::removexattr(&path, "user.large").unwrap();
    let gone = rustix::fs::getxattr(&path, "user.large", &mut buffer[..]);
    assert_eq!(gone, Err(rustix::io::Errno::NODATA));
}

#[test]
fn modes_owners_and_times_are_set() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.at("a");
    OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    File::open(&path).unwrap().set_modified(time).unwrap();
    std::os::unix::fs::chown(&path, Some(7), Some(8)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4711)).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.mode(), found.uid(), found.gid()), (0o104_711, 7, 8));
    assert_eq!(found.modified().unwrap(), time);
    assert!(found.created().unwrap() > time, "birth comes by statx");
    shell(fixture.folder.path(), "mknod device b 8 1; mkfifo fifo; test -b device; test -p fifo");
    assert_eq!(fs::metadata(fixture.at("device")).unwrap().rdev(), 0x801);
}

/// Of a directory that was removed while a program is in it, everything was stale (xfstests
/// generic/035).
#[test]
fn regression_a_removed_directory_is_there_until_it_is_left() {
    let Some(fixture) = Fixture::with(|options| options.cache_time = Duration::ZERO) else {
        return;
    };
    for name in ["removed", "replaced", "other"] {
        fs::create_dir(fixture.at(name)).unwrap();
    }
    let opened = ["removed", "replaced"].map(|name| File::open(fixture.at(name)).unwrap());
    fs::remove_dir(fixture.at("removed")).unwrap();
    fs::rename(fixture.at("other"), fixture.at("replaced")).unwrap();
    for gone in &opened {
        assert_eq!(gone.metadata().unwrap().nlink(), 0);
        gone.sync_all().unwrap();
        let listed = rustix::fs::Dir::read_from(gone).unwrap().count();
        assert_eq!(listed, 0);
    }
    let script = "mkdir in && cd in && rmdir ../in && stat -c %h . && ls -a && ! touch x";
    shell(fixture.folder.path(), script);
    assert_eq!(fs::metadata(fixture.at("replaced")).unwrap().nlink(), 2);
}

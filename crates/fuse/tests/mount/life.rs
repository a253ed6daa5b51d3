//! The mount as a whole: programs, remounts, errors, its end.

use super::{Fixture, call, run, shell};
use file_service::memory::VolumeOptions;
use file_service::{Caller, CreateMode, FileService, FsError, SetAttributes, Stability, calls};
use fuse::{FuseMount, MountError, MountOptions};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn changes_from_elsewhere_are_seen() {
    let Some(fixture) = Fixture::with(|options| options.cache_time = Duration::ZERO) else {
        return;
    };
    let root = Caller::root();
    assert!(!fixture.at("a").exists());
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let directory = fixture.root();
    let guarded = CreateMode::Guarded;
    let made = call(|done| {
        fixture.service.create(
            &root,
            calls::Create { directory, name: b"a".to_vec(), mode: guarded, set },
            done,
        )
    });
    let file = made.unwrap().0.handle;
    assert_eq!(fs::read(fixture.at("a")).unwrap(), b"");
    let write = |text: &'static [u8]| {
        let stability = Stability::FileSync;
        call(|done| {
            fixture.service.write(
                &root,
                calls::Write { file, offset: 0, data: text.into(), stability },
                done,
            )
        })
        .unwrap()
    };
    write(b"one");
    let opened = File::open(fixture.at("a")).unwrap();
    assert_eq!(fs::read(fixture.at("a")).unwrap(), b"one");
    write(b"two");
    let mut bytes = [0; 3];
    opened.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"two", "an open file too");
    call(|done| {
        fixture.service.remove(&root, calls::Remove { directory, name: b"a".to_vec() }, done)
    })
    .unwrap();
    assert!(!fixture.at("a").exists());
    opened.read_exact_at(&mut bytes, 0).unwrap();
}

#[test]
fn file_handles_outlive_the_mount() {
    let Some(mut fixture) = Fixture::new() else { return };
    fs::create_dir(fixture.at("d")).unwrap();
    fs::write(fixture.at("d/a"), "by handle").unwrap();
    let script = r"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [('size', ctypes.c_uint), ('kind', ctypes.c_int), ('bytes', ctypes.c_ubyte * 128)]
handle, mount = Handle(128), ctypes.c_int()
if sys.argv[1] == 'save':
    path = os.fsencode(sys.argv[2])
    assert libc.name_to_handle_at(-100, path, ctypes.byref(handle), ctypes.byref(mount), 0) == 0
    open(sys.argv[3], 'wb').write(bytes(handle))
else:
    ctypes.memmove(ctypes.byref(handle), open(sys.argv[3], 'rb').read(), ctypes.sizeof(handle))
    root = os.open(sys.argv[2], os.O_RDONLY)
    file = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
    assert file >= 0, ctypes.get_errno()
    assert os.read(file, 100) == b'by handle'
";
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3");
        return;
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let kept = elsewhere.path().join("handle");
    let python = |what: &str, path: &Path| {
        run(Command::new("python3").args(["-c", script, what]).arg(path).arg(&kept));
    };
    python("save", &fixture.at("d/a"));
    fixture.remount();
    python("use", fixture.folder.path());
}

#[test]
fn real_programs_work() {
    let Some(fixture) = Fixture::new() else { return };
    check_real_programs(&fixture);
}

pub(crate) fn check_real_programs(fixture: &Fixture) {
    let folder = fixture.folder.path();
    shell(
        folder,
        "mkdir -p tree/one/two; echo text > tree/one/a; ln -s one/a tree/link; \
         ln tree/one/a tree/one/two/b; chmod 750 tree/one; touch -d @1000000000.5 tree/one/a; \
         cp -a tree copy; diff -r tree copy; \
         test $(stat -c %i copy/one/a) = $(stat -c %i copy/one/two/b); \
         test $(stat -c %Y copy/one/a) = 1000000000; \
         tar cf archive.tar tree; mkdir out; tar xf archive.tar -C out; diff -r tree out/tree; \
         rm -rf tree copy out archive.tar; test -z \"$(ls -A)\"",
    );
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("skipped in part: no git");
        return;
    }
    shell(
        folder,
        "export HOME=$PWD; git init -q repo; cd repo; \
         git config user.email a@example.org; git config user.name a; \
         for i in $(seq 50); do echo $i > file$i; done; git add .; git commit -q -m one; \
         mkdir sub; git mv file1 sub/; echo more >> file2; git commit -q -a -m two; \
         git gc -q; git fsck --full --strict; test -z \"$(git status --porcelain)\"; \
         git checkout -q HEAD~1; test -f file1",
    );
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let Some(fixture) = Fixture::with(|options| options.read_only = true) else { return };
    let refused = File::create(fixture.at("a"));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn statfs_tells_the_volumes_size() {
    let Some(fixture) = Fixture::new() else { return };
    let found = rustix::fs::statvfs(fixture.folder.path()).unwrap();
    let options = VolumeOptions::default();
    assert_eq!((found.f_blocks, found.f_files), (options.blocks_max, options.files_max));
    assert_eq!((found.f_bsize, found.f_namemax), (4096, 255));
}

#[test]
fn bad_mounts_say_why() {
    let Some(fixture) = Fixture::new() else { return };
    let start = |options| FuseMount::start(options, Arc::clone(&fixture.service) as _);
    let busy = start(MountOptions::new("home", fixture.folder.path())).unwrap_err();
    assert!(matches!(busy, MountError::Busy { .. }), "{busy}");
    let elsewhere = tempfile::tempdir().unwrap();
    let unknown = start(MountOptions::new("none", elsewhere.path())).unwrap_err();
    assert!(matches!(unknown, MountError::Volume { source: FsError::NotFound, .. }), "{unknown}");
    let missing = start(MountOptions::new("home", elsewhere.path().join("x"))).unwrap_err();
    assert!(missing.to_string().contains("mountpoint"), "{missing}");
}

#[test]
fn an_unmount_from_outside_ends_the_mount() {
    let Some(mut fixture) = Fixture::new() else { return };
    let mount = fixture.mount.take().unwrap();
    assert!(mount.is_mounted());
    run(Command::new("umount").arg(fixture.folder.path()));
    mount.wait().unwrap();
}

#[test]
fn a_stop_frees_the_mountpoint_though_files_are_open() {
    let Some(mut fixture) = Fixture::new() else { return };
    let file = File::create(fixture.at("a")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    fs::remove_file(fixture.at("a")).unwrap();
    fixture.mount.take().unwrap().stop().unwrap();
    assert_eq!(fs::read_dir(fixture.folder.path()).unwrap().count(), 0);
    assert!(file.write_all_at(b"y", 0).is_err(), "the program gets errors");
    fixture.service.verify();
}

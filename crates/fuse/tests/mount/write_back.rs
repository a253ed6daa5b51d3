//! Mounts whose kernel keeps writes in its page cache (decision 56).

use super::content::check_that_writes_clear_setuid;
use super::life::check_real_programs;
use super::{Fixture, NOBODY, call, run};
use file_service::memory::{MemoryFileSystem, VolumeOptions};
use file_service::{
    Attributes, Call as _, Caller, FileHandle, FileService as _, Request, calls, impl_file_service,
};
use platform::linux::SystemClock;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};

/// After so long nothing comes any more.
pub(super) const HANGS_AFTER: Duration = Duration::from_secs(60);

/// A service that tells what it is asked.
struct Watched {
    service: Arc<MemoryFileSystem>,
    asked: Sender<Request>,
}

impl Watched {
    fn note(&self, request: Request) {
        // The test may have ended, and the mount may not.
        let _ = self.asked.send(request);
    }
}

impl_file_service! {
    Watched,
    limits: |it| it.service.limits(),
    call: |it, caller, call, done| {
        it.note(call.clone().into());
        call.send(it.service.as_ref(), caller, done);
    },
}

fn write_back() -> Option<Fixture> {
    Fixture::with(|options| options.write_back = true)
}

fn watched() -> Option<(Fixture, Receiver<Request>)> {
    let service = Arc::new(MemoryFileSystem::new(Arc::new(SystemClock)));
    service.add_volume("home", VolumeOptions::default()).unwrap();
    let (asked, told) = channel();
    let watched = Watched { service: Arc::clone(&service), asked };
    let fixture = Fixture::serving(service, Arc::new(watched), |options| {
        options.write_back = true;
    })?;
    Some((fixture, told))
}

impl Fixture {
    fn found(&self, name: &str) -> (FileHandle, Attributes) {
        let call_with = calls::Lookup { directory: self.root(), name: name.as_bytes().to_vec() };
        let entry = call(|done| self.service.lookup(&Caller::root(), call_with, done)).unwrap();
        (entry.handle, entry.attributes)
    }

    /// What a file of the root directory holds in the service, which knows nothing of the kernel.
    fn stored(&self, name: &str) -> Vec<u8> {
        let (file, attributes) = self.found(name);
        let mut stored = Vec::new();
        while (stored.len() as u64) < attributes.size {
            let read = calls::Read { file, offset: stored.len() as u64, count: 1 << 20 };
            let read = call(|done| self.service.read(&Caller::root(), read, done)).unwrap();
            stored.extend(read.to_vec());
        }
        stored
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn open_direct(path: &Path) -> File {
    let direct = OFlags::DIRECT.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(direct);
    options.open(path).unwrap()
}

/// Runs something on a thread that may not keep setuid by what it writes.
fn without_privilege(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let sets = rustix::thread::capabilities(None).unwrap();
            let effective = sets.effective.difference(CapabilitySet::FSETID);
            let sets = CapabilitySets { effective, ..sets };
            rustix::thread::set_capabilities(None, sets).unwrap();
            work();
        });
    });
}

#[test]
fn small_writes_are_sent_in_large_requests() {
    const WRITES: usize = 4000;
    let Some((fixture, told)) = watched() else { return };
    let mut file = File::create(fixture.at("a")).unwrap();
    for number in 0..WRITES {
        file.write_all(&[number as u8; 100]).unwrap();
    }
    drop(file);
    let requests = told.try_iter().filter(|request| matches!(request, Request::Write(_))).count();
    // A request for each write if they went through.
    assert!(requests < WRITES / 4, "{requests} requests");
    let expected: Vec<u8> = (0..WRITES).flat_map(|number| [number as u8; 100]).collect();
    assert!(fixture.stored("a") == expected);
}

#[test]
fn programs_find_what_is_only_in_the_page_cache() {
    const AT: u64 = 1 << 20;
    let Some(fixture) = write_back() else { return };
    let file = open(&fixture.at("a"));
    file.write_all_at(b"fresh", AT).unwrap();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(AT)), Ok(AT), "cp would leave it out");
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(AT + 5), "all is data");
    assert_eq!(fs::metadata(fixture.at("a")).unwrap().len(), AT + 5);
    run(Command::new("cp").arg("--sparse=always").arg(fixture.at("a")).arg(fixture.at("b")));
    assert_eq!(&fixture.stored("b")[AT as usize..], b"fresh");
}

#[test]
fn allocations_and_truncations_know_of_dirty_pages() {
    let Some(fixture) = write_back() else { return };
    let file = open(&fixture.at("a"));
    file.write_all_at(&[7; 65_536], 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 4096, 8192).unwrap();
    file.write_all_at(&[8; 1000], 64_000).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 60_000, 10_000).unwrap();
    let mut expected = vec![7; 70_000];
    expected[4096..12_288].fill(0);
    expected[60_000..].fill(0);
    file.write_all_at(&[9; 10], 90_000).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 80_000).unwrap();
    expected.resize(90_000, 0);
    expected.extend([9; 10]);
    assert!(fs::read(fixture.at("a")).unwrap() == expected);
    file.set_len(90_005).unwrap();
    file.write_all_at(&[6; 3], 90_004).unwrap();
    file.set_len(200_000).unwrap();
    expected.truncate(90_004);
    expected.extend([6; 3]);
    expected.resize(200_000, 0);
    assert_eq!(file.metadata().unwrap().len(), 200_000);
    drop(file);
    assert!(fixture.stored("a") == expected);
}

#[test]
fn direct_reads_and_writes_know_of_dirty_pages() {
    const AT: u64 = 1 << 20;
    let Some(fixture) = write_back() else { return };
    let (direct, cached) = (open_direct(&fixture.at("a")), open(&fixture.at("a")));
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    cached.write_all_at(&[5; 8192], AT).unwrap();
    let mut found = [1; 4096];
    // The service's file may be empty still: that is not where the file ends.
    direct.read_exact_at(&mut found, 0).unwrap();
    assert!(found == [0; 4096]);
    direct.read_exact_at(&mut found, AT + 4096).unwrap();
    assert!(found == [5; 4096]);
    cached.write_all_at(&[6; 4096], AT).unwrap();
    cached.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
    direct.write_all_at(&[7; 4096], AT + 2048).unwrap();
    assert!(direct.metadata().unwrap().modified().unwrap() > long_ago);
    let expected = [&vec![0; AT as usize][..], &[6; 2048], &[7; 4096], &[5; 2048]].concat();
    assert!(fs::read(fixture.at("a")).unwrap() == expected);
    drop((direct, cached));
    assert!(fixture.stored("a") == expected);
}

#[test]
fn appends_go_to_the_end_that_programs_see() {
    let Some(fixture) = write_back() else { return };
    let append = || OpenOptions::new().append(true).create(true).open(fixture.at("a")).unwrap();
    let (mut first, mut second) = (append(), append());
    first.write_all(b"one ").unwrap();
    second.write_all(b"two ").unwrap();
    fs::set_permissions(fixture.at("a"), Permissions::from_mode(0o4777)).unwrap();
    // The end that the service has is pages before the end that the kernel has, and no dirty page
    // has a part of what is written through.
    first.write_all(&[b'x'; 20_480 - 8]).unwrap();
    // What clears setuid is written through, while what is before it is in the page cache.
    without_privilege(|| second.write_all(b"through").unwrap());
    assert_eq!(fs::metadata(fixture.at("a")).unwrap().mode() & 0o7777, 0o777);
    drop((first, second));
    let expected = [b"one two ".as_slice(), &[b'x'; 20_480 - 8], b"through"].concat();
    assert!(fixture.stored("a") == expected);
}

#[test]
fn pages_are_filled_through_a_file_that_is_open_for_writing_only() {
    let Some(fixture) = write_back() else { return };
    fs::write(fixture.at("a"), [1; 10_000]).unwrap();
    let file = OpenOptions::new().write(true).open(fixture.at("a")).unwrap();
    file.write_all_at(b"xyz", 5000).unwrap();
    drop(file);
    let expected = [&[1; 5000][..], b"xyz", &[1; 4997]].concat();
    assert!(fixture.stored("a") == expected);
}

/// Whether something was committed after the last write.
fn is_committed(told: &Receiver<Request>) -> bool {
    let mut is_committed = false;
    for request in told.try_iter() {
        match request {
            Request::Write(_) => is_committed = false,
            Request::Commit(_) => is_committed = true,
            _ => {}
        }
    }
    is_committed
}

#[test]
fn what_is_synced_is_written_and_committed() {
    let Some((fixture, told)) = watched() else { return };
    let flags = [OFlags::SYNC, OFlags::DSYNC, OFlags::SYNC | OFlags::DIRECT];
    for (number, flags) in flags.into_iter().enumerate() {
        let name = format!("synchronous{number}");
        let mut options = OpenOptions::new();
        options.write(true).create(true).custom_flags(flags.bits().cast_signed());
        let file = options.open(fixture.at(&name)).unwrap();
        file.write_all_at(b"text", 0).unwrap();
        assert!(is_committed(&told), "{flags:?}");
        assert_eq!(fixture.stored(&name), b"text");
    }
    let file = open(&fixture.at("a"));
    file.write_all_at(b"text", 0).unwrap();
    file.sync_data().unwrap();
    assert!(is_committed(&told));
    assert_eq!(fixture.stored("a"), b"text");
}

/// The kernel sends what one program wrote through the descriptor of another.
#[test]
fn what_one_program_closed_is_committed_while_another_has_the_file_open() {
    let Some((fixture, told)) = watched() else { return };
    let mut writer = File::create(fixture.at("a")).unwrap();
    let other = open(&fixture.at("a"));
    writer.write_all(b"text").unwrap();
    drop(writer);
    // The beat that comes after the close. Without it the test would wait for ever.
    let mut requests = std::iter::from_fn(|| told.recv_timeout(HANGS_AFTER).ok());
    assert!(requests.any(|request| matches!(request, Request::Commit(_))));
    assert_eq!(fixture.stored("a"), b"text");
    drop(other);
}

#[test]
fn names_change_while_pages_are_dirty() {
    let Some(mut fixture) = write_back() else { return };
    let file = open(&fixture.at("a"));
    file.write_all_at(b"renamed", 0).unwrap();
    fs::rename(fixture.at("a"), fixture.at("b")).unwrap();
    fs::hard_link(fixture.at("b"), fixture.at("c")).unwrap();
    file.write_all_at(b"!", 7).unwrap();
    drop(file);
    assert_eq!((fixture.stored("b"), fixture.found("c").1.links), (b"renamed!".to_vec(), 2));
    let file = open(&fixture.at("gone"));
    file.write_all_at(&[3; 10_000], 0).unwrap();
    fs::remove_file(fixture.at("gone")).unwrap();
    file.write_all_at(&[4; 10_000], 5000).unwrap();
    file.sync_all().unwrap();
    let mut found = vec![0; 15_000];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == [&[3; 5000][..], &[4; 10_000]].concat());
    file.write_all_at(b"never seen", 0).unwrap();
    drop(file);
    fixture.mount.take().unwrap().stop().unwrap();
    assert_eq!(fixture.service.file_count(fixture.root()), 2, "the root and one file");
}

#[test]
fn a_full_volume_is_told_at_fsync_and_at_close() {
    const VOLUME_BLOCKS: u64 = 64;
    let service = Arc::new(MemoryFileSystem::new(Arc::new(SystemClock)));
    let volume = VolumeOptions { blocks_max: VOLUME_BLOCKS, ..VolumeOptions::default() };
    service.add_volume("home", volume).unwrap();
    let same = Arc::clone(&service);
    let write_back = Fixture::serving(service, same, |options| options.write_back = true);
    let Some(fixture) = write_back else { return };
    let file = open(&fixture.at("a"));
    file.write_all_at(&[1; 1 << 20], 0).unwrap();
    let told = file.sync_all().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::StorageFull, "{told}");
    drop(file);
    fs::remove_file(fixture.at("a")).unwrap();
    let mut copy = Command::new("dd");
    copy.args(["if=/dev/zero", "bs=64k", "count=16"]).env("LC_ALL", "C");
    let copied = copy.arg(format!("of={}", fixture.at("b").display())).output().unwrap();
    let said = String::from_utf8_lossy(&copied.stderr);
    assert!(!copied.status.success() && said.contains("No space left"), "{said}");
    fs::remove_file(fixture.at("b")).unwrap();
    // There is room when the server hears that nobody has it open any more.
    let write = || {
        fs::write(fixture.at("c"), "room again").and_then(|()| open(&fixture.at("c")).sync_all())
    };
    let is_written = (0..10_000).any(|_| write().is_ok());
    assert!(is_written && fixture.stored("c") == b"room again");
}

#[test]
fn the_end_of_a_mount_sends_dirty_pages_first() {
    let Some(mut fixture) = write_back() else { return };
    let file = open(&fixture.at("a"));
    write_much(&file);
    fixture.mount.take().unwrap().stop().unwrap();
    assert!(fixture.stored("a") == vec![1; MUCH_BYTES]);
    assert!(file.write_all_at(b"y", 0).and_then(|()| file.sync_all()).is_err());
    fixture.service.verify();
}

/// A mount that was unmounted lazily, and in which a program was, was cut with what the program had
/// written.
#[test]
fn regression_the_end_of_a_mount_that_was_unmounted_lazily_sends_dirty_pages_first() {
    let Some(mut fixture) = write_back() else { return };
    let file = open(&fixture.at("a"));
    run(Command::new("umount").arg("-l").arg(fixture.folder.path()));
    write_much(&file);
    fixture.mount.take().unwrap().stop().unwrap();
    assert!(fixture.stored("a") == vec![1; MUCH_BYTES]);
    fixture.service.verify();
}

/// More than the kernel has under way at once in the background.
const MUCH_BYTES: usize = 24 << 20;

/// Pages that are not next to each other first: a request for each.
fn write_much(file: &File) {
    let (page, bytes) = ([1; 4096], MUCH_BYTES as u64);
    for start in [0, 4096] {
        (start..bytes).step_by(8192).for_each(|at| file.write_all_at(&page, at).unwrap());
    }
}

#[test]
fn a_lazy_unmount_loses_nothing() {
    let Some(mut fixture) = write_back() else { return };
    let mount = fixture.mount.take().unwrap();
    let file = open(&fixture.at("a"));
    file.write_all_at(&[1; 100_000], 0).unwrap();
    run(Command::new("umount").arg("-l").arg(fixture.folder.path()));
    file.write_all_at(&[2; 50_000], 100_000).unwrap();
    drop(file);
    mount.wait().unwrap();
    assert!(fixture.stored("a") == [[1; 100_000].as_slice(), &[2; 50_000]].concat());
    fixture.service.verify();
}

/// The kernel sends its own time with a truncation. Only the owner may set times, and the mount
/// refused the truncation by another who may write.
#[test]
fn regression_who_may_write_may_truncate() {
    let Some(fixture) = write_back() else { return };
    let path = fixture.at("a");
    fs::write(&path, "program").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o6666)).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    open(&path).set_times(FileTimes::new().set_modified(long_ago)).unwrap();
    for script in ["truncate -s 3 a", ": > a"] {
        let mut shell = Command::new("sh");
        run(shell.args(["-ec", script]).uid(NOBODY).gid(NOBODY).current_dir(fixture.folder.path()));
    }
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.len(), found.mode() & 0o7777), (0, 0o666));
    let stored = fixture.found("a").1;
    assert!(found.modified().unwrap() > long_ago);
    let stored = (stored.mtime.seconds(), i64::from(stored.mtime.subsecond_nanoseconds()));
    assert_eq!((found.mtime(), found.mtime_nsec()), stored, "the same after the kernel forgets it");
}

#[test]
fn times_that_a_program_set_stay() {
    let Some(mut fixture) = write_back() else { return };
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = open(&fixture.at("a"));
    file.write_all_at(&[1; 10_000], 0).unwrap();
    file.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
    drop(file);
    fs::write(fixture.at("b"), "text").unwrap();
    let written = fs::metadata(fixture.at("b")).unwrap().modified().unwrap();
    fixture.remount();
    let modified = |name| fs::metadata(fixture.at(name)).unwrap().modified().unwrap();
    assert_eq!((modified("a"), modified("b")), (long_ago, written));
}

#[test]
fn writes_by_others_clear_setuid_here_too() {
    let Some(fixture) = write_back() else { return };
    check_that_writes_clear_setuid(&fixture);
}

#[test]
fn real_programs_work_here_too() {
    let Some(fixture) = write_back() else { return };
    check_real_programs(&fixture);
}

/// One step of a program that has a file open twice, once past the page cache.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write { is_direct: bool, offset: u64, length: usize, byte: u8 },
    Read { is_direct: bool, offset: u64, length: usize },
    Truncate { size: u64 },
    Punch { offset: u64, length: u64 },
    Zero { offset: u64, length: u64 },
    Sync,
    Reopen,
}

const FILE_BYTES_MAX: u64 = 100_000;

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..FILE_BYTES_MAX, 1..20_000_usize);
    prop_oneof![
        4 => (any::<bool>(), range(), 1..=u8::MAX).prop_map(|(is_direct, range, byte)| {
            let (offset, length) = range;
            Step::Write { is_direct, offset, length, byte }
        }),
        4 => (any::<bool>(), range())
            .prop_map(|(is_direct, (offset, length))| Step::Read { is_direct, offset, length }),
        1 => (0..FILE_BYTES_MAX).prop_map(|size| Step::Truncate { size }),
        1 => range().prop_map(|(offset, length)| Step::Punch { offset, length: length as u64 }),
        1 => range().prop_map(|(offset, length)| Step::Zero { offset, length: length as u64 }),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
    ]
}

/// The file is what its bytes should be, after each step.
fn check_steps(fixture: &Fixture, steps: &[Step]) {
    let path = fixture.at("steps");
    // What a case left that failed.
    let _absent = fs::remove_file(&path);
    let (mut cached, mut direct) = (open(&path), open_direct(&path));
    let mut expected: Vec<u8> = Vec::new();
    for step in steps {
        let through = |is_direct| if is_direct { &direct } else { &cached };
        match *step {
            Step::Write { is_direct, offset, length, byte } => {
                through(is_direct).write_all_at(&vec![byte; length], offset).unwrap();
                let end = offset as usize + length;
                expected.resize(expected.len().max(end), 0);
                expected[offset as usize..end].fill(byte);
            }
            Step::Read { is_direct, offset, length } => {
                let mut found = vec![0xEE; length];
                let count = through(is_direct).read_at(&mut found, offset).unwrap();
                let start = expected.len().min(offset as usize);
                let end = expected.len().min(offset as usize + length);
                assert!(found[..count] == expected[start..end], "{step:?}");
            }
            Step::Truncate { size } => {
                cached.set_len(size).unwrap();
                expected.resize(size as usize, 0);
            }
            Step::Punch { offset, length } | Step::Zero { offset, length } => {
                let is_punch = matches!(step, Step::Punch { .. });
                let keep = FallocateFlags::KEEP_SIZE;
                let how =
                    if is_punch { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
                rustix::fs::fallocate(&cached, how | keep, offset, length).unwrap();
                let start = expected.len().min(offset as usize);
                let end = expected.len().min((offset + length) as usize);
                expected[start..end].fill(0);
            }
            Step::Sync => cached.sync_data().unwrap(),
            Step::Reopen => (cached, direct) = (open(&path), open_direct(&path)),
        }
        assert_eq!(cached.metadata().unwrap().len(), expected.len() as u64, "{step:?}");
    }
    drop((cached, direct));
    assert!(fixture.stored("steps") == expected);
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_is_what_was_written() {
    let Some(fixture) = write_back() else { return };
    let mut runner = TestRunner::new(Config::with_cases(40));
    let steps = prop::collection::vec(step(), 1..40);
    let checked = runner.run(&steps, |steps| {
        check_steps(&fixture, &steps);
        Ok(())
    });
    checked.unwrap();
}

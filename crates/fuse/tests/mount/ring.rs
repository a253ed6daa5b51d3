//! Mounts whose requests come over `io_uring` (decision 57). Needs a kernel that can, and root.
//!
//! The kernel has a switch for it. It is turned on for the moment of the mount, and set back.

use super::life::check_real_programs;
use super::locks::{Shared, shared};
use super::write_back::HANGS_AFTER;
use super::{Fixture, call, run};
use file_service::{Caller, FileService as _, calls};
use fuse::{MountOptions, RequestMemory};
use locks::Mode;
use platform::thread::spawn;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// Most entries of a queue: requests of a processor that are under way at once.
const ENTRIES_MAX: usize = 32;
const MEBIBYTE: usize = 1 << 20;

/// Runs `mount` while the switch is on. None, with a reason printed, where it cannot be turned on.
fn switched_on<T>(mount: impl FnOnce() -> Option<T>) -> Option<T> {
    let switch = OpenOptions::new().read(true).write(true).open(SWITCH);
    let mut switch = switch.inspect_err(|error| eprintln!("skipped: {SWITCH}: {error}")).ok()?;
    // Other tests, and other runs of them, would turn it off too early, or leave it on.
    flock(&switch, FlockOperation::LockExclusive).unwrap();
    let before = fs::read(SWITCH).unwrap();
    let mut turn = |value: &[u8]| switch.rewind().and_then(|()| switch.write_all(value));
    if let Err(error) = turn(b"Y") {
        eprintln!("skipped: {SWITCH} cannot be set: {error}");
        return None;
    }
    let made = catch_unwind(AssertUnwindSafe(mount));
    turn(&before).unwrap();
    made.unwrap_or_else(|panicked| resume_unwind(panicked))
}

fn with(adjust: impl FnOnce(&mut MountOptions)) -> Option<Fixture> {
    let fixture = switched_on(|| Fixture::with(adjust))?;
    assert!(fixture.mount.as_ref().unwrap().is_over_io_uring(), "the switch was on");
    Some(fixture)
}

fn with_locks() -> Option<Shared> {
    let shared = switched_on(shared)?;
    assert!(shared.fixture.mount.as_ref().unwrap().is_over_io_uring(), "the switch was on");
    Some(shared)
}

/// Numbers that look like chance, and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

/// Memory as `O_DIRECT` wants it.
fn aligned(bytes: usize) -> (Vec<u8>, usize) {
    let memory = vec![0; bytes + 4096];
    let start = memory.as_ptr().align_offset(4096);
    (memory, start)
}

/// Writes and reads its part of a file, which has all sizes up to `bytes_max`, and compares.
fn write_and_read(file: &File, start: usize, bytes_max: usize, seed: u64) {
    const CALLS: usize = 60;
    let mut numbers = Numbers(seed);
    let mut model = vec![0; 2 * bytes_max];
    let (mut memory, begin) = aligned(bytes_max);
    for number in 0..CALLS {
        // One in four is as large as can be, one in four is a page.
        let pages = match number % 4 {
            0 => bytes_max / 4096,
            1 => 1,
            _ => numbers.next(bytes_max / 4096) + 1,
        };
        let length = pages * 4096;
        let at = numbers.next((model.len() - length) / 4096 + 1) * 4096;
        let buffer = &mut memory[begin..begin + length];
        if numbers.next(2) == 0 {
            let value = numbers.next(256) as u8;
            for (place, byte) in buffer.iter_mut().enumerate() {
                *byte = value.wrapping_add(place as u8) ^ (place >> 8) as u8;
            }
            file.write_all_at(buffer, (start + at) as u64).unwrap();
            model[at..at + length].copy_from_slice(buffer);
        } else {
            file.read_exact_at(buffer, (start + at) as u64).unwrap();
            assert!(buffer == &model[at..at + length], "{length} bytes at {at}, call {number}");
        }
    }
    let mut all = vec![0; model.len()];
    let whole = &mut all;
    let (mut memory, begin) = aligned(model.len());
    let buffer = &mut memory[begin..begin + model.len()];
    file.read_exact_at(buffer, start as u64).unwrap();
    whole.copy_from_slice(buffer);
    assert!(all == model, "in the end");
}

/// Programs write and read one file at the same time, each its own part, and each a file of its
/// own.
fn check_content(fixture: &Fixture, flags: OFlags) {
    const THREADS: usize = 12;
    const PART: usize = 2 * MEBIBYTE;
    let open = |name: &str| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options.custom_flags(flags.bits() as i32).open(fixture.at(name)).unwrap()
    };
    let shared = Arc::new(open("shared"));
    shared.set_len((THREADS * PART) as u64).unwrap();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (shared, own) = (Arc::clone(&shared), open(&format!("own-{number}")));
            own.set_len(PART as u64).unwrap();
            let body = move || {
                write_and_read(&shared, number * PART, MEBIBYTE, number as u64);
                write_and_read(&own, 0, MEBIBYTE, number as u64 + 100);
            };
            spawn("programs", body).unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn what_is_written_is_read() {
    let Some(fixture) = with(|_| {}) else { return };
    check_real_programs(&fixture);
    check_content(&fixture, OFlags::DIRECT);
    check_content(&fixture, OFlags::empty());
}

#[test]
fn what_is_written_back_is_read() {
    let Some(mut fixture) = with(|options| options.write_back = true) else { return };
    check_real_programs(&fixture);
    check_content(&fixture, OFlags::empty());
    check_content(&fixture, OFlags::DIRECT);
    let mut file = File::create(fixture.at("lines")).unwrap();
    for number in 0..1000 {
        writeln!(file, "{number}").unwrap();
    }
    // The file is open still, and the kernel has all of it.
    fixture.mount.take().unwrap().stop().unwrap();
    drop(file);
    let name = b"lines".to_vec();
    let found = calls::Lookup { directory: fixture.root(), name };
    let found = call(|done| fixture.service.lookup(&Caller::root(), found, done)).unwrap();
    assert_eq!(found.attributes.size, 10 + 90 * 2 + 900 * 3 + 1000);
    fixture.service.verify();
}

#[test]
fn small_memory_goes_without() {
    let Some(fixture) = switched_on(|| {
        Fixture::with(|options| options.request_memory = RequestMemory::new(MEBIBYTE))
    }) else {
        return;
    };
    assert!(!fixture.mount.as_ref().unwrap().is_over_io_uring());
    check_real_programs(&fixture);
}

#[test]
fn who_waits_for_a_lock_can_be_killed_and_gets_it_when_it_is_free() {
    let Some(shared) = with_locks() else { return };
    shared.who_waits_gets_it_or_can_be_killed();
}

/// A lock that is waited for keeps its entry. All entries of a processor were kept by such, and who
/// had the lock could not give it back.
#[test]
fn regression_any_number_of_programs_waits_for_locks_and_the_others_go_on() {
    let Some(shared) = with_locks() else { return };
    let folder = shared.fixture.folder.path();
    // All on one processor, and at once.
    let bound = |command: &str| {
        let mut bound = Command::new("taskset");
        bound.args(["-c", "0", "timeout", "60", "sh", "-c", command]).current_dir(folder);
        bound
    };
    shared.lock(Mode::Exclusive, 0, 9).unwrap();
    let waits = ENTRIES_MAX + 8;
    let many = format!("for i in $(seq {waits}); do flock file true & done; wait");
    for _ in 0..3 {
        let mut waiting = bound(&many).spawn().unwrap();
        // One more, which must not wait for them.
        run(&mut bound("for i in $(seq 100); do echo $i > other; cat other > /dev/null; done"));
        shared.waits(waits);
        run(&mut bound("for i in $(seq 100); do echo $i > other; cat other > /dev/null; done"));
        shared.unlock();
        assert!(waiting.wait().unwrap().success());
        shared.nothing_is_held();
        shared.lock(Mode::Exclusive, 0, 9).unwrap();
    }
}

/// Has this thread run on the first processor only, before all threads of lower `priority` there.
fn run_first(priority: i32) {
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(None, &first).unwrap();
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the structure is the kernel's, and lives as long as the call.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    assert_eq!(result, 0);
}

/// All entries of a processor are taken by waits before the ring's thread comes to run, and a write
/// is behind them. The kernel does not look for it by itself when there are entries again.
#[test]
fn regression_a_request_that_came_while_there_was_no_entry_is_served() {
    let Some(shared) = with_locks() else { return };
    let waits = ENTRIES_MAX + 8;
    let holder = shared.open();
    holder.lock().unwrap();
    let other = File::create(shared.fixture.at("other")).unwrap();
    let begin = Arc::new(Barrier::new(waits + 1));
    let wait = |_| {
        let (file, begin) = (shared.open(), Arc::clone(&begin));
        let body = move || {
            begin.wait();
            run_first(3);
            file.lock().unwrap();
        };
        spawn("waits", body).unwrap()
    };
    let waiting: Vec<_> = (0..waits).map(wait).collect();
    let (written, told) = channel();
    let write = move || {
        begin.wait();
        run_first(2);
        written.send(other.write_all_at(b"x", 0).is_ok()).unwrap();
    };
    let writing = spawn("writes", write).unwrap();
    assert_eq!(told.recv_timeout(HANGS_AFTER), Ok(true));
    holder.unlock().unwrap();
    waiting.into_iter().chain([writing]).for_each(|thread| thread.join().unwrap());
    shared.nothing_is_held();
}

#[test]
fn a_stop_with_open_files_and_waiting_locks_ends_the_mount() {
    let Some(mut shared) = with_locks() else { return };
    shared.lock(Mode::Exclusive, 0, 9).unwrap();
    let mut waiting = shared.flock();
    let file = shared.open();
    file.write_all_at(b"x", 0).unwrap();
    shared.fixture.mount.take().unwrap().stop().unwrap();
    assert!(!waiting.wait().unwrap().success(), "the program gets an error");
    assert!(file.write_all_at(b"y", 0).is_err());
    shared.unlock();
    assert_eq!(shared.manager.counts(), (0, 0));
    shared.fixture.service.verify();
}

#[test]
fn an_unmount_from_outside_ends_the_mount() {
    let Some(mut fixture) = with(|_| {}) else { return };
    let mount = fixture.mount.take().unwrap();
    run(Command::new("umount").arg(fixture.folder.path()));
    mount.wait().unwrap();
}

#[test]
fn a_lazy_unmount_serves_programs_until_they_leave() {
    let Some(mut fixture) = with(|_| {}) else { return };
    let mount = fixture.mount.take().unwrap();
    let file = File::create(fixture.at("a")).unwrap();
    run(Command::new("umount").arg("-l").arg(fixture.folder.path()));
    assert!(mount.is_mounted() && !mount.is_at_mountpoint());
    file.write_all_at(&vec![7; MEBIBYTE], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    mount.wait().unwrap();
}

#[test]
fn an_administrator_cuts_the_connection() {
    let Some(mut fixture) = with(|_| {}) else { return };
    let control = tempfile::tempdir().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "fusectl", "none"]).arg(control.path()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: fusectl cannot be mounted");
        return;
    }
    let device = fs::metadata(fixture.folder.path()).unwrap().dev();
    let number = rustix::fs::minor(device);
    let file = File::create(fixture.at("a")).unwrap();
    let writes = Arc::new(file);
    let programs: Vec<_> = (0..4)
        .map(|_| {
            let file = Arc::clone(&writes);
            let body = move || while file.write_all_at(&[1; 8192], 0).is_ok() {};
            spawn("programs", body).unwrap()
        })
        .collect();
    fs::write(control.path().join(format!("{number}/abort")), "1").unwrap();
    programs.into_iter().for_each(|program| program.join().unwrap());
    run(Command::new("umount").arg(control.path()));
    fixture.mount.take().unwrap().wait().unwrap();
    assert_eq!(fuse::detach_dead(fixture.folder.path()).unwrap(), 1);
}

/// Mounts are made and ended while the switch is turned on and off.
#[test]
fn a_mount_that_is_not_asked_over_a_ring_works_as_ever() {
    let Some(both) = switched_on(|| {
        let over_ring = Fixture::new()?;
        fs::write(SWITCH, "N").unwrap();
        let other = Fixture::new()?;
        Some((over_ring, other))
    }) else {
        return;
    };
    let is_over = |fixture: &Fixture| fixture.mount.as_ref().unwrap().is_over_io_uring();
    assert_eq!((is_over(&both.0), is_over(&both.1)), (true, false));
    for fixture in [&both.0, &both.1] {
        check_real_programs(fixture);
    }
}

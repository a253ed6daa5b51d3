//! Files as disks, with both engines.

use super::*;
use crate::round::Round;
use crate::sync::{Condvar, Mutex};
use crate::{Clock, Disk, DiskError, DiskOpener as _, Entropy};
use std::sync::Arc;
use units::{Block, BlockRef};

/// Waits for a completion.
struct Waiter<T>(Arc<(Mutex<Option<T>>, Condvar)>);

impl<T: Send + 'static> Waiter<T> {
    fn new() -> (Self, Box<dyn FnOnce(T) + Send>) {
        let shared = Arc::new((Mutex::new(None), Condvar::new()));
        let waiter = Self(Arc::clone(&shared));
        let done = Box::new(move |value| {
            *shared.0.lock() = Some(value);
            shared.1.notify_all();
        });
        (waiter, done)
    }

    fn wait(self) -> T {
        let mut value = self.0.0.lock();
        loop {
            match value.take() {
                Some(value) => return value,
                None => self.0.1.wait(&mut value),
            }
        }
    }
}

fn read(disk: &dyn Disk, block: u64, count: usize) -> Result<Vec<BlockRef>, DiskError> {
    let (waiter, done) = Waiter::new();
    disk.read(block, count, done);
    waiter.wait()
}

fn write(disk: &dyn Disk, block: u64, blocks: Vec<BlockRef>) -> Result<(), DiskError> {
    let (waiter, done) = Waiter::new();
    disk.write(block, blocks, done);
    waiter.wait()
}

fn numbered(number: u64) -> BlockRef {
    Arc::new(Block::from_prefix(&number.to_le_bytes()))
}

fn openers() -> Vec<DiskOpener> {
    let all = [IoEngineKind::Automatic, IoEngineKind::Uring, IoEngineKind::Threads];
    let openers: Vec<_> = all.into_iter().filter_map(|kind| DiskOpener::new(kind).ok()).collect();
    assert!(openers.len() >= 2, "threads always work");
    openers
}

#[test]
fn what_was_written_is_read() {
    for opener in openers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        create_file_disk(&path, 16 << 20).unwrap();
        let disk = opener.open(path.to_str().unwrap()).unwrap();
        assert_eq!(disk.size_blocks(), 4096);
        // More than the kernel takes in one call.
        let blocks: Vec<_> = (0..3000).map(numbered).collect();
        write(&*disk, 7, blocks.clone()).unwrap();
        let (waiter, done) = Waiter::new();
        disk.flush(done);
        waiter.wait().unwrap();
        assert!(read(&*disk, 7, 3000).unwrap() == blocks);
        assert!(read(&*disk, 0, 1).unwrap()[0].is_zero());
        assert_eq!(read(&*disk, 9, 0), Ok(Vec::new()));
        assert!(matches!(read(&*disk, 4096, 1), Err(DiskError::OutOfRange { .. })));
        assert!(matches!(read(&*disk, u64::MAX, 2), Err(DiskError::OutOfRange { .. })));
        let beyond = write(&*disk, 4095, vec![numbered(0), numbered(1)]);
        assert!(matches!(beyond, Err(DiskError::OutOfRange { .. })));
    }
}

#[test]
fn many_requests_at_once_all_complete() {
    for opener in openers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        create_file_disk(&path, 16 << 20).unwrap();
        let disk = opener.open(path.to_str().unwrap()).unwrap();
        let waiters: Vec<_> = (0..2000)
            .map(|number| {
                let (waiter, done) = Waiter::new();
                let blocks = vec![numbered(number)];
                // More than a device is given at a time, and some that go past those that wait.
                if number % 7 == 0 {
                    Arc::clone(&disk).write_durable(number, blocks, done);
                } else {
                    disk.write(number, blocks, done);
                }
                waiter
            })
            .collect();
        waiters.into_iter().for_each(|waiter| waiter.wait().unwrap());
        drop(opener);
        let waiters: Vec<_> = (0..2000)
            .map(|number| {
                let (waiter, done) = Waiter::new();
                disk.read(number, 1, done);
                (number, waiter)
            })
            .collect();
        let written: Vec<_> = (2000..4000)
            .map(|number| {
                let (waiter, done) = Waiter::new();
                disk.write(number, vec![numbered(number)], done);
                waiter
            })
            .collect();
        // Dropping the disk, and with it the engine, loses nothing that was submitted.
        drop(disk);
        for (number, waiter) in waiters {
            assert!(waiter.wait().unwrap()[0] == numbered(number));
        }
        written.into_iter().for_each(|waiter| waiter.wait().unwrap());
    }
}

/// Rings are woken at the end of a round; what a completion submits is submitted, too. Another
/// thread's requests do not wait for the round.
#[test]
fn requests_of_a_round_complete_after_it() {
    for opener in openers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        create_file_disk(&path, 1 << 20).unwrap();
        let disk = opener.open(path.to_str().unwrap()).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let round = Round::open();
        for block in 0..40 {
            let (again, sender, block_at) = (Arc::clone(&disk), sender.clone(), block * 4);
            let again_read = move |outcome| {
                let _first: Vec<BlockRef> = Result::unwrap(outcome);
                let told = move |outcome: Result<Vec<BlockRef>, DiskError>| {
                    sender.send(outcome.unwrap().len()).unwrap();
                };
                again.read(block_at, 4, Box::new(told));
            };
            disk.read(block_at, 1, Box::new(again_read));
        }
        let other = Arc::clone(&disk);
        let beside = move || (0..64).for_each(|block| drop(read(&*other, block, 1).unwrap()));
        crate::thread::spawn("beside", beside).unwrap().join().unwrap();
        drop((round, sender));
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [4; 40]);
    }
}

/// A log's file that was removed took in records that no start would find, and nobody noticed:
/// only a flush asked whether the file has its name.
#[test]
fn regression_a_durable_write_to_a_file_without_its_name_fails() {
    let durably = |disk: &Arc<dyn Disk>, number| {
        let (waiter, done) = Waiter::new();
        Arc::clone(disk).write_durable(number, vec![numbered(number)], done);
        waiter.wait()
    };
    let loses_name: [fn(&std::path::Path); 3] = [
        |path| std::fs::remove_file(path).unwrap(),
        |path| std::fs::rename(path, path.with_extension("old")).unwrap(),
        |path| {
            std::fs::write(path.with_extension("new"), [0; 8192]).unwrap();
            std::fs::rename(path.with_extension("new"), path).unwrap();
        },
    ];
    for opener in openers() {
        for lose_name in loses_name {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("disk");
            create_file_disk(&path, 16 << 20).unwrap();
            let disk = opener.open(path.to_str().unwrap()).unwrap();
            assert_eq!(durably(&disk, 1), Ok(()));
            lose_name(&path);
            assert!(matches!(durably(&disk, 2), Err(DiskError::Gone { .. })));
            // What nobody relies on yet goes through; the flush says it.
            assert_eq!(write(&*disk, 3, vec![numbered(3)]), Ok(()));
            let (waiter, done) = Waiter::new();
            disk.flush(done);
            assert!(matches!(waiter.wait(), Err(DiskError::Gone { .. })));
        }
    }
}

#[test]
fn a_disk_has_one_owner() {
    let opener = DiskOpener::new(IoEngineKind::Automatic).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    create_file_disk(&path, 1 << 20).unwrap();
    assert_eq!(crate::privacy::exposed_mode(&path), None);
    assert!(matches!(create_file_disk(&path, 1 << 20), Err(DiskError::Open { .. })));
    let path = path.to_str().unwrap();
    let disk = opener.open(path).unwrap();
    let refused = opener.open(path).err().unwrap();
    assert_eq!(refused.to_string(), format!("disk {path} is in use by another process"));
    assert_eq!(refused.disk(), path);
    write(&*disk, 0, vec![numbered(1)]).unwrap();
    drop(disk);
    assert!(opener.open(path).is_ok());
    let folder = folder.path().to_str().unwrap();
    assert!(matches!(opener.open(folder), Err(DiskError::Open { .. })));
    assert!(matches!(opener.open("/nowhere/disk"), Err(DiskError::Open { .. })));
}

#[test]
fn a_truncated_file_is_an_error() {
    for opener in openers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        create_file_disk(&path, 1 << 20).unwrap();
        let disk = opener.open(path.to_str().unwrap()).unwrap();
        for size_bytes in [5 * 4096_u64, 4 * 4096 + 512, 4 * 4096 + 100] {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(size_bytes).unwrap();
            let found = read(&*disk, 3, 4).unwrap_err();
            assert!(matches!(found, DiskError::OutOfRange { block: 3, .. }), "{found}");
            assert!(read(&*disk, 3, 1).is_ok());
        }
    }
}

#[test]
fn clock_and_entropy_move() {
    let clock = SystemClock;
    assert!(clock.wall().seconds() > 1_600_000_000);
    assert!(clock.monotonic_nanoseconds() <= clock.monotonic_nanoseconds());
    assert_ne!(SystemEntropy.next_identity(), SystemEntropy.next_identity());
}

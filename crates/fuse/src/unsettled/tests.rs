//! Beats on a service that keeps its answers back: which requests they send, and when.

use super::*;
use file_service::{Call, FsError, Limits, Request, impl_file_service};
use units::{Generation, InodeNumber, SnapshotId, VolumeUuid};

/// A service that is asked, and answers when the test says so.
#[derive(Default)]
struct Patient {
    asked: Mutex<Vec<Request>>,
    answers: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Patient {
    fn ask<C: Call>(&self, call: C, done: Done<C::Reply>) {
        self.asked.lock().push(call.into());
        self.answers.lock().push(Box::new(move || done(Err(FsError::Stale))));
    }

    /// The files that were to be committed since the last look; the root stands for all.
    fn asked(&self) -> Vec<FileHandle> {
        let file = |request: Request| match request {
            Request::Commit(commit) => commit.file,
            Request::SyncVolume(sync) => sync.file,
            other => panic!("{other:?}"),
        };
        std::mem::take(&mut *self.asked.lock()).into_iter().map(file).collect()
    }

    fn answer_all(&self) {
        let answers = std::mem::take(&mut *self.answers.lock());
        answers.into_iter().for_each(|answer| answer());
    }
}

impl_file_service! {
    Patient,
    limits: |_service| unreachable_limits(),
    call: |service, _caller, call, done| service.ask(call, done),
}

fn unreachable_limits() -> Limits {
    unreachable!("nobody asks for limits")
}

fn file(inode: usize) -> FileHandle {
    FileHandle {
        volume: VolumeUuid([1; 16]),
        inode: InodeNumber(inode as u64),
        generation: Generation(1),
        snapshot: SnapshotId::ACTIVE,
    }
}

const ROOT: usize = 2;

fn unsettled() -> (Arc<Patient>, Arc<Unsettled>) {
    let service = Arc::new(Patient::default());
    let unsettled = Unsettled::new(Arc::clone(&service) as _, Caller::root(), file(ROOT));
    (service, Arc::new(unsettled))
}

#[test]
fn what_was_closed_is_committed_by_the_next_beat_and_once() {
    let (service, unsettled) = unsettled();
    unsettled.beat();
    assert_eq!(service.asked(), []);
    for inode in [8, 9, 8] {
        unsettled.closed(file(inode), 100);
    }
    unsettled.beat();
    assert_eq!(service.asked(), [file(8), file(9)]);
    service.answer_all();
    unsettled.beat();
    assert_eq!(service.asked(), []);
}

#[test]
fn a_beat_waits_for_the_answers_of_the_last() {
    let (service, unsettled) = unsettled();
    unsettled.closed(file(8), 100);
    unsettled.beat();
    unsettled.closed(file(8), 100);
    unsettled.beat();
    assert_eq!(service.asked(), [file(8)], "the disks have not kept up");
    service.answer_all();
    unsettled.beat();
    assert_eq!(service.asked(), [file(8)], "it was written again");
}

#[test]
fn many_files_and_much_data_are_one_request() {
    let (service, unsettled) = unsettled();
    (0..FILES_MAX).for_each(|inode| unsettled.closed(file(100 + inode), 1));
    unsettled.beat();
    assert_eq!(service.asked().len(), FILES_MAX);
    service.answer_all();
    (0..3 * FILES_MAX).for_each(|inode| unsettled.closed(file(100 + inode), 1));
    unsettled.beat();
    assert_eq!(service.asked(), [file(ROOT)]);
    service.answer_all();
    unsettled.closed(file(8), BYTES_MAX);
    unsettled.beat();
    assert_eq!(service.asked(), [file(8)]);
    service.answer_all();
    unsettled.closed(file(8), BYTES_MAX);
    unsettled.closed(file(9), 1);
    unsettled.beat();
    assert_eq!(service.asked(), [file(ROOT)]);
}

#[test]
fn the_end_of_the_mount_asks_at_once_and_ends_the_thread() {
    let (service, unsettled) = unsettled();
    unsettled.closed(file(8), 100);
    unsettled.beat();
    unsettled.closed(file(9), 100);
    unsettled.end();
    assert_eq!(service.asked(), [file(8), file(9)]);
    unsettled.keep_settling();
    service.answer_all();
}

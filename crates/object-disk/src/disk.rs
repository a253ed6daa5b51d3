//! The disk: [`platform::Disk`] over what is in memory and what is in the store.
//!
//! Invariants: a call takes the lock on [`Pending`] for as long as its blocks take to be noted, and
//! nothing is called or awaited under it. Completions run on the executor's threads. A disk that is
//! dropped still ends what somebody waits for; then it gives back lock or lease.

use crate::error::RequestError;
use crate::executor::Executor;
use crate::geometry::{Geometry, ObjectId};
use crate::lease::Lease;
use crate::lock::DirectoryLock;
use crate::opener::Presence;
use crate::pending::{Finished, Pending, Upload};
use crate::requests::Requests;
use crate::upload::Versions;
use ondisk::object_range::ObjectRangeDescriptor;
use platform::disk::is_in_range;
use platform::sync::Mutex;
use platform::{Disk, DiskError, MediaHints, ReadDone, WriteDone};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;
use units::{BlockRef, IncarnationUuid};

/// What keeps other processes away.
pub(crate) enum Exclusive {
    Lock(#[expect(dead_code, reason = "held, not used")] DirectoryLock),
    Lease(Arc<Lease>),
}

impl Exclusive {
    /// Makes sure that nobody else has the range.
    pub(crate) async fn check(&self) -> Result<(), RequestError> {
        match self {
            Self::Lock(_) => Ok(()),
            Self::Lease(lease) => lease.check().await,
        }
    }

    /// The same, whatever was known.
    pub(crate) async fn renew(&self) -> Result<(), RequestError> {
        match self {
            Self::Lock(_) => Ok(()),
            Self::Lease(lease) => lease.renew().await,
        }
    }
}

/// What a disk and its tasks share.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) geometry: Geometry,
    pub(crate) requests: Arc<Requests>,
    pub(crate) exclusive: Exclusive,
    pub(crate) descriptor: ObjectRangeDescriptor,
    /// Of this opening: it stands behind the blocks of every object that is put.
    pub(crate) incarnation: IncarnationUuid,
    /// Whether the descriptor is in the store.
    pub(crate) is_created: tokio::sync::Mutex<bool>,
    pub(crate) versions: Versions,
    pub(crate) reads: Semaphore,
    pub(crate) pending: Mutex<Pending<WriteDone, WriteDone, DiskError>>,
    /// Whether the disk was dropped: then only what somebody waits for is done.
    pub(crate) is_closed: AtomicBool,
    /// Taken when the disk goes.
    pub(crate) presence: Option<Presence>,
    pub(crate) executor: Arc<Executor>,
}

impl Shared {
    pub(crate) fn disk_error(
        &self,
        object: ObjectId,
        block: u64,
        error: &RequestError,
    ) -> DiskError {
        if *error == RequestError::Deposed {
            return DiskError::Gone { disk: self.name.clone() };
        }
        let kind = format!("object {}: {error}", object.key());
        DiskError::Io { disk: self.name.clone(), block, kind }
    }

    fn out_of_range(&self, block: u64) -> DiskError {
        let size_blocks = self.geometry.size_blocks;
        DiskError::OutOfRange { disk: self.name.clone(), block, size_blocks }
    }

    /// Starts what there is to do.
    fn pump(self: &Arc<Self>) {
        loop {
            let upload = {
                let mut pending = self.pending.lock();
                if self.is_closed.load(Ordering::Acquire) && !pending.is_awaited() {
                    return;
                }
                pending.next_upload()
            };
            let Some(upload) = upload else { return };
            let shared = Arc::clone(self);
            self.executor.spawn(async move { shared.run(upload).await });
        }
    }

    async fn run(self: Arc<Self>, upload: Upload) {
        let object = upload.object;
        let result = self.carry_out(&upload).await.map_err(|error| {
            let error = self.disk_error(object, self.geometry.block(object, 0), &error);
            tracing::warn!(disk = self.name, %error, "an upload failed; the next flush tries again");
            error
        });
        // The blocks go before those who wait are told: they may look at memory.
        drop(upload);
        let Finished { writes, flushes } = self.pending.lock().complete(object, &result);
        self.pump();
        writes.into_iter().chain(flushes).for_each(|(done, result)| done(result));
    }

    fn answer(&self, done: WriteDone, result: Result<(), DiskError>) {
        self.executor.spawn(async move { done(result) });
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Exclusive::Lease(lease) = &self.exclusive {
            let (lease, executor) = (Arc::clone(lease), Arc::clone(&self.executor));
            let presence = self.presence.take();
            self.executor.spawn(async move {
                lease.give_back().await;
                // Who opens it in this process waits for that.
                drop((presence, executor));
            });
        }
    }
}

/// An object range as a disk.
pub(crate) struct ObjectDisk {
    pub(crate) shared: Arc<Shared>,
}

impl Disk for ObjectDisk {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn size_blocks(&self) -> u64 {
        self.shared.geometry.size_blocks
    }

    fn hints(&self) -> MediaHints {
        MediaHints {
            is_object_store: true,
            discard_unit_blocks: Some(self.shared.geometry.blocks_per_object.into()),
            ..MediaHints::default()
        }
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        let shared = Arc::clone(&self.shared);
        let in_range = is_in_range(block, count, shared.geometry.size_blocks);
        // What is in memory is looked at in the task: a write that completed before this call is
        // there, and one that completes after it may be seen or not.
        self.shared.executor.spawn(async move {
            let result = match in_range {
                true => shared.read_blocks(block, count).await,
                false => Err(shared.out_of_range(block)),
            };
            drop(shared);
            done(result);
        });
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        let shared = &self.shared;
        if !is_in_range(block, blocks.len(), shared.geometry.size_blocks) {
            return shared.answer(done, Err(shared.out_of_range(block)));
        }
        let taken = shared.pending.lock().write(block, blocks, done);
        if let Some(done) = taken {
            shared.answer(done, Ok(()));
        }
        shared.pump();
    }

    fn flush(&self, done: WriteDone) {
        let shared = &self.shared;
        let clean = shared.pending.lock().flush(done);
        match clean {
            Some(done) => {
                // Without the lease not even what is there already is ours to call durable.
                let shared = Arc::clone(shared);
                self.shared.executor.spawn(async move {
                    let held = shared.exclusive.check().await;
                    let result = held.map_err(|error| match error {
                        RequestError::Deposed => DiskError::Gone { disk: shared.name.clone() },
                        error => {
                            let kind = format!("lease: {error}");
                            DiskError::Io { disk: shared.name.clone(), block: 0, kind }
                        }
                    });
                    drop(shared);
                    done(result);
                });
            }
            None => shared.pump(),
        }
    }

    fn discard(&self, block: u64, count_blocks: u64) {
        let shared = &self.shared;
        let mut admitted = Vec::new();
        for extent in shared.geometry.extents(block, count_blocks) {
            admitted.extend(shared.pending.lock().discard(&extent));
        }
        admitted.into_iter().for_each(|done| shared.answer(done, Ok(())));
        shared.pump();
    }
}

impl Drop for ObjectDisk {
    fn drop(&mut self) {
        if let Some(presence) = &self.shared.presence {
            presence.close();
        }
        self.shared.is_closed.store(true, Ordering::Release);
    }
}

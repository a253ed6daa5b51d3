//! The model: the memory backend, with snapshots as [`Image`]s.
//!
//! Going back to a snapshot, or on from what a crash left, makes a new memory file system out of
//! an image; handles translate (`build`).
//!
//! Invariants: the model's times lie beyond `SET_TIME_LIMIT`, so that times which an operation set
//! are recognised.

use crate::build::{Translation, build, root_of};
use crate::image::Image;
use crate::operation::SnapshotAction;
use file_service::memory::{MemoryFileSystem, VolumeOptions};
use file_service::{FileHandle, FileService, FsError, Limits};
use platform::Clock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use units::Timestamp;

/// A service under test, with what the file service's trait does not have.
pub trait Subject {
    /// The service. After a restore it may be another one than before.
    fn service(&self) -> Arc<dyn FileService>;

    /// The volume to work in.
    fn volume(&self) -> &str;

    /// Makes, deletes or restores a snapshot. How handles translate after a restore: a service
    /// proper keeps them, so it answers [`Translation::Identity`].
    ///
    /// # Errors
    /// `Exists`, `NotFound`; `NotSupported` if there are no snapshots, and the operation is then
    /// left out on both sides.
    fn snapshot(
        &mut self,
        action: SnapshotAction,
        drive: &mut dyn FnMut(),
    ) -> Result<Translation, FsError>;

    /// Whether a directory is that of a quota tree; `None` if nobody knows.
    fn is_tree(&self, path: &[u8], directory: FileHandle, drive: &mut dyn FnMut()) -> Option<bool> {
        let (_, _, _) = (path, directory, drive);
        None
    }

    /// The root directory of a snapshot, if the service shows snapshots at all.
    fn snapshot_root(&self, snapshot: u8, drive: &mut dyn FnMut()) -> Option<FileHandle>;
}

/// A service without snapshots.
pub struct PlainSubject {
    /// The service.
    pub service: Arc<dyn FileService>,
    /// The volume.
    pub volume: String,
}

impl Subject for PlainSubject {
    fn service(&self) -> Arc<dyn FileService> {
        Arc::clone(&self.service)
    }

    fn volume(&self) -> &str {
        &self.volume
    }

    fn snapshot(&mut self, _: SnapshotAction, _: &mut dyn FnMut()) -> Result<Translation, FsError> {
        Err(FsError::NotSupported)
    }

    fn snapshot_root(&self, _: u8, _: &mut dyn FnMut()) -> Option<FileHandle> {
        None
    }
}

/// A clock that each reading moves by a microsecond.
struct ModelClock(AtomicI64);

/// 2001-09-09, in nanoseconds.
const CLOCK_START: i64 = 1_000_000_000_000_000_000;

impl ModelClock {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(CLOCK_START)))
    }
}

impl Clock for ModelClock {
    fn wall(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1000, Ordering::Relaxed))
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        (self.0.fetch_add(1000, Ordering::Relaxed) - CLOCK_START) as u64
    }
}

#[derive(Clone)]
struct Saved {
    /// Snapshots are numbered in the order of their making.
    order: u64,
    image: Image,
}

const VOLUME: &str = "model";

/// The images of a model's snapshots, to be put back.
pub struct SavedImages(BTreeMap<u8, Saved>);

/// The reference. A clone shares the files, not the snapshots: see `Runner::fork`.
#[derive(Clone)]
pub struct Model {
    service: Arc<MemoryFileSystem>,
    limits: Limits,
    options: VolumeOptions,
    snapshots: BTreeMap<u8, Saved>,
    order_next: u64,
}

impl Model {
    /// Empty, with the limits of the service that it is compared with. Its volume is so large that
    /// it has room for whatever the other has.
    #[must_use]
    pub fn new(limits: Limits, root_mode: u32) -> Self {
        let options =
            VolumeOptions { blocks_max: 1 << 40, files_max: u64::from(u32::MAX), root_mode };
        let service = fresh(limits, options);
        Self { service, limits, options, snapshots: BTreeMap::new(), order_next: 0 }
    }

    /// With the memory backend's own limits.
    #[must_use]
    pub fn with_own_limits(root_mode: u32) -> Self {
        Self::new(MemoryFileSystem::new(ModelClock::new()).limits(), root_mode)
    }

    /// Checks the books of the memory backend.
    ///
    /// # Panics
    /// If they are wrong.
    pub fn verify(&self) {
        self.service.verify();
    }

    /// The tree as it was when a snapshot was made.
    #[must_use]
    pub fn snapshot_image(&self, snapshot: u8) -> Option<&Image> {
        self.snapshots.get(&snapshot).map(|saved| &saved.image)
    }

    /// The snapshots that there are.
    pub fn snapshots(&self) -> impl Iterator<Item = u8> {
        self.snapshots.keys().copied()
    }

    /// The images of the snapshots.
    #[must_use]
    pub fn saved_images(&self) -> SavedImages {
        SavedImages(self.snapshots.clone())
    }

    /// The snapshots are these, after all: a restore that was run has not happened.
    pub fn put_images(&mut self, images: SavedImages) {
        self.snapshots = images.0;
    }

    /// Makes an empty directory a quota tree, unless it is one.
    ///
    /// # Errors
    /// As [`MemoryFileSystem::make_tree`].
    pub(crate) fn make_tree(&self, directory: FileHandle) -> Result<(), FsError> {
        self.service.make_tree(directory)
    }

    /// Makes the tree what `image` says.
    pub(crate) fn rebuild(&mut self, image: &Image) -> Translation {
        self.service = fresh(self.limits, self.options);
        build(&self.service, self.root(), image)
    }

    pub(crate) fn root(&self) -> FileHandle {
        let Ok(root) = root_of(&self.service, VOLUME) else {
            unreachable!("the volume was added when the file system was made")
        };
        root
    }
}

fn fresh(limits: Limits, options: VolumeOptions) -> Arc<MemoryFileSystem> {
    let service = MemoryFileSystem::new(ModelClock::new()).with_limits(limits);
    let Ok(_) = service.add_volume(VOLUME, options) else {
        unreachable!("a new file system has no volume")
    };
    Arc::new(service)
}

impl Subject for Model {
    fn service(&self) -> Arc<dyn FileService> {
        Arc::<MemoryFileSystem>::clone(&self.service)
    }

    fn volume(&self) -> &str {
        VOLUME
    }

    fn snapshot(
        &mut self,
        action: SnapshotAction,
        drive: &mut dyn FnMut(),
    ) -> Result<Translation, FsError> {
        match action {
            SnapshotAction::Create(snapshot) => {
                if self.snapshots.contains_key(&snapshot) {
                    return Err(FsError::Exists);
                }
                let Ok(mut image) = Image::capture(&*self.service, self.root(), drive) else {
                    unreachable!("the memory backend has an answer to everything")
                };
                image.find_trees(|_, directory| Some(self.service.is_tree(directory)));
                self.snapshots.insert(snapshot, Saved { order: self.order_next, image });
                self.order_next += 1;
                Ok(Translation::Identity)
            }
            SnapshotAction::Delete(snapshot) => {
                self.snapshots.remove(&snapshot).ok_or(FsError::NotFound)?;
                Ok(Translation::Identity)
            }
            SnapshotAction::Restore(snapshot) => {
                let saved = self.snapshots.get(&snapshot).ok_or(FsError::NotFound)?.clone();
                self.snapshots.retain(|_, other| other.order <= saved.order);
                Ok(self.rebuild(&saved.image))
            }
        }
    }

    fn is_tree(&self, _: &[u8], directory: FileHandle, _: &mut dyn FnMut()) -> Option<bool> {
        Some(self.service.is_tree(directory))
    }

    fn snapshot_root(&self, _: u8, _: &mut dyn FnMut()) -> Option<FileHandle> {
        None // Model::snapshot_image has the whole tree
    }
}

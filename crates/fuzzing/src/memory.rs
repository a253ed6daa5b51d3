//! The memory backend that front ends are driven over.

use file_service::memory::{MemoryFileSystem, VolumeOptions};
use file_service::{Caller, Entry, FileService, FsError, calls};
use platform::Clock;
use platform::sync::Mutex;
use std::sync::Arc;
use units::Timestamp;

/// Blocks of a volume: little enough that an input fills it, and that what it holds is cheap.
const BLOCKS_MAX: u64 = 512;
/// Files of a volume.
const FILES_MAX: u64 = 40;

/// A clock that stands still: an input means the same at all times.
struct Still;

impl Clock for Still {
    fn wall(&self) -> Timestamp {
        Timestamp::from_parts(1_600_000_000, 5)
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        1
    }
}

/// Time, which does not pass.
pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(Still)
}

/// A service with the volumes `vol` and `other`.
pub(crate) fn service() -> Arc<MemoryFileSystem> {
    let service = MemoryFileSystem::new(clock());
    for (name, root_mode) in [("vol", 0o777), ("other", 0o755)] {
        let options = VolumeOptions { blocks_max: BLOCKS_MAX, files_max: FILES_MAX, root_mode };
        assert!(service.add_volume(name, options).is_ok(), "there is no volume yet");
    }
    Arc::new(service)
}

/// The root of a volume.
pub(crate) fn root(service: &MemoryFileSystem, volume: &str) -> Entry {
    let answer: Arc<Mutex<Option<Result<Entry, FsError>>>> = Arc::default();
    let place = Arc::clone(&answer);
    service.root(
        &Caller::root(),
        calls::Root { name: volume.to_owned() },
        Box::new(move |root| *place.lock() = Some(root)),
    );
    let Some(Ok(root)) = answer.lock().take() else { unreachable!("it answers at once") };
    root
}

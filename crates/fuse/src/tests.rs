//! What tests of real mounts serve: a volume "home" in memory.

use file_service::FileService;
use file_service::memory::{MemoryFileSystem, VolumeOptions};
use platform::linux::SystemClock;
use std::sync::Arc;

pub(crate) fn service() -> Arc<dyn FileService> {
    let memory = MemoryFileSystem::new(Arc::new(SystemClock));
    memory.add_volume("home", VolumeOptions::default()).unwrap();
    Arc::new(memory)
}

//! Drives: a model of a medium around a disk in memory, and what all models tell in the same words.

use crate::memory::{Completions, MemoryDisk};
use device_models::{
    HddConfiguration, HddModel, SmrConfiguration, SmrModel, SsdConfiguration, SsdModel,
};
use media::Profile;
use platform::Disk;
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// What the drives of a rig are.
#[derive(Clone, Debug)]
pub(super) enum Model {
    Ssd(SsdConfiguration),
    Smr(SmrConfiguration),
    Hdd(HddConfiguration),
}

impl Model {
    /// What labels say of such a drive.
    pub fn media(&self) -> Profile {
        let unit = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        match self {
            Self::Ssd(ssd) => Profile::Ssd { erase_block_bytes: unit(ssd.erase_block_bytes) },
            Self::Smr(smr) => Profile::Smr { zone_bytes: unit(smr.zone_bytes) },
            Self::Hdd(_) => Profile::Hdd,
        }
    }
}

enum Modelled {
    Ssd(Arc<SsdModel>),
    Smr(Arc<SmrModel>),
    Hdd(Arc<HddModel>),
}

/// A drive.
pub(super) struct Drive {
    memory: Arc<MemoryDisk>,
    modelled: Modelled,
}

/// What a drive did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Work {
    /// Blocks that the host read.
    pub read_blocks: u64,
    /// Blocks that the host wrote.
    pub host_blocks: u64,
    /// Blocks that the drive wrote for that: at least as many.
    pub device_blocks: u64,
    /// Of the host's, blocks that an SMR drive put into its media cache.
    pub cached_blocks: u64,
    /// Regions of which the checksum block was written.
    pub regions: u64,
    /// Time in which it worked.
    pub busy_nanoseconds: u64,
}

impl Drive {
    pub fn new(
        name: String,
        size_bytes: u64,
        model: &Model,
        completions: &Arc<Completions>,
    ) -> Self {
        let memory = MemoryDisk::new(name, size_bytes / BLOCK_SIZE_U64, completions);
        let inner: Arc<dyn Disk> = Arc::clone(&memory) as _;
        let modelled = match model.clone() {
            Model::Ssd(ssd) => Modelled::Ssd(Arc::new(SsdModel::new(inner, ssd))),
            Model::Smr(smr) => Modelled::Smr(Arc::new(SmrModel::new(inner, smr))),
            Model::Hdd(hdd) => Modelled::Hdd(Arc::new(HddModel::new(inner, hdd))),
        };
        Self { memory, modelled }
    }

    /// The disk that the engine gets.
    pub fn disk(&self) -> Arc<dyn Disk> {
        match &self.modelled {
            Modelled::Ssd(ssd) => Arc::clone(ssd) as _,
            Modelled::Smr(smr) => Arc::clone(smr) as _,
            Modelled::Hdd(hdd) => Arc::clone(hdd) as _,
        }
    }

    /// What it did since the last call.
    pub fn take_work(&self) -> Work {
        let read_blocks = self.memory.take_read();
        let (host_blocks, regions) = self.memory.take_written();
        let (more_blocks, cached_blocks, busy_nanoseconds) = match &self.modelled {
            Modelled::Ssd(ssd) => {
                let did = ssd.take_statistics();
                (did.pages_relocated, 0, did.busy_nanoseconds)
            }
            Modelled::Smr(smr) => {
                let did = smr.take_statistics();
                (did.blocks_rewritten, did.blocks_cached, did.busy_nanoseconds)
            }
            Modelled::Hdd(hdd) => (0, 0, hdd.take_statistics().busy_nanoseconds),
        };
        let device_blocks = host_blocks + more_blocks;
        Work { read_blocks, host_blocks, device_blocks, cached_blocks, regions, busy_nanoseconds }
    }
}

//! The naive model of an aggregate's volumes: of each a name, a size, files, and its files as they
//! were when a snapshot was made. A file is a map from block to content.
//!
//! A [`Witness`] is a member without blocks. It notes what the model is at each freeze, so that the
//! model knows what an aggregate must hold that is opened after a power cut.

use affinity::Access;
use aggregate::{ActiveDone, Cleaning, FreezeContext, Member, Published};
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{Block, BlockRef, CpNumber, InodeNumber, VolumeId, Vvbn};

/// A file's blocks.
pub type File = BTreeMap<u64, BlockRef>;
/// The files of an image.
pub type Files = BTreeMap<InodeNumber, File>;

/// A volume.
#[derive(Clone, Default, Debug)]
pub struct NaiveVolume {
    pub name: String,
    pub size_blocks: u64,
    pub files: Files,
    pub snapshots: BTreeMap<String, Files>,
}

impl NaiveVolume {
    /// Blocks of its files.
    pub fn blocks(&self) -> u64 {
        self.files.values().map(|file| file.len() as u64).sum()
    }
}

/// All volumes.
pub type Volumes = BTreeMap<VolumeId, NaiveVolume>;

/// What the aggregate must hold.
#[derive(Default)]
pub struct Model(Mutex<State>);

#[derive(Default)]
struct State {
    volumes: Volumes,
    /// As they were at the freeze of each consistency point.
    images: BTreeMap<CpNumber, Volumes>,
    serial: u64,
}

impl Model {
    /// The volumes as they are now.
    pub fn volumes(&self) -> Volumes {
        self.0.lock().volumes.clone()
    }

    /// Changes the volumes.
    pub fn change<T>(&self, change: impl FnOnce(&mut Volumes) -> T) -> T {
        change(&mut self.0.lock().volumes)
    }

    /// A content that was never there before.
    pub fn content(&self) -> BlockRef {
        let mut state = self.0.lock();
        state.serial += 1;
        Block::shared(&state.serial.to_le_bytes().repeat(16))
    }

    /// After a power cut: what counts is the image of this consistency point.
    pub fn go_back_to(&self, cp: CpNumber) {
        let mut state = self.0.lock();
        state.volumes = state.images[&cp].clone();
    }
}

/// See the module.
pub struct Witness(pub Arc<Model>);

impl Member for Witness {
    fn id(&self) -> VolumeId {
        VolumeId(u32::MAX)
    }

    fn freeze(&self, _: &mut Access<'_>, context: &FreezeContext) -> Option<Box<dyn Cleaning>> {
        let mut state = self.0.0.lock();
        let volumes = state.volumes.clone();
        state.images.insert(context.cp, volumes);
        while state.images.len() > 3 {
            state.images.pop_first();
        }
        None
    }

    fn find_active(&self, _: Vec<Vvbn>, done: ActiveDone) {
        done(Vec::new());
    }

    fn let_go(&self, _: &mut Access<'_>) {}

    fn publish(&self, _: &mut Access<'_>, _: &Published<'_>) -> bool {
        false
    }
}

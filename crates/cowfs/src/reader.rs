//! Reading blocks without waiting for them (decision 4).
//!
//! A message reads through a [`Reader`]: what is in memory is there at once, anything else ends the
//! message with [`Stop::Wait`], and it runs again when the load is done. What was loaded for a
//! message is held for it until it ends, so that it gets ahead however small the cache is.
//!
//! Invariants: a reader never performs I/O and never changes anything.
//!
//! Fails: [`Stop::Damaged`] when the media could not yield the block and redundancy neither. What
//! another build wrote is no damage ([`Stop::OtherBuild`]): nothing is given up for it.

use crate::cache::{BufferCache, Class};
use crate::content::Content;
use crate::pointer::{BlockPlace, Pointer};
use ondisk::damage::Damage;
use platform::sync::Mutex;
use rustc_hash::FxHashMap;
use std::sync::{Arc, OnceLock};
use thiserror::Error;
use units::{BlockRef, InodeNumber, Pvbn, VolumeId, Vvbn};

/// How a loaded block is proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadProof {
    /// By the checksum in the parent.
    Content {
        /// See [`crate::content::content_checksum`].
        checksum: u32,
        /// What the block holds.
        content: Content,
    },
    /// By its identifier on media and a 16-bit check in the parent.
    Identity {
        /// What the identifier must say.
        place: BlockPlace,
        /// Low bits of the block's CRC32C.
        check: u16,
    },
}

/// A block that must be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadRequest {
    /// Where it lies.
    pub pvbn: Pvbn,
    /// The parent's proof; tells blocks apart that lay at one PVBN one after another.
    pub check: u32,
    /// How it is proved.
    pub proof: LoadProof,
    /// The block's volume and number in it, if it has them: `pvbn` is then a hint, and the volume's
    /// container map knows better when it turns out wrong (decision 12).
    pub virtual_number: Option<(VolumeId, Vvbn)>,
    /// Whether the block is data or metadata.
    pub class: Class,
    /// A client asks for it out of sequence, and may come again: it is worth keeping near.
    pub is_random: bool,
}

/// What a message waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wait {
    /// These blocks.
    Load(Vec<LoadRequest>),
    /// More free blocks from the aggregate.
    Blocks,
    /// The next step of consistency points that makes room in the log, in memory or on disk.
    Room,
}

/// Why work stopped before its end.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Stop {
    /// Run again when this is there.
    #[error("something must be loaded, or room made, first")]
    Wait(Wait),
    /// A block is lost, or is not what it should be.
    #[error("{0} is damaged beyond repair")]
    Damaged(Pvbn),
    /// The same of a block that belongs to all files, met while one was looked at: that file is not
    /// to blame.
    #[error("{0}, which belongs to all files, is damaged beyond repair")]
    MetafileDamaged(Pvbn),
    /// Nothing is damaged: a build wrote this that has more than this one. It stays as it is.
    #[error("{0}; start the build that wrote it, or a later one")]
    OtherBuild(Damage),
    /// The file is quarantined: its content is neither shown nor changed.
    #[error("{0} is quarantined: a block that leads to its content cannot be read")]
    Quarantined(InodeNumber),
    /// The image contradicts itself: what a sound image cannot lead to, whatever it holds. To go on
    /// would spoil what is still sound.
    #[error("the image contradicts itself: {0}")]
    Contradiction(&'static str),
    /// There is no room.
    #[error("there is no room")]
    NoSpace,
    /// A user, a group or a tree would use more than it may.
    #[error("a quota would be passed")]
    OverQuota,
}

/// The outcome of work that can stop.
pub type Progress<T> = Result<T, Stop>;

/// What all of them are. What any of them has to wait for is loaded together, so that work on many
/// waits as often as work on one.
///
/// # Errors
/// What to wait for, or the first other reason to stop.
pub fn all<T>(each: impl IntoIterator<Item = Progress<T>>) -> Progress<Vec<T>> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for one in each {
        match one {
            Ok(one) => found.push(one),
            Err(Stop::Wait(Wait::Load(requests))) => missing.extend(requests),
            Err(stop) => return Err(stop),
        }
    }
    if missing.is_empty() { Ok(found) } else { Err(Stop::Wait(Wait::Load(missing))) }
}

/// What was read; `None` if it is damaged.
///
/// # Errors
/// Any other reason to stop.
pub fn unless_damaged<T>(read: Progress<T>) -> Progress<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Stop::Damaged(_)) => Ok(None),
        Err(stop) => Err(stop),
    }
}

type Loaded = FxHashMap<(Pvbn, u32), Option<BlockRef>>;

impl Stop {
    /// Why the structure in the block that lies there is not read.
    #[must_use]
    pub const fn of_damage(damage: Damage, pvbn: Pvbn) -> Self {
        if damage.is_of_another_build() { Self::OtherBuild(damage) } else { Self::Damaged(pvbn) }
    }

    /// The same, of somebody who reads out of sequence.
    #[must_use]
    pub fn at_random(mut self) -> Self {
        if let Self::Wait(Wait::Load(requests)) = &mut self {
            requests.iter_mut().for_each(|request| request.is_random = true);
        }
        self
    }
}

/// Blocks loaded for one message; `None` for one that could not be. Clones share them. Most
/// messages wait for no load: the first clone, or the first block, allocates what is shared.
#[derive(Default, Debug)]
pub struct HeldBlocks(OnceLock<Arc<Mutex<Loaded>>>);

impl Clone for HeldBlocks {
    fn clone(&self) -> Self {
        Self(OnceLock::from(Arc::clone(self.shared())))
    }
}

impl HeldBlocks {
    fn shared(&self) -> &Arc<Mutex<Loaded>> {
        self.0.get_or_init(Arc::default)
    }

    /// Keeps the outcome of a load.
    pub fn put(&self, request: &LoadRequest, block: Option<BlockRef>) {
        self.shared().lock().insert((request.pvbn, request.check), block);
    }

    /// Forgets all once there are more than `blocks_max`: for long work that gets ahead between
    /// its loads.
    pub fn trim(&self, blocks_max: usize) {
        let Some(held) = self.0.get() else { return };
        let mut held = held.lock();
        if held.len() > blocks_max {
            held.clear();
        }
    }

    /// Whether nothing had to be loaded for the message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.get().is_none_or(|held| held.lock().is_empty())
    }

    fn get(&self, request: &LoadRequest) -> Option<Option<BlockRef>> {
        self.0.get()?.lock().get(&(request.pvbn, request.check)).cloned()
    }
}

/// Reads through the cache and a message's held blocks.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// Blocks in memory.
    pub cache: &'a BufferCache,
    /// Blocks loaded for this message.
    pub held: &'a HeldBlocks,
}

impl Reader<'_> {
    /// The block that `pointer` names.
    ///
    /// # Errors
    /// [`Stop::Wait`] when it must be loaded first.
    pub fn block<P: Pointer>(&self, pointer: &P, place: BlockPlace) -> Progress<BlockRef> {
        if let Some(block) = self.cache.get(pointer.pvbn(), pointer.check()) {
            return Ok(block);
        }
        let request = pointer.request(place);
        match self.find_held(&request)? {
            Some(block) => Ok(block),
            None => Err(Stop::Wait(Wait::Load(vec![request]))),
        }
    }

    /// The block if it is in memory.
    ///
    /// # Errors
    /// [`Stop::Damaged`] if its load failed.
    pub fn find(&self, request: &LoadRequest) -> Progress<Option<BlockRef>> {
        if let Some(block) = self.cache.get(request.pvbn, request.check) {
            return Ok(Some(block));
        }
        self.find_held(request)
    }

    fn find_held(&self, request: &LoadRequest) -> Progress<Option<BlockRef>> {
        match self.held.get(request) {
            None => Ok(None),
            Some(Some(block)) => Ok(Some(block)),
            Some(None) => Err(Stop::Damaged(request.pvbn)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::pointer::PhysicalPointer;
    use units::Block;

    /// A message gives a clone away before it waits, and finds in its own what was put into that.
    #[test]
    fn clones_of_held_blocks_share_what_is_loaded_later() {
        let pointer = PhysicalPointer { pvbn: Pvbn(7), check: 3, age: 0 };
        let (inode, content) = (InodeNumber(1), Content::Data);
        let place = BlockPlace { volume: VolumeId(0), inode, level: 0, index: 0, content };
        let (cache, held) = (BufferCache::new(0), HeldBlocks::default());
        assert!(held.is_empty());
        let reader = Reader { cache: &cache, held: &held };
        let Err(Stop::Wait(Wait::Load(requests))) = reader.block(&pointer, place) else {
            panic!("nothing is in memory");
        };
        let given_away = held.clone();
        given_away.put(&requests[0], Some(Block::shared(&[5])));
        assert!(!held.is_empty());
        assert_eq!(reader.block(&pointer, place).unwrap()[0], 5);
        held.trim(0);
        assert!(given_away.is_empty());
        given_away.put(&requests[0], None);
        assert_eq!(reader.block(&pointer, place).unwrap_err(), Stop::Damaged(Pvbn(7)));
    }
}

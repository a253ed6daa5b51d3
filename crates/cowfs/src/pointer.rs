//! What the core needs to know of a block pointer, so that one core serves two number spaces: dual
//! pointers within a volume, physical pointers within an aggregate (FlexVol section 3.3).
//!
//! Invariants: `SIZE * FANOUT` is a block; a hole is all zero in both formats.

use crate::cache::Class;
use crate::content::{Content, content_checksum};
use crate::reader::{LoadProof, LoadRequest};
use ondisk::inode::PAYLOAD_SIZE;
use ondisk::pointer::{DualPointer, PhysicalPointer};
use ondisk::root::metafile;
use std::fmt::Debug;
use std::hash::Hash;
use units::{BLOCK_SIZE, Block, BlockNumber, InodeNumber, Pvbn, VolumeId, Vvbn};

/// Which block of which file: what its identifier on media says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockPlace {
    /// The volume; zero for the aggregate's own files.
    pub volume: VolumeId,
    /// The file.
    pub inode: InodeNumber,
    /// 0 for the file's data, else the level of the indirect block.
    pub level: u8,
    /// The first FBN it covers, divided by what a block of its level covers.
    pub index: u64,
    /// What is in it.
    pub content: Content,
}

impl BlockPlace {
    /// What the cache is to take it for. Directories count as files: nothing here tells them apart.
    #[must_use]
    pub const fn class(&self) -> Class {
        let is_metadata = self.level > 0 || self.inode.get() < metafile::ROOT_DIRECTORY;
        if is_metadata { Class::Metadata } else { Class::Data }
    }
}

/// A block pointer of one of the two formats.
pub trait Pointer: Copy + Eq + Default + Debug + Hash + Send + Sync + 'static {
    /// Block numbers of the space that the pointer belongs to.
    type Number: BlockNumber;

    /// Encoded bytes.
    const SIZE: usize;
    /// Pointers in an indirect block.
    const FANOUT: u64 = (BLOCK_SIZE / Self::SIZE) as u64;
    /// Pointers in an inode.
    const ROOT_POINTERS: u64 = (PAYLOAD_SIZE / Self::SIZE) as u64;

    /// Whether it points nowhere.
    fn is_hole(&self) -> bool {
        self.vbn() == Self::Number::default()
    }

    /// The block's number in the space that this pointer belongs to.
    fn vbn(&self) -> Self::Number;

    /// Where the block lies in the aggregate.
    fn pvbn(&self) -> Pvbn;

    /// A proof of the content, as wide as the format has it.
    fn check(&self) -> u32;

    /// The proof that a pointer to `block` would carry.
    fn check_of(block: &Block, content: Content) -> u32;

    /// The pointer at `index` of `bytes`.
    fn decode_at(bytes: &[u8], index: usize) -> Self;

    /// Stores the pointer at `index` of `bytes`.
    fn encode_at(&self, bytes: &mut [u8], index: usize);

    /// What must be read to have the block.
    fn request(&self, place: BlockPlace) -> LoadRequest;
}

fn slot<const SIZE: usize>(bytes: &[u8], index: usize) -> [u8; SIZE] {
    let mut slot = [0; SIZE];
    slot.copy_from_slice(&bytes[index * SIZE..(index + 1) * SIZE]);
    slot
}

impl Pointer for DualPointer {
    type Number = Vvbn;

    const SIZE: usize = DualPointer::SIZE;

    fn vbn(&self) -> Vvbn {
        self.vvbn
    }

    fn pvbn(&self) -> Pvbn {
        self.pvbn
    }

    fn check(&self) -> u32 {
        self.checksum
    }

    fn check_of(block: &Block, content: Content) -> u32 {
        content_checksum(block, content)
    }

    fn decode_at(bytes: &[u8], index: usize) -> Self {
        Self::decode(slot(bytes, index))
    }

    fn encode_at(&self, bytes: &mut [u8], index: usize) {
        bytes[index * Self::SIZE..(index + 1) * Self::SIZE].copy_from_slice(&self.encode());
    }

    fn request(&self, place: BlockPlace) -> LoadRequest {
        LoadRequest {
            pvbn: self.pvbn,
            check: self.checksum,
            proof: LoadProof::Content { checksum: self.checksum, content: place.content },
            virtual_number: Some((place.volume, self.vvbn)),
            class: place.class(),
            is_random: false,
        }
    }
}

impl Pointer for PhysicalPointer {
    type Number = Pvbn;

    const SIZE: usize = PhysicalPointer::SIZE;

    fn vbn(&self) -> Pvbn {
        self.pvbn
    }

    fn pvbn(&self) -> Pvbn {
        self.pvbn
    }

    fn check(&self) -> u32 {
        u32::from(self.check)
    }

    fn check_of(block: &Block, _: Content) -> u32 {
        content_checksum(block, Content::Data) & 0xffff
    }

    fn decode_at(bytes: &[u8], index: usize) -> Self {
        Self::decode(slot(bytes, index))
    }

    fn encode_at(&self, bytes: &mut [u8], index: usize) {
        bytes[index * Self::SIZE..(index + 1) * Self::SIZE].copy_from_slice(&self.encode());
    }

    fn request(&self, place: BlockPlace) -> LoadRequest {
        LoadRequest {
            pvbn: self.pvbn,
            check: u32::from(self.check),
            proof: LoadProof::Identity { place, check: self.check },
            virtual_number: None,
            class: place.class(),
            is_random: false,
        }
    }
}

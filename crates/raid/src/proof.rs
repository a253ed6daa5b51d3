//! How a reader knows that a block is what was written.
//!
//! Fails: a proof that holds for no block makes a read fail, which is told as [`ReadFailure`].
//!
//! [`ReadFailure`]: crate::ReadFailure

use crate::error::Expectation;
use ondisk::identity::{BlockIdentity, BlockOwner, ChecksumBlock};
use platform::mutation::{self, Rule};
use units::{Block, BlockRef, Pvbn};

/// Whether a block may be this owner's, with these low 16 bits of the standard CRC32C.
pub type OwnerTest = Box<dyn Fn(&BlockOwner, u16) -> bool + Send + Sync>;

/// How to know that a block is what was written.
pub enum Proof {
    /// The caller knows by the content, from the CRC in the tree: costs no second read.
    Content(Box<dyn Fn(&Block) -> bool + Send + Sync>),
    /// By the identity beside the block.
    Identity {
        /// The owner that the identity must name; its `cp` does not count.
        owner: BlockOwner,
        /// The low 16 bits of the standard CRC32C.
        check: u16,
    },
    /// By the identity beside the block, whosever it is: for those who move blocks. Asked of blocks
    /// that are as their identities say, and last of the one that is returned.
    Owned(OwnerTest),
}

impl Proof {
    /// What is expected, for messages.
    #[must_use]
    pub fn expectation(&self) -> Expectation {
        match self {
            Self::Content(_) => Expectation::Content,
            Self::Identity { owner, check } => {
                Expectation::Identity { owner: *owner, check: *check }
            }
            Self::Owned(_) => Expectation::Owned,
        }
    }
}

/// Whether an identity is that of the block which is expected.
fn identity_matches(
    identity: &BlockIdentity,
    block: &Block,
    pvbn: Pvbn,
    accepts: impl Fn(&BlockOwner, u16) -> bool,
) -> bool {
    identity.validate().is_ok()
        && identity.pvbn() == pvbn
        && identity.has_checksum_of(block)
        && accepts(&identity.owner(), identity.standard_checksum() as u16)
}

impl Proof {
    /// Whether the block is proved; `checksums` is its region's checksum block, if it is known.
    pub(crate) fn holds(
        &self,
        pvbn: Pvbn,
        row: usize,
        block: &Block,
        checksums: Option<&BlockRef>,
    ) -> bool {
        let identity = checksums.map(|checksums| &ChecksumBlock::view(checksums).identities[row]);
        match self {
            Self::Content(is_right) => mutation::broken(Rule::ContentUnchecked) || is_right(block),
            Self::Identity { owner, check } => identity.is_some_and(|identity| {
                let is_right = |found: &BlockOwner, of| found.is_same_place(owner) && of == *check;
                identity_matches(identity, block, pvbn, is_right)
            }),
            Self::Owned(accepts) => {
                identity.is_some_and(|identity| identity_matches(identity, block, pvbn, accepts))
            }
        }
    }

    pub(crate) const fn needs_identity(&self) -> bool {
        matches!(self, Self::Identity { .. } | Self::Owned(_))
    }
}

//! A half of the log: where its present life ends and what it holds.

use units::{BLOCK_SIZE_U64, CpNumber};

/// What a half that is not retired leaves in the batches of the other one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct OtherLife {
    pub(crate) cp: u64,
    /// Zero for none.
    pub(crate) sequence: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    /// Its first block on the disk.
    pub(crate) base_block: u64,
    pub(crate) half_blocks: u64,
    /// The latest consistency point that its records belong to.
    pub(crate) cp: CpNumber,
    /// Whether nothing in it is needed any more.
    pub(crate) retired: bool,
    /// The number of its first record.
    pub(crate) first_sequence: u64,
    /// Behind the last block that is written or spoken for.
    pub(crate) end_block: u64,
    pub(crate) other: OtherLife,
}

impl Half {
    pub(crate) const fn size_bytes(&self) -> u64 {
        self.half_blocks * BLOCK_SIZE_U64
    }

    /// Begins a new life.
    pub(crate) fn begin(&mut self, cp: CpNumber, first_sequence: u64, other: OtherLife) {
        assert!(self.retired, "a half in use is not written over");
        self.cp = cp;
        self.retired = false;
        self.first_sequence = first_sequence;
        self.end_block = 0;
        self.other = other;
    }

    /// What batches of the other half say of this one.
    pub(crate) const fn as_other(&self) -> OtherLife {
        if self.retired || self.end_block == 0 {
            OtherLife { cp: 0, sequence: 0 }
        } else {
            OtherLife { cp: self.cp.get(), sequence: self.first_sequence }
        }
    }
}

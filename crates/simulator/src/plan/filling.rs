//! What the operations of a life are to fill to the last block.

/// What is to be filled to the last block, and emptied again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filling {
    /// Nothing.
    Nothing,
    /// Volumes, which are small.
    Volumes,
    /// The aggregate, on one small disk.
    Aggregate,
}

impl Filling {
    /// Bytes of a write that fills, at most.
    #[must_use]
    pub const fn write_bytes_max(self) -> u64 {
        match self {
            Self::Aggregate => 1 << 20,
            _ => 1 << 18,
        }
    }

    /// Bytes that such writes give to one file, at most: a few files are more than there is room
    /// for.
    #[must_use]
    pub const fn file_bytes(self) -> u64 {
        16 * self.write_bytes_max()
    }
}

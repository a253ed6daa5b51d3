//! How much of which area is free, for people to look at.

/// The areas of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupMap {
    /// How many there are.
    pub areas: u64,
    /// Blocks of an area, but for the first and the last, which may have fewer.
    pub area_blocks: u64,
    /// The area that is being filled.
    pub filling: Option<u64>,
    /// It gets no blocks: other groups have much emptier areas.
    pub is_left_out: bool,
    /// The areas in order, some together where there are many; none for a group in an object
    /// store, of which only the best are known.
    pub cells: Vec<AreaCell>,
    /// Areas by the range of their free share, in 32 equal parts, from the emptiest: those that
    /// were counted and have free blocks.
    pub by_free_share: [u64; 32],
    /// Areas that were counted and have none.
    pub full: u64,
}

/// Some areas that follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AreaCell {
    /// How many.
    pub areas: u64,
    /// Blocks of those that were counted.
    pub counted_blocks: u64,
    /// Of these, free ones.
    pub free_blocks: u64,
}

/// Called with the groups in order.
pub type MapDone = Box<dyn FnOnce(Vec<GroupMap>) + Send>;

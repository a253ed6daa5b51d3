//! How areas are chosen, and how good those are that were.

/// Which area is filled next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AreaChoice {
    /// The emptiest.
    #[default]
    Best,
    /// Any that has free blocks: to measure what heeding scores gains (FreeSpace section 4.1).
    Any,
}

/// Numbers that look drawn by chance, the same in each run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chance(u64);

impl Chance {
    /// The next number below `end`; 0 if that is 0.
    pub fn next(&mut self, end: u64) -> u64 {
        // SplitMix64 (Steele, Lea and Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).checked_rem(end).unwrap_or(0)
    }
}

/// The areas that were chosen since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Picks {
    /// Areas.
    pub areas: u64,
    /// Their free blocks when they were chosen.
    pub free_blocks: u64,
    /// Their blocks.
    pub blocks: u64,
}

impl Picks {
    /// An area of `blocks` was chosen.
    pub const fn note(&mut self, free_blocks: u64, blocks: u64) {
        self.areas += 1;
        self.free_blocks += free_blocks;
        self.blocks += blocks;
    }

    /// Those that were chosen since there were these.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            areas: self.areas - before.areas,
            free_blocks: self.free_blocks - before.free_blocks,
            blocks: self.blocks - before.blocks,
        }
    }

    /// Those of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            areas: self.areas + other.areas,
            free_blocks: self.free_blocks + other.free_blocks,
            blocks: self.blocks + other.blocks,
        }
    }
}

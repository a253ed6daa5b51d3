//! Free blocks of the aggregate: which are given next, and which are given back to the disks.
//!
//! [`refill`] chooses areas and tetrises, [`pool`] holds the numbers that are in stock, [`reclaim`]
//! finds regions that are free as a whole. [`area_map`] is what people see of it, [`tuning`] what
//! may be chosen.
//!
//! Invariants: the room knows free maps, geometry and disks; neither volumes nor containers, and no
//! message.

pub mod area_map;
pub mod pool;
pub mod reclaim;
pub mod refill;
pub mod tuning;

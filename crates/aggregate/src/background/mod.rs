//! Messages that work beside operations for the whole aggregate: free numbers are put in stock
//! ([`stocking`]), areas are counted ([`counting`]), the room of freed blocks goes back to the
//! disks ([`reclaiming`]), freed blocks leave the cache ([`forgetting`]), a scrub learns which
//! blocks are in use ([`use_of_blocks`]).
//!
//! Invariants: none of them changes what the next image has.

pub mod counting;
pub mod forgetting;
pub mod reclaiming;
pub mod stocking;
pub mod use_of_blocks;

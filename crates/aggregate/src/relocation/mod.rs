//! What is to move to another place in the aggregate, and what a consistency point does about it:
//! [`plan`] says what each volume has to move, [`moves`] what a batch is, [`areas`] which areas are
//! being emptied, [`splits`] which clones are being split, [`limit`] how fast administrators let
//! work go on, [`scan`] how blocks cool, [`tiering`] what administrators have chosen.
//!
//! Invariants: see [`crate::relocating`], whose messages fill the plan. The room knows no message,
//! and does no I/O but the writing of what is placed.

pub mod areas;
pub mod limit;
pub mod moves;
pub mod plan;
pub mod scan;
pub mod splits;
pub mod tiering;
pub mod tiers;

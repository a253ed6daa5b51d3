//! What a life begins with and leaves behind: its seed's choices, how lives are lived, what is left
//! out, what was met and what was found.
//!
//! Invariants: nothing here knows a node.

pub mod choices;
pub mod finding;
pub mod lives;
pub mod reduction;
pub mod trace;

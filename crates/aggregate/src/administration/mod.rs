//! What administrators ask of an aggregate in service: [`settings`], the [`area_map`], groups that
//! leave ([`evacuation`]), clones that are split ([`splitting`]), and images that are pinned for a
//! check ([`pinning`]).
//!
//! Invariants: what changes the aggregate is an action of a freeze.

mod area_map;
pub mod evacuation;
pub mod pinning;
mod settings;
pub mod splitting;

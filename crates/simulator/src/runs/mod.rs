//! Lives of many seeds: in turn, at each boundary of one, smaller and smaller, with broken rules.

pub mod boundaries;
#[cfg(feature = "mutations")]
pub mod mutations;
pub mod run;
pub mod shrink;

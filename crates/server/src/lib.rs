//! The part of the binary `stroop` that others look at without running a node: the configuration.
//!
//! Invariants: nothing here starts anything or touches a disk, but [`config::Config::load`], which
//! reads one file.

#![forbid(unsafe_code)]

pub mod config;
pub mod hostname;

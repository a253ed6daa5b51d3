//! The file system core, written once and used twice.

pub mod directory;

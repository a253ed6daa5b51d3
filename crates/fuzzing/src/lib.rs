//! What the fuzz targets do. `fuzz/` ties each to libFuzzer; a test here replays the seeds without.
//!
//! A target is a function of bytes that panics when a rule is broken. All of them drive the real
//! code: a front end over the memory backend, a parser, or a whole engine on simulated disks.
//!
//! | target | its bytes |
//! | --- | --- |
//! | [`rpc::rpc_stream`] | what a client sends on a connection, in pieces |
//! | [`nfs::nfs_call`] | a sequence of NFSv3 and MOUNT calls |
//! | [`nlm::nlm_call`] | a sequence of NLM and NSM calls |
//! | [`fuse::fuse_request`] | a sequence of the kernel's requests |
//! | [`config::config`] | a configuration, a command line, an administrator's messages |
//! | [`formats::ondisk_types`] | a structure as a disk might hold it |
//! | [`image::mount_image`] | damages to an image that the engine made |
//! | [`engine::engine_operations`] | operations, consistency points, power cuts |
//!
//! Invariants: a target is a function of its bytes alone: no clock, no randomness, no state left
//! from the input before. It ends, soon, on any bytes.
//!
//! Fails: by a panic that says which rule was broken.

#![forbid(unsafe_code)]

pub mod config;
pub mod engine;
pub mod formats;
pub mod fuse;
pub mod image;
pub mod input;
mod memory;
pub mod nfs;
pub mod nlm;
mod node;
mod results;
pub mod rpc;

/// A target: its name, as in `fuzz/fuzz_targets`, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("rpc_stream", rpc::rpc_stream),
    ("nfs_call", nfs::nfs_call),
    ("nlm_call", nlm::nlm_call),
    ("fuse_request", fuse::fuse_request),
    ("config", config::config),
    ("ondisk_types", formats::ondisk_types),
    ("mount_image", image::mount_image),
    ("engine_operations", engine::engine_operations),
];

//! The real binary on temporary files: commands, files over NFS, SIGKILL, damaged disks.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod acls;
mod audit;
mod bench;
mod check;
mod check_out_of_service;
mod command_line;
mod deletion;
mod disk_names;
mod events;
mod faults;
mod features;
mod files;
mod growth;
mod guide;
mod jobs;
mod journals;
mod memory;
mod metrics;
mod mounts;
mod object_ranges;
mod objects;
mod place;
mod privacy;
mod scrub;
mod service;
mod taking;
mod upkeep;
mod volume_names;

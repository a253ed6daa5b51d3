//! What goes wrong in a life: disks that go, rot, get sick, lose superblocks or blocks of files;
//! and logs that hang or lose writes.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`losses`] | disks that go, come back and are replaced |
//! | [`lacking`] | which lives end with features that the build lacks |
//! | [`log_copies`] | one of two copies of the log goes and comes back |
//! | [`log_on_disks`] | the log is on the aggregate's disks, and has their faults |
//! | [`log_faults`] | the log's disk hangs, rots, loses writes |
//! | [`slots`] | superblock slots that cannot be read at a start |
//! | [`damage`] | blocks that cannot be read, and no parity |
//! | [`sickness`] | a disk with many errors, and whether they are counted and kept |
//!
//! Invariants: a fault knows the machine and its tenants, and no life; it has its state to itself,
//! but for the facts about the world that the machine keeps.

pub mod damage;
pub mod lacking;
pub mod log_copies;
pub mod log_faults;
pub mod log_on_disks;
pub mod losses;
pub mod sickness;
pub mod slots;

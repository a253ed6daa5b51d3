//! The aggregate's own file system as the last commit has it: [`side`] is its state, [`mount`]
//! brings it into memory, [`superblock`] finds the newest, [`backend`] places the blocks of its
//! next image, [`room`] says what of it operations may be promised, [`evacuation`] which group
//! leaves, [`deletion`] which volumes are being freed, [`policies`] what was chosen for a volume,
//! [`clones`] what clones need of other volumes.
//!
//! Invariants: the room knows no message and no member, and waits for nothing.

pub mod backend;
pub mod clones;
pub mod deletion;
pub mod evacuation;
pub mod mount;
pub mod policies;
pub mod room;
pub mod settings;
pub mod side;
pub mod superblock;

//! Fills disks with what their places must hold.

mod rebuild;
mod resync;

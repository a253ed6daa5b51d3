//! The store against simulated disks: a naive map says what every read must give.

mod assembly;
mod crash;
mod damage;
mod files;
mod geometry;
pub(crate) mod model;
mod random;
mod rebuild;
mod returning;
mod successor;

//! The store against simulated disks: a naive map says what every read must give.

mod assembly;
mod crash;
mod damage;
mod damage_scrub;
mod discard;
mod files;
mod geometry;
mod growth;
mod health;
mod hole;
pub(crate) mod model;
mod numbers;
mod random;
mod rebuild;
mod removal;
mod replacement;
mod returning;
mod scrub;
mod stable;

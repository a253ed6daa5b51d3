//! Volumes: file systems of the core that users see (FlexVol section 3.2).
//!
//! A *flexible* volume lives in a container file of its aggregate: its block numbers are VVBNs, its
//! pointers dual (FlexVol section 3.3), and its consistency points hand the aggregate the changes
//! of the container map. A *traditional* volume is the aggregate's own file system with a
//! user-visible root.
//!
//! Both have the same [`Front`]: the logical side, partitioned into stripes, that operations run
//! on.
//!
//! Architecture invariants:
//! - A volume is changed by messages of its own affinities, and by its aggregate's at freeze and
//!   publish; it knows no protocol and no log.
//! - What a flexible volume frees in its own space it frees in the aggregate in the same
//!   consistency point, or notes as a delayed free.

#![forbid(unsafe_code)]

mod autodelete;
mod autogrow;
mod backend;
pub mod beside;
mod cleaning;
pub mod clones;
mod damage;
mod delayed;
mod delaying;
pub mod differences;
mod flexible;
mod format;
pub use format::{growth_room_blocks, new_room_blocks, room_blocks_max};
mod front;
pub mod lifecycle;
mod load;
mod member;
pub mod quota_lists;
pub mod quotas;
pub mod recovery_queue;
mod reloading;
mod shares;
mod snapshots;
pub mod spans;
mod splitting;
mod traditional;
mod under_way;
mod work;

#[cfg(test)]
mod tests;

pub use damage::VolumeDamage;
pub use flexible::FlexibleVolume;
pub use front::Front;
pub use snapshots::{Birth, SnapshotInfo, SnapshotRequest, note_holds};
pub use traditional::TraditionalVolume;

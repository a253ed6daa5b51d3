//! Aggregates: a pool of disks as one space of PVBNs, with the containers of volumes in it and the
//! consistency points that take all of it from one image to the next (FlexVol section 3.1,
//! decision 8).
//!
//! An aggregate is a file system of the core ([`cowfs`]) whose files are the volumes' containers.
//! The lowest level of a container's buftree is the *container map*, from VVBN to PVBN. A
//! consistency point freezes every volume, lets each clean its image, takes the changes of their
//! container maps, cleans the aggregate's own image, and writes the superblock.
//!
//! The rooms, in the order in which they may import one another, each those before it only:
//!
//! 1. `allocation`: free blocks. `containers`: volumes as the aggregate's image has them.
//! 2. `relocation`: what is to move to another place.
//! 3. `block_side`: the aggregate's own file system. `loader` reads blocks.
//! 4. `service`: the aggregate, and what asks for consistency points.
//! 5. `background` and `administration`, then `relocating`: messages and actions that work on
//!    the aggregate in service.
//! 6. `consistency_point`: calls all of them, in an order that it states.
//! 7. `assembly`: puts an aggregate into service.
//!
//! Architecture invariants:
//! - The aggregate does not know what a volume is; it knows [`Member`]s that freeze, clean and
//!   publish.
//! - Nothing that the last superblock reaches is overwritten before the next one is durable.
//! - A consistency point that cannot complete takes the aggregate out of service: crash rather than
//!   corrupt.
//! - All changes to the volume table happen at a freeze, when no consistency point runs.

#![forbid(unsafe_code)]

mod administration;
mod allocation;
mod assembly;
mod background;
mod block_side;
mod consistency_point;
mod containers;
mod error;
mod journal;
mod loader;
mod owner;
mod relocating;
mod relocation;
mod service;

#[cfg(any(test, feature = "testing"))]
pub mod test_support;
#[cfg(test)]
mod tests;

pub use administration::evacuation::RemovalPlanned;
pub use administration::pinning::{PinDone, UnpinDone};
pub use administration::splitting;
pub use allocation::area_map::{AreaCell, GroupMap, MapDone};
pub use allocation::pool::BlockPool;
pub use allocation::reclaim::Reclaim;
pub use allocation::tuning::{FreeCounters, PickCounters, Tuning};
pub use allocator::{AreaChoice, Picks};
pub use block_side::clones::ANCESTORS_MAX;
pub use block_side::deletion::Deletion;
pub use block_side::evacuation::{Evacuation, EvacuationError};
pub use block_side::mount::{AGGREGATE_BLOCKS_MIN, Mounted, format_block_side, mount};
pub use block_side::policies::{
    AutogrowMax, Guarantee, Reallocation, SnapshotAutodelete, SnapshotSchedule, VOLUME_BLOCKS_MAX,
    VolumeChange,
};
pub use block_side::settings::Settings;
pub use block_side::side::{BlockSide, VOLUMES_MAX};
pub use block_side::superblock::{choose_superblock, is_whole_slot};
pub use consistency_point::{commit, freeze, steps};
pub use containers::{
    Container, ContainerUpdate, MemberCleaned, OwnFiles, VolumeSlot, container_inode,
    container_lookup, owned_among,
};
pub use cowfs::space::FreeCounts;
pub use error::{AggregateError, Lacking};
pub use journal::{LateJournal, decode as decode_partial_parity};
pub use loader::{ContainerMaps, Loader, LoadsUnderWay, Place, PlacesDone, suspend_for_load};
pub use owner::{VOL_INFO_INODE, block_owner, vol_info_place};
pub use relocation::plan::Relocation;
pub use relocation::splits::CloneSplit;
pub use relocation::tiering::{Tiering, TieringPolicy};
pub use service::action::{Acted, Action, CpDone, FreezeScope};
pub use service::aggregate::{Aggregate, AggregateIdentity, Parts};
pub use service::guarantees::{self, Patience};
pub use service::member::{
    ActiveDone, Cleaning, FreezeContext, Inherited, InheritedDone, Member, MemberRoom, Published,
};
pub use service::pins::{ImagePin, PinError};
pub use service::state::{Phase, PhaseDurations, dot};
pub use service::statistics::Statistics;

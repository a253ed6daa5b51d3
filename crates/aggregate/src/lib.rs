//! Aggregates: a pool of disks as one space of PVBNs, with the containers of volumes in it and the
//! consistency points that take all of it from one image to the next (FlexVol section 3.1,
//! decision 8).
//!
//! An aggregate is a file system of the core ([`cowfs`]) whose files are the volumes' containers.
//! The lowest level of a container's buftree is the *container map*, from VVBN to PVBN. A
//! consistency point ([`consistency_point`]) freezes every volume, lets each clean its image, takes
//! the changes of their container maps, cleans the aggregate's own image, and writes the
//! superblock.
//!
//! Architecture invariants:
//! - The aggregate does not know what a volume is; it knows [`Member`]s that freeze, clean and
//!   publish.
//! - Nothing that the last superblock reaches is overwritten before the next one is durable.
//! - A consistency point that cannot complete takes the aggregate out of service: crash rather than
//!   corrupt.
//! - All changes to the volume table happen at a freeze, when no consistency point runs.

#![forbid(unsafe_code)]

mod aggregate;
mod area_map;
mod backend;
mod block_side;
pub mod consistency_point;
mod error;
mod journal;
mod leaving;
mod loader;
mod member;
mod memory;
mod mount;
mod owner;
mod pin;
mod pool;
mod reclaim;
mod refill;
mod relocate;
mod stocking;
mod tuning;
mod use_of_blocks;

pub use aggregate::{Aggregate, AggregateIdentity, Parts, Statistics};
pub use allocator::{AreaChoice, Picks};
pub use area_map::{AreaCell, GroupMap, MapDone};
pub use backend::ContainerUpdate;
pub use block_side::{BlockSide, Container, Settings, VolumeSlot};
pub use consistency_point::{Acted, Action, CpDone, FreezeContext, FreezeScope, Phase};
pub use cowfs::space::FreeCounts;
pub use error::AggregateError;
pub use journal::{LateJournal, decode as decode_stripe_note};
pub use leaving::{Leaving, LeavingError, RemovalPlanned};
pub use loader::{ContainerMaps, Loader, LoadsUnderWay, Place, PlacesDone, suspend_for_load};
pub use member::{ActiveDone, Cleaning, Member, MemberCleaned, Published, container_inode};
pub use mount::{
    AGGREGATE_BLOCKS_MIN, Mounted, choose_superblock, container_lookup, format_block_side,
    is_whole_slot, mount,
};
pub use owner::{VOL_INFO_INODE, block_owner, vol_info_place};
pub use pin::{ImagePin, PinDone, PinError, UnpinDone};
pub use pool::BlockPool;
pub use reclaim::Reclaim;
pub use relocate::Relocation;
pub use relocate::tiering::{Tiering, TieringPolicy};
pub use tuning::{FreeCounters, PickCounters, Tuning};

//! Benches: figures, never tests.
//!
//! | bench | measures |
//! | --- | --- |
//! | [`engine()`] | the engine through [`file_service::FileService`], beside the bare disk |
//! | [`nfs()`] | a node over NFS on the loopback, beside a server that does nothing |
//! | [`compare_nfs`] | the same beside nfs-ganesha on XFS |
//! | [`listing()`] | `ls -l` of a large directory, over NFS and on a mount |
//! | [`start()`] | the time until a node serves again, killed or stopped |
//! | [`fuse()`] | a mount of ours beside a FUSE file system that does nothing |
//! | [`streams()`] | a file larger than memory, in order and at random, over NFS |
//! | [`compare_streams`] | the same beside nfs-ganesha on XFS and on btrfs |
//! | [`compare_local`] | the same on a mount of ours, beside XFS and btrfs on loop devices |
//! | [`compare_volumes`] | snapshots, clones and ageing of a volume, beside btrfs and XFS |
//! | [`freespace()`] | what the choice of free space costs drives, modelled, beside FreeSpace |
//! | [`flexvol()`] | a flexible volume beside a traditional one, as in FlexVol section 5 |
//! | [`model()`] | the engine on more cores and disks than this machine has, in modelled time |
//! | [`run_operation`] | single operations, for tools that count instructions |
//!
//! Invariants: a figure is the median of several rounds, printed with the lowest and the highest;
//! what stands beside it was measured in the same run, in turns with it; a load that fails ends
//! the bench with its error; a bench leaves nothing behind, also when it is interrupted.

#![forbid(unsafe_code)]

mod big;
mod buffer;
mod engine;
mod flexvol;
mod flight;
mod freespace;
mod fuse;
mod latency;
mod leftovers;
mod local;
mod machine;
mod measured;
mod memory;
mod model;
mod mounted;
mod nfs;
mod node;
mod numbers;
mod operation;
mod peer_disks;
mod process;
mod raid;
mod raw;
mod streams;
mod stripes;
mod summary;
mod svg;
mod tools;
mod volumes;

pub use big::{BigBench, BigFigure, BigLoad, big};
pub use engine::{EngineBench, engine};
pub use flexvol::{FlexvolBench, FlexvolFigure, flexvol};
pub use freespace::{FreespaceBench, FreespaceFigure, freespace};
pub use fuse::fuse;
pub use latency::Latencies;
pub use leftovers::{Scratch, clean_up_and_exit};
pub use local::compare_local;
pub use machine::Machine;
pub use model::{
    Bound, Direction, Medium, ModelBench, ModelReport, ModelRound, ModelRow, PhaseShare, Shape,
    Shares, model,
};
pub use nfs::{
    NfsBench, StartBench, compare_nfs, compare_streams, listing, nfs, peer_missing, serve_nothing,
    start, streams, strip_chart,
};
pub use node::BenchError;
pub use operation::{OPERATIONS, OPERATIONS_MAX, run_operation};
pub use process::NodeBench;
pub use raid::{RaidBench, raid};
pub use summary::{Beside, Report, Role, Row, Series, Span, Unit};
pub use volumes::{VolumesBench, compare_volumes};

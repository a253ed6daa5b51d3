//! Comparing two snapshots of a volume ([`cowfs::differences`]), beside clients and consistency
//! points ([`crate::beside`]).
//!
//! The comparison runs in the logical affinity, as reads of snapshots do.
//!
//! Invariants: both snapshots are there whenever something of them is read.
//!
//! Fails: [`AggregateError`], where one of them is gone, too much differs, or what both of them
//! share cannot be read.

use crate::beside::{MayGoOn, Part, Work, WorkDone};
use crate::flexible::FlexibleVolume;
use crate::front::Front;
use crate::traditional::TraditionalVolume;
use affinity::Access;
use aggregate::{Aggregate, AggregateError};
use cowfs::differences::{DifferenceLimit, DifferenceLimits, DifferenceStep, DifferenceWalk};
use cowfs::pointer::Pointer;
use std::sync::Arc;
use units::SnapshotId;

pub use cowfs::differences::{Change, Difference, Differences, Found};

/// Blocks that a message looks at.
const BLOCKS_PER_MESSAGE: usize = 64;

/// Differences that are told at most.
const LIMITS: DifferenceLimits = DifferenceLimits { files_max: 100_000, path_bytes_max: 32 << 20 };

/// Is told the differences.
pub type DifferencesDone = WorkDone<Found>;

/// Compares two snapshots of a flexible volume, the first with the second.
pub fn of_flexible(
    volume: &Arc<FlexibleVolume>,
    aggregate: &Arc<Aggregate>,
    snapshots: [SnapshotId; 2],
    outcome: (MayGoOn, DifferencesDone),
) {
    begin((volume, |volume| &volume.front), aggregate, snapshots, outcome);
}

/// Compares two snapshots of a traditional volume.
pub fn of_traditional(
    volume: &Arc<TraditionalVolume>,
    aggregate: &Arc<Aggregate>,
    snapshots: [SnapshotId; 2],
    outcome: (MayGoOn, DifferencesDone),
) {
    begin((volume, |volume| &volume.front), aggregate, snapshots, outcome);
}

/// The front of a volume.
type FrontOf<V, P> = fn(&V) -> &Front<P>;

fn begin<V: Send + Sync + 'static, P: Pointer>(
    (volume, front_of): (&Arc<V>, FrontOf<V, P>),
    aggregate: &Arc<Aggregate>,
    snapshots: [SnapshotId; 2],
    (may_go_on, done): (MayGoOn, DifferencesDone),
) {
    let affinity = front_of(volume).affinities.logical;
    let (volume, mut walk) = (Arc::clone(volume), None);
    let part: Part<Found> = Box::new(move |access: &mut Access<'_>, reader| {
        let logical = front_of(&volume).logical.read(access);
        let [Some(old), Some(new)] = snapshots.map(|snapshot| logical.snapshot(snapshot)) else {
            let text = "one of the snapshots was deleted meanwhile".to_owned();
            return Ok(Err(AggregateError::Refused(text)));
        };
        let walk = walk.get_or_insert_with(|| {
            DifferenceWalk::new(logical.volume, old.inode_file, new.inode_file, LIMITS)
        });
        Ok(match walk.go_on(BLOCKS_PER_MESSAGE, reader)? {
            DifferenceStep::Pause => Ok(None),
            DifferenceStep::Done(found) => Ok(Some(found)),
            DifferenceStep::TooMany(limit) => Err(AggregateError::Refused(too_much(limit))),
        })
    });
    let failed = "the snapshots cannot be compared";
    let aggregate = Arc::clone(aggregate);
    Work { aggregate, affinity, part, failed, may_go_on, done }.send();
}

fn too_much(limit: DifferenceLimit) -> String {
    let what = match limit {
        DifferenceLimit::Files => format!("more than {} files differ", LIMITS.files_max),
        DifferenceLimit::PathBytes => {
            format!("the names of what differs take more than {} bytes", LIMITS.path_bytes_max)
        }
    };
    format!("{what}; compare snapshots that are nearer to each other")
}

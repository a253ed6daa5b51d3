//! Figure 8: an aggregate of SSDs, filled to 85 % and aged, with areas of the size that suits hard
//! disks and with areas of whole erase blocks (FreeSpace section 4.3).
//!
//! An erase block is the 64th part of a disk, rounded down to a power of two: a group has 16 areas
//! of four erase blocks. Areas of the other size are as small beside an erase block as 4 Ki stripes
//! are beside one of 64 MiB: a quarter of it.
//!
//! The drives are of two sorts. Those that map erase blocks relocate what is in use of the one that
//! is written to, as FreeSpace section 3.2.2 says; to those that map pages it is all one where
//! something lies.

use crate::freespace::drive::Model;
use crate::freespace::plan::{Found, FreespaceBench};
use crate::freespace::rig::Shape;
use crate::freespace::span::Metric;
use crate::freespace::variant::{AS_IT_IS, Case, Overwrites, Progress, Variant};
use crate::node::BenchError;
use device_models::{FlashMapping, SsdConfiguration};
use ondisk::identity::{REGION_BLOCKS, REGION_DATA_BLOCKS};
use units::BLOCK_SIZE_U64;

/// Erase blocks of a disk.
const ERASE_BLOCKS: u64 = 64;
/// Small areas that an erase block has room for.
const SMALL_AREAS_OF_ERASE_BLOCK: u64 = 4;
const LOAD: Overwrites =
    Overwrites { volumes: 4, filled_percent: 85, new_groups: 0, round_share: 4 };

/// Areas do not know of erase blocks.
const SMALL_AREAS: Variant = Variant {
    name: "small areas",
    configure: |shape, engine| engine.tuning.area_stripes = Some(small_area_stripes(shape)),
    ..AS_IT_IS
};

const CASES: [Case; 2] =
    [Case { variant: AS_IT_IS, paper: &[] }, Case { variant: SMALL_AREAS, paper: &[] }];

const METRICS: [Metric; 6] = [
    Metric::GroupPicks,
    Metric::WriteAmplification,
    Metric::FullStripes,
    Metric::BlocksWritten,
    Metric::ModelledRate,
    Metric::Rate,
];

fn erase_block_bytes(disk_bytes: u64) -> u64 {
    1 << (disk_bytes / ERASE_BLOCKS).max(1).ilog2()
}

/// Whole regions, so that both sizes differ in nothing else.
fn small_area_stripes(shape: &Shape) -> u64 {
    let bytes = erase_block_bytes(shape.disk_bytes) / SMALL_AREAS_OF_ERASE_BLOCK;
    let regions = bytes / BLOCK_SIZE_U64 / REGION_BLOCKS as u64;
    regions.max(1) * REGION_DATA_BLOCKS as u64
}

pub(super) fn run(bench: &FreespaceBench, progress: Progress<'_>) -> Result<Found, BenchError> {
    let erase_block_bytes = erase_block_bytes(bench.disk.0);
    let sorts =
        [("8 by erase block", FlashMapping::EraseBlocks), ("8 by page", FlashMapping::Pages)];
    let mut rows = Vec::new();
    for (figure, mapping) in sorts {
        let ssd = SsdConfiguration { mapping, erase_block_bytes, ..bench.ssd() };
        let comparison = bench.comparison(figure, &CASES, Model::Ssd(ssd));
        let measured = comparison.of_overwrites(progress, &LOAD, bench.age)?;
        rows.extend(comparison.rows(&METRICS, &measured));
    }
    let note = format!(
        "SSDs with erase blocks of {} MiB, mapped by the erase block or by the page, \
         {} % full, overwritten {} times; the paper: areas of whole erase blocks \
         halve write amplification, 26 % more throughput",
        erase_block_bytes >> 20,
        LOAD.filled_percent,
        bench.age
    );
    Ok((rows, note))
}

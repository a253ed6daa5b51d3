//! `stroop bench freespace`: runs figures of the FreeSpace paper.
//!
//! Fails: if there is no figure of a name, or disks are too small or too large for the models.

use super::{failed, named, progress};
use admin_api::AdminError;
use bench::{FreespaceBench, FreespaceFigure, Report, freespace};
use cli::BenchFreespaceArguments;
use units::ByteSize;

/// An erase block or a zone is a part of a disk, and has to have room for some requests.
const DISK_BYTES_MIN: u64 = 32 << 20;
/// An erase block or a zone of such a disk is 1 GiB, half of what a label can say.
const DISK_BYTES_MAX: u64 = 16 << 30;
/// A group has one parity disk more, and fewer disks than a label has room for.
const DATA_DISKS_MAX: usize = 16;

/// Runs the figures that are asked for, or all.
pub(crate) fn run(arguments: &BenchFreespaceArguments) -> Result<Report, AdminError> {
    let BenchFreespaceArguments { figures, disk_size, data_disks, age, over_provisioning, rounds } =
        arguments.clone();
    if !(DISK_BYTES_MIN..=DISK_BYTES_MAX).contains(&disk_size.0) {
        let (least, most) = (ByteSize(DISK_BYTES_MIN), ByteSize(DISK_BYTES_MAX));
        return Err(failed(format!("a disk of {disk_size} is no size from {least} to {most}")));
    }
    if !(2..=DATA_DISKS_MAX).contains(&data_disks) {
        let limits = format!("a group has 2 to {DATA_DISKS_MAX} data disks");
        return Err(failed(format!("{limits} here, not {data_disks}")));
    }
    let figures = named("figure", &FreespaceFigure::ALL, FreespaceFigure::name, &figures)?;
    let bench = FreespaceBench {
        disk: disk_size,
        data_disks,
        age: age as u64,
        over_provisioning_percent: over_provisioning,
        rounds,
    };
    freespace(&bench, &figures, &mut progress).map_err(failed)
}

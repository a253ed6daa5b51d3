//! Which aggregate a disk belongs to, as its label says, for programs that read disks without a
//! node.
//!
//! Fails: a label that is there and cannot be used is an error in words; a disk without a label
//! belongs to nobody.

use media::MediaError;
use platform::{Disk, DiskError};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use units::AggregateUuid;

/// The aggregate that a disk belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskOwner {
    /// Its identity.
    pub identity: AggregateUuid,
    /// Its name, if the label has one.
    pub name: Option<String>,
}

/// The owner of a disk; `None` if it has no label of ours.
///
/// # Errors
/// Why its label cannot be used.
pub fn owner_of(disk: &Arc<dyn Disk>) -> Result<Option<DiskOwner>, String> {
    let (sender, receiver) = sync_channel(1);
    media::read_label(
        disk,
        Box::new(move |label| {
            let _ = sender.send(label);
        }),
    );
    let gone = || MediaError::Disk(DiskError::Gone { disk: disk.name().to_owned() });
    match receiver.recv().unwrap_or_else(|_| Err(gone())) {
        Ok(label) => {
            let name = label.name().map(ToOwned::to_owned);
            Ok(Some(DiskOwner { identity: label.aggregate, name }))
        }
        Err(
            error @ (MediaError::Disk(_)
            | MediaError::DamagedLabel { .. }
            | MediaError::AnotherBuild { .. }),
        ) => Err(error.to_string()),
        Err(_) => Ok(None),
    }
}

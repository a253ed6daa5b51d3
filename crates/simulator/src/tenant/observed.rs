//! Answers of the engine as they are compared with the model's.

use file_service::FsError;
use model_fs::{FileView, Observation, Operation, SnapshotAction};

/// What a right engine may refuse for want of room, or for a quota, and then has not done: whatever
/// makes something. Removing always works, and what was accepted is never refused later.
pub(super) fn is_left_out(operation: &Operation, found: &Observation) -> bool {
    matches!(found, Observation::Failed(FsError::NoSpace | FsError::OverQuota))
        && operation.is_mutation()
        && !matches!(
            operation,
            Operation::Remove { .. }
                | Operation::RemoveDirectory { .. }
                | Operation::Snapshot(SnapshotAction::Delete(_) | SnapshotAction::Restore(_))
        )
}

/// The same without times of last read: to look at a tree, as the model does when it makes a
/// snapshot and when it is compared, is to read it.
pub(super) fn without_atime(observation: &Observation) -> Observation {
    let mut same = observation.clone();
    let clear = |file: &mut FileView| file.atime = None;
    match &mut same {
        Observation::File(file)
        | Observation::Changed { after: file, .. }
        | Observation::Rights { file, .. }
        | Observation::Text { file, .. }
        | Observation::Wrote { after: file, .. } => clear(file),
        Observation::Made { file, directory } => {
            clear(file);
            clear(directory);
        }
        Observation::Renamed { from, to } => {
            clear(from);
            clear(to);
        }
        Observation::Data { file, .. } => file.iter_mut().for_each(clear),
        Observation::Entries(entries) => {
            entries.iter_mut().filter_map(|entry| entry.file.as_mut()).for_each(clear);
        }
        Observation::Failed(_)
        | Observation::Done
        | Observation::Value(_)
        | Observation::Names(_)
        | Observation::Offset(_)
        | Observation::Broken(_) => {}
    }
    same
}

//! The events of a volume that has grown, or has deleted snapshots, by itself.

use crate::events::ring::Happening;
use admin_api::EventSeverity;
use dblade::ServedVolume;
use units::{BLOCK_SIZE_U64, ByteSize, shell_word};

/// What happened if the volume has grown since it was asked last. A growth in the last second
/// before the end of the server, or of the aggregate's service, is not told.
pub(crate) fn growth_of(volume: &ServedVolume) -> Option<Happening> {
    let (from, to) = volume.take_growth()?;
    let size = |blocks: u64| ByteSize(blocks * BLOCK_SIZE_U64);
    let maximum = volume.autogrow_max().0;
    let limit = match maximum {
        0 => String::new(),
        _ if maximum <= to => ", its largest size".to_owned(),
        _ => format!("; it grows to {}", size(maximum)),
    };
    let cause = format!("it grew from {} to {}{limit}", size(from), size(to));
    Some(Happening::new(EventSeverity::Info, "VOLUME_GREW", volume.name(), cause))
}

/// What happened if the volume has deleted snapshots by itself since it was asked last. Like a
/// growth, what goes in the last second is not told.
pub(crate) fn autodeletion_of(volume: &ServedVolume) -> Option<Happening> {
    let names = volume.take_autodeleted();
    let count = match names.len() {
        0 => return None,
        1 => "a snapshot was".to_owned(),
        count => format!("{count} snapshots were"),
    };
    let cause = format!("room was short, and {count} deleted: {}", names.join(", "));
    let (name, severity) = (volume.name(), EventSeverity::Warning);
    let show = format!("stroop volume show {} --space", shell_word(&name));
    Some(Happening::new(severity, "SNAPSHOT_AUTODELETED", name, cause).next(show))
}

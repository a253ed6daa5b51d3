//! The event of a volume that has grown by itself.

use crate::events::ring::Happening;
use admin_api::EventSeverity;
use dblade::ServedVolume;
use units::{BLOCK_SIZE_U64, ByteSize};

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

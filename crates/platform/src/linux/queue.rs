//! What the kernel tells of a device's medium: the attributes of its queue below `/sys/dev/block`.
//!
//! Invariants: an attribute that is missing, empty or no number tells nothing, and nothing is
//! guessed in its place. A regular file has no zones and no erase blocks of its own, for the file
//! system puts it where it likes: of the device below it only the head counts.
//!
//! Fails: never; a device that cannot be asked has no hints.

use crate::MediaHints;

const SECTOR_BYTES: u64 = 512;
/// Sizes below say nothing of erase blocks: drives report sectors and pages, up to 16 KiB, as what
/// can be discarded; no flash is erased in less than 64 KiB.
const ERASE_BLOCK_BYTES_MIN: u64 = 64 << 10;

/// What the kernel tells of a block device, or of the one below a file.
pub(super) fn hints(device: u64, is_block_device: bool) -> MediaHints {
    let base = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    let read = |attribute: &str| {
        // A partition's queue is its disk's.
        [format!("{base}/queue/{attribute}"), format!("{base}/../queue/{attribute}")]
            .iter()
            .find_map(|path| std::fs::read_to_string(path).ok())
    };
    of_queue(read, is_block_device)
}

/// The same, by what `read` tells of an attribute.
fn of_queue(read: impl Fn(&str) -> Option<String>, is_block_device: bool) -> MediaHints {
    let text = |attribute: &str| read(attribute).map(|text| text.trim().to_owned());
    let is_rotational = text("rotational").is_some_and(|text| text == "1");
    if !is_block_device {
        return MediaHints { is_rotational, ..MediaHints::default() };
    }
    let bytes = |attribute: &str| text(attribute).and_then(|text| text.parse::<u64>().ok());
    // Without zones `chunk_sectors` is something else, the chunk of a striped device, say.
    let is_zoned = text("zoned").is_some_and(|text| text.starts_with("host-"));
    let sectors = bytes("chunk_sectors").filter(|sectors| is_zoned && *sectors > 0);
    let zone_bytes = sectors.and_then(|sectors| sectors.checked_mul(SECTOR_BYTES));
    let erase_block_bytes = ["discard_granularity", "optimal_io_size"]
        .into_iter()
        .filter(|_| !is_rotational)
        .find_map(|attribute| bytes(attribute).filter(|bytes| *bytes >= ERASE_BLOCK_BYTES_MIN));
    MediaHints { is_rotational, zone_bytes, erase_block_bytes, ..MediaHints::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(attributes: &[(&str, &str)], is_rotational: bool, zone: u64, erase_block: u64) {
        let read = |wanted: &str| {
            let found = attributes.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, text)| format!("{text}\n"))
        };
        let some = |bytes: u64| Some(bytes).filter(|bytes| *bytes > 0);
        let (zone_bytes, erase_block_bytes) = (some(zone), some(erase_block));
        let expected =
            MediaHints { is_rotational, zone_bytes, erase_block_bytes, ..MediaHints::default() };
        assert_eq!(of_queue(read, true), expected, "{attributes:?}");
        let of_file = MediaHints { is_rotational, ..MediaHints::default() };
        assert_eq!(of_queue(read, false), of_file, "a file: {attributes:?}");
    }

    #[test]
    fn queues_tell_what_they_tell_and_no_more() {
        check(&[], false, 0, 0);
        check(&[("rotational", "0")], false, 0, 0);
        check(&[("rotational", "1"), ("zoned", "none"), ("chunk_sectors", "0")], true, 0, 0);
        let shingled = [("rotational", "1"), ("zoned", "host-aware"), ("chunk_sectors", "524288")];
        check(&shingled, true, 256 << 20, 0);
        check(&[("rotational", "1"), ("zoned", "host-aware"), ("chunk_sectors", "")], true, 0, 0);
        check(&[("zoned", "host-managed"), ("chunk_sectors", "99999999999999999999")], false, 0, 0);
        check(&[("zoned", "host-managed"), ("chunk_sectors", "36028797018963968")], false, 0, 0);
        // A striped device: its chunk is no zone.
        let striped =
            [("rotational", "1"), ("chunk_sectors", "1024"), ("optimal_io_size", "1048576")];
        check(&striped, true, 0, 0);
        // A drive that discards sectors says nothing of what it erases.
        check(&[("rotational", "0"), ("discard_granularity", "512")], false, 0, 0);
        check(
            &[("discard_granularity", "4194304"), ("optimal_io_size", "131072")],
            false,
            0,
            4 << 20,
        );
        check(
            &[("discard_granularity", "4096"), ("optimal_io_size", "131072")],
            false,
            0,
            128 << 10,
        );
        check(&[("discard_granularity", "65535")], false, 0, 0);
    }
}

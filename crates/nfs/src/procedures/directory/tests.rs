//! The byte limits of READDIR and READDIRPLUS against a naive count of what was written.

use super::*;
use file_service::{AccessList, Attributes, Entry, FileHandle, FileKind, HandleKey, SealedHandle};
use proptest::prelude::*;
use units::{Generation, InodeNumber, SnapshotId, Timestamp, VolumeUuid};

const KEY: HandleKey = HandleKey([3; 16]);

fn attributes() -> Attributes {
    Attributes {
        inode: InodeNumber(2),
        generation: Generation(1),
        kind: FileKind::Directory,
        mode: 0o755,
        acl: AccessList::None,
        links: 2,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        device: (0, 0),
        file_system: 1,
        atime: Timestamp(0),
        mtime: Timestamp(0),
        ctime: Timestamp(0),
        birth: Timestamp(0),
        change: 0,
    }
}

fn page(names: &[(usize, bool)], end: bool) -> DirectoryPage {
    let handle = FileHandle {
        volume: VolumeUuid([1; 16]),
        inode: InodeNumber(2),
        generation: Generation(1),
        snapshot: SnapshotId::ACTIVE,
    };
    let entry = |(at, (length, known)): (usize, &(usize, bool))| DirectoryEntry {
        name: vec![b'n'; *length],
        cookie: at as u64 + 1,
        inode: InodeNumber(at as u64 + 10),
        kind: FileKind::Regular,
        entry: known.then(|| Entry { handle, attributes: attributes() }),
    };
    let entries = names.iter().enumerate().map(entry).collect();
    DirectoryPage { entries, end, attributes: attributes() }
}

/// Reads results; the number of entries, what dircount counts, and the end flag.
fn read_results(bytes: &[u8], with_attributes: bool) -> (usize, usize, bool) {
    let mut reader = Reader::new(bytes);
    assert!(reader.bool().unwrap());
    reader.fixed::<84>().unwrap();
    assert_eq!(reader.u64(), Ok(VERIFIER));
    let (mut count, mut information) = (0, 0);
    while reader.bool().unwrap() {
        let before = reader.rest().len();
        reader.u64().unwrap();
        reader.opaque(255).unwrap();
        assert_eq!(reader.u64(), Ok(count as u64 + 1));
        information += before - reader.rest().len();
        count += 1;
        if with_attributes {
            let known = reader.bool().unwrap();
            if known {
                reader.fixed::<84>().unwrap();
            }
            assert_eq!(reader.bool(), Ok(known));
            if known {
                let sealed = SealedHandle::parse(reader.opaque(64).unwrap()).unwrap();
                sealed.open(&KEY).unwrap();
            }
        }
    }
    let end = reader.bool().unwrap();
    assert!(reader.rest().is_empty());
    (count, information, end)
}

proptest! {
    #[test]
    fn as_much_as_fits_and_no_more(
        names in prop::collection::vec((1..40_usize, any::<bool>()), 0..12),
        end in any::<bool>(),
        bytes in 0..2_000_usize,
        information_bytes in 0..600_usize,
        with_attributes in any::<bool>(),
    ) {
        let information_bytes = if with_attributes { information_bytes } else { bytes };
        let room = Room { bytes, information_bytes, with_attributes };
        let page = page(&names, end);
        let Some((fitting, fitting_bytes)) = room.fitting(&page.entries) else {
            // Not even the frame with one entry fits.
            let first = page.entries.first().map_or(0, |entry| room.entry_sizes(entry).0);
            prop_assert!(FRAME_SIZE + first > bytes);
            return Ok(());
        };
        let mut writer = Writer::default();
        let seal = |file: &FileHandle| Some(file.seal(&KEY));
        Room::write(&mut writer, (&page, fitting), with_attributes, seal);
        prop_assert!(writer.len() <= bytes && writer.len() == fitting_bytes);
        let (count, information, says_end) = read_results(writer.bytes(), with_attributes);
        prop_assert!(information <= information_bytes || count == 1);
        prop_assert_eq!(says_end, end && count == names.len());
        if let Some(next) = page.entries.get(count) {
            let (size, more) = room.entry_sizes(next);
            prop_assert!(writer.len() + size > bytes || information + more > information_bytes);
        }
    }
}

#[test]
fn the_memory_of_a_list_is_known_from_its_arguments() {
    let limits =
        Limits { transfer_bytes_max: 1 << 20, file_bytes_max: 1, links_max: 1, name_bytes_max: 1 };
    let arguments = |words: &[u32]| {
        let mut writer = Writer::default();
        writer.opaque(&[1; 44]);
        writer.u64(0);
        writer.u64(VERIFIER);
        words.iter().for_each(|word| writer.u32(*word));
        writer.into_bytes()
    };
    let of = |bytes: &[u8], with| reply_bytes(&limits, Reader::new(bytes), with);
    assert_eq!(of(&arguments(&[4096]), false), Ok(4096));
    assert_eq!(of(&arguments(&[4096, 32 << 10]), true), Ok(32 << 10));
    assert_eq!(of(&arguments(&[u32::MAX]), false), Ok(LIST_BYTES_MAX as usize));
    assert!(of(&arguments(&[]), false).is_err());
}

#[test]
fn the_backend_is_asked_for_what_usually_fits() {
    let plain = Room { bytes: 4096, information_bytes: 4096, with_attributes: false };
    assert_eq!(plain.entries_usual(), 99);
    let plus = Room { bytes: 32768, information_bytes: 4096, with_attributes: true };
    assert_eq!(plus.entries_usual(), 113);
    let none = Room { bytes: 0, information_bytes: 0, with_attributes: true };
    assert_eq!(none.entries_usual(), 1);
}

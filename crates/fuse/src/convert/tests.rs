//! Tests of the conversions.

use super::*;
use file_service::AccessList;
use units::{Generation, InodeNumber};

fn attributes(kind: FileKind, mode: u32) -> Attributes {
    Attributes {
        inode: InodeNumber(7),
        generation: Generation(3),
        kind,
        mode,
        acl: AccessList::None,
        links: 2,
        uid: 10,
        gid: 20,
        size: 5000,
        used: 8192,
        device: (0, 0),
        file_system: 1,
        atime: Timestamp(-1),
        mtime: Timestamp(1_500_000_001),
        ctime: Timestamp(3),
        birth: Timestamp(4_000_000_002),
        change: 1,
    }
}

#[test]
fn attributes_become_a_stat() {
    let file = attributes(FileKind::Regular, 0o4755);
    let out = attr(7, &file);
    assert_eq!((out.ino, out.size, out.blocks, out.mode), (7, 5000, 16, 0o104_755));
    assert_eq!((out.mtime, out.mtime_nanoseconds), (1, 500_000_001));
    assert_eq!((out.atime.cast_signed(), out.atime_nanoseconds), (-1, 999_999_999));
    assert_eq!(time(out.atime, out.atime_nanoseconds), file.atime);
    let out = statx(7, &file);
    assert_eq!((out.btime.seconds, out.btime.nanoseconds, out.mask), (4, 2, 0xfff));
}

#[test]
fn kinds_have_their_numbers() {
    let mode = |kind| attr(1, &attributes(kind, 0)).mode;
    assert_eq!(mode(FileKind::Directory), libc::S_IFDIR);
    assert_eq!(mode(FileKind::Symlink), libc::S_IFLNK);
    assert_eq!(mode(FileKind::BlockDevice), libc::S_IFBLK);
    assert_eq!(mode(FileKind::CharacterDevice), libc::S_IFCHR);
    assert_eq!(mode(FileKind::Fifo), libc::S_IFIFO);
    assert_eq!(mode(FileKind::Socket), libc::S_IFSOCK);
}

#[test]
fn devices_survive() {
    for device in [(8, 1), (259, 0), (4095, 0xf_ffff), (0, 0)] {
        let file = Attributes { device, ..attributes(FileKind::BlockDevice, 0) };
        let made = new_node(libc::S_IFBLK | 0o600, attr(1, &file).device);
        assert_eq!(made, Ok(Some(NewNode::BlockDevice(device.0, device.1))));
    }
    assert_eq!(new_node(libc::S_IFREG | 0o600, 0), Ok(None));
    assert_eq!(new_node(libc::S_IFDIR, 0), Err(()));
}

#[test]
fn setattr_takes_what_is_valid() {
    let request = SetAttrIn {
        valid: set_attr::MODE | set_attr::MTIME | set_attr::ATIME | set_attr::ATIME_NOW,
        mode: 0o100_644,
        uid: 9,
        mtime: 5,
        mtime_nanoseconds: 6,
        ..SetAttrIn::default()
    };
    let expected = SetAttributes {
        mode: Some(0o644),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::To(Timestamp(5_000_000_006))),
        ..SetAttributes::default()
    };
    assert_eq!(set_attributes(&request), expected);
    let cut = SetAttrIn {
        valid: set_attr::SIZE | set_attr::MTIME | set_attr::MTIME_NOW,
        size: 3,
        ..SetAttrIn::default()
    };
    let expected = SetAttributes { size: Some(3), ..SetAttributes::default() };
    assert_eq!(set_attributes(&cut), expected);
}

#[test]
fn flags_are_taken_or_refused() {
    assert_eq!(allocation(0), Some(Allocation::Reserve { keep_size: false }));
    assert_eq!(allocation(1), Some(Allocation::Reserve { keep_size: true }));
    assert_eq!(allocation(3), Some(Allocation::PunchHole));
    assert_eq!(allocation(0x11), Some(Allocation::ZeroRange { keep_size: true }));
    assert_eq!((allocation(2), allocation(8), allocation(0x20)), (None, None, None));
    let exchange = RenameFlags { no_replace: false, exchange: true };
    assert_eq!(rename_flags(2), Some(exchange));
    assert_eq!(rename_flags(4), None, "whiteout");
    assert_eq!((xattr_mode(1), xattr_mode(3)), (Some(XattrSetMode::Create), None));
}

#[test]
fn directory_entries_are_aligned_and_bounded() {
    for (plus, size) in [(None, 24 + 8), (Some(EntryOut::default()), 24 + 8 + 128)] {
        let mut buffer = DirectoryBuffer::new(2 * size + size / 2);
        let record = DirEntry { ino: 7, offset: 3, name_length: 5, kind: 8 };
        let mut count = 0;
        while buffer.has_room(5, plus.is_some()) {
            buffer.push(plus.as_ref(), record, b"hello");
            count += 1;
        }
        assert_eq!((count, buffer.bytes().len()), (2, 2 * size as usize));
        assert!(DirectoryBuffer::entries_max(2 * size, plus.is_some()) >= 2);
        assert!(buffer.bytes().ends_with(b"hello\0\0\0"));
    }
}

#[test]
fn names_are_joined_with_nul() {
    assert_eq!(joined_names(&[b"user.a".to_vec(), b"user.b".to_vec()]), b"user.a\0user.b\0");
    assert_eq!(joined_names(&[]), b"");
}

//! What files hold: data, holes, space, times, links' text, extended attributes.

use super::{Fixture, ask, mode, user};
use crate::calls;
use crate::memory::VolumeOptions;
use crate::{
    Allocation, Caller, FileHandle, FileService, FsError, Limits, NewNode, SeekTarget,
    SetAttributes, XattrSetMode,
};

fn resize(fixture: &Fixture, file: FileHandle, size: u64) {
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    fixture.set(&Caller::root(), file, set).unwrap();
}

fn allocate(
    fixture: &Fixture,
    file: FileHandle,
    allocation: Allocation,
    offset: u64,
    length: u64,
) -> Result<(), FsError> {
    let root = Caller::root();
    ask(&fixture.service, &root, calls::Allocate { file, allocation, offset, length }).map(|_| ())
}

fn seek(
    fixture: &Fixture,
    file: FileHandle,
    offset: u64,
    target: SeekTarget,
) -> Result<u64, FsError> {
    ask(&fixture.service, &Caller::root(), calls::Seek { file, offset, target })
}

#[test]
fn holes_read_as_zeros_and_take_no_room() {
    let fixture = Fixture::new();
    let file = fixture.file("a");
    fixture.write(&Caller::root(), file, 10_000, b"end").unwrap();
    assert_eq!((fixture.get(file).size, fixture.get(file).used), (10_003, 4096));
    let mut expected = vec![0; 10_000];
    expected.extend_from_slice(b"end");
    assert_eq!(fixture.read(file, 0, 20_000), expected);
    assert_eq!(fixture.read(file, 10_003, 1), b"");
    assert_eq!(fixture.read(file, u64::MAX, 1), b"");
    assert_eq!(seek(&fixture, file, 0, SeekTarget::Data), Ok(8192));
    assert_eq!(seek(&fixture, file, 8192, SeekTarget::Hole), Ok(10_003));
    assert_eq!(seek(&fixture, file, 5, SeekTarget::Hole), Ok(5));
    assert_eq!(seek(&fixture, file, 9000, SeekTarget::Data), Ok(9000));
    assert_eq!(seek(&fixture, file, 10_003, SeekTarget::Hole), Err(FsError::NoSuchOffset));
    resize(&fixture, file, 20_000);
    assert_eq!(seek(&fixture, file, 12_288, SeekTarget::Data), Err(FsError::NoSuchOffset));
}

#[test]
fn what_is_cut_is_zero_when_it_comes_back() {
    let fixture = Fixture::new();
    let file = fixture.file("a");
    fixture.write(&Caller::root(), file, 0, &[7; 9000]).unwrap();
    resize(&fixture, file, 5000);
    resize(&fixture, file, 9000);
    let mut expected = vec![7; 5000];
    expected.resize(9000, 0);
    assert_eq!(fixture.read(file, 0, 9000), expected);
    assert_eq!(fixture.get(file).used, 8192);
}

#[test]
fn reads_share_blocks_and_writes_do_not_change_what_was_read() {
    let fixture = Fixture::new();
    let file = fixture.file("a");
    fixture.write(&Caller::root(), file, 0, b"before").unwrap();
    let root = Caller::root();
    let data = ask(&fixture.service, &root, calls::Read { file, offset: 0, count: 6 }).unwrap();
    assert!(data.end_of_file);
    fixture.write(&root, file, 0, b"after!").unwrap();
    assert_eq!(data.to_vec(), b"before");
    assert_eq!(fixture.read(file, 0, 6), b"after!");
}

#[test]
fn fallocate_reserves_punches_and_zeroes() {
    let fixture = Fixture::new();
    let file = fixture.file("a");
    fixture.write(&Caller::root(), file, 0, &[7; 16_384]).unwrap();
    allocate(&fixture, file, Allocation::PunchHole, 1000, 8000).unwrap();
    let mut expected = vec![7; 16_384];
    expected[1000..9000].fill(0);
    assert_eq!(fixture.read(file, 0, 16_384), expected);
    assert_eq!(fixture.get(file).used, 3 * 4096);
    assert_eq!(seek(&fixture, file, 0, SeekTarget::Hole), Ok(4096));
    let keep = Allocation::Reserve { keep_size: true };
    allocate(&fixture, file, keep, 4096, 16_384).unwrap();
    assert_eq!((fixture.get(file).size, fixture.get(file).used), (16_384, 5 * 4096));
    assert_eq!(seek(&fixture, file, 0, SeekTarget::Hole), Ok(4096), "reserved is a hole");
    let grow = Allocation::ZeroRange { keep_size: false };
    allocate(&fixture, file, grow, 12_288, 10_000).unwrap();
    expected[12_288..].fill(0);
    expected.resize(22_288, 0);
    assert_eq!(fixture.read(file, 0, 30_000), expected);
    resize(&fixture, file, 0);
    assert_eq!(fixture.get(file).used, 0);
    assert_eq!(allocate(&fixture, file, keep, 0, 0), Err(FsError::Invalid));
    let beyond = allocate(&fixture, file, keep, u64::MAX, 2);
    assert_eq!(beyond, Err(FsError::FileTooLarge));
}

#[test]
fn full_is_full_until_something_goes() {
    let options = VolumeOptions { blocks_max: 4, files_max: 3, root_mode: 0o777 };
    let fixture = Fixture::with_options(options);
    let root = Caller::root();
    let (one, two) = (fixture.file("a"), fixture.file("b"));
    let third = fixture.create(&root, fixture.root, "c");
    assert_eq!(third.unwrap_err(), FsError::NoSpace, "out of inodes");
    fixture.write(&root, one, 0, &[1; 3 * 4096]).unwrap();
    let too_much = fixture.write(&root, two, 0, &[2; 2 * 4096]);
    assert_eq!(too_much, Err(FsError::NoSpace));
    assert_eq!(fixture.get(two).size, 0, "nothing is half done");
    fixture.write(&root, one, 0, &[3; 3 * 4096]).unwrap();
    allocate(&fixture, two, Allocation::Reserve { keep_size: false }, 0, 4096).unwrap();
    let statistics =
        ask(&fixture.service, &Caller::root(), calls::Statistics { file: one }).unwrap();
    assert_eq!((statistics.total_bytes, statistics.free_bytes), (4 * 4096, 0));
    assert_eq!((statistics.total_files, statistics.free_files), (3, 0));
    fixture.write(&root, two, 0, &[2; 4096]).unwrap();
    fixture.remove(fixture.root, "a").unwrap();
    fixture.write(&root, two, 4096, &[2; 3 * 4096]).unwrap();
}

#[test]
fn limits_hold() {
    let mut fixture = Fixture::new();
    let limits =
        Limits { transfer_bytes_max: 10, file_bytes_max: 20, links_max: 0, name_bytes_max: 0 };
    let clock = std::sync::Arc::new(super::CountingClock(1.into()));
    fixture.service = super::MemoryFileSystem::new(clock).with_limits(limits);
    fixture.service.add_volume("home", VolumeOptions::default()).unwrap();
    let file = fixture.file("a");
    let root = Caller::root();
    assert_eq!(fixture.write(&root, file, 0, &[1; 15]), Ok(10), "short, not refused");
    assert_eq!(fixture.write(&root, file, 15, &[1; 6]), Err(FsError::FileTooLarge));
    assert_eq!(fixture.write(&root, file, 10, &[1; 10]), Ok(10));
    assert_eq!(fixture.read(file, 0, 20).len(), 10);
    assert_eq!(fixture.service.limits().links_max, 65_000);
}

#[test]
fn writes_note_times_and_reads_are_relatime() {
    let fixture = Fixture::new();
    let file = fixture.file("a");
    let made = fixture.get(file);
    assert!(made.atime == made.birth && made.mtime == made.birth && made.ctime == made.birth);
    fixture.write(&Caller::root(), file, 0, b"").unwrap();
    assert_eq!(fixture.get(file), made, "an empty write is nothing");
    fixture.write(&Caller::root(), file, 0, b"x").unwrap();
    let written = fixture.get(file);
    assert!(written.mtime > made.mtime && written.ctime == written.mtime);
    assert_eq!((written.atime, written.change), (made.atime, made.change + 1));
    fixture.read(file, 0, 1);
    let read = fixture.get(file);
    assert!(read.atime > written.mtime);
    fixture.read(file, 0, 1);
    assert_eq!(fixture.get(file).atime, read.atime, "read again, nothing was written");
    assert_eq!(read.change, written.change);
}

#[test]
fn data_permission_is_the_owners_and_the_modes() {
    let fixture = Fixture::new();
    let file = fixture.create(&user(5), fixture.root, "a").unwrap().handle;
    fixture.set(&user(5), file, mode(0o4400)).unwrap();
    assert_eq!(fixture.write(&user(5), file, 0, b"x"), Ok(1), "NFS has no open");
    assert_eq!(fixture.get(file).mode, 0o400, "setuid goes with the write");
    assert_eq!(fixture.write(&user(6), file, 0, b"x"), Err(FsError::AccessDenied));
    let read =
        |caller: &Caller| ask(&fixture.service, caller, calls::Read { file, offset: 0, count: 1 });
    assert_eq!(read(&user(6)).unwrap_err(), FsError::AccessDenied);
    let data_at = |caller: &Caller| {
        ask(&fixture.service, caller, calls::Seek { file, offset: 0, target: SeekTarget::Data })
    };
    assert_eq!(data_at(&user(6)), Err(FsError::AccessDenied), "where data lies is of the data");
    assert_eq!(data_at(&Caller { has_opened: true, ..user(6) }), Ok(0));
    assert_eq!(data_at(&user(5)), Ok(0));
    fixture.set(&user(5), file, mode(0o711)).unwrap();
    assert!(read(&user(6)).is_ok(), "who executes, reads");
    let wanted = crate::permission::READ | crate::permission::EXECUTE;
    let rights = ask(&fixture.service, &user(6), calls::Access { file, wanted }).unwrap().0;
    assert_eq!(rights, crate::permission::EXECUTE);
    assert_eq!(fixture.write(&Caller::root(), fixture.root, 0, b"x"), Err(FsError::IsDirectory));
}

#[test]
fn symbolic_links_keep_their_text() {
    let fixture = Fixture::new();
    let root = Caller::root();
    let make = |name, text: &[u8]| {
        fixture.make(&root, fixture.root, name, NewNode::Symlink(text.to_vec()))
    };
    let link = make("l", b"../target").unwrap();
    assert_eq!((link.attributes.size, link.attributes.mode), (9, 0o777));
    let read = |file| ask(&fixture.service, &root, calls::ReadLink { file });
    assert_eq!(read(link.handle).unwrap().0, b"../target");
    assert_eq!(read(fixture.root).unwrap_err(), FsError::Invalid);
    assert_eq!(make("m", &[b'x'; 4096]).unwrap_err(), FsError::NameTooLong);
}

#[test]
fn xattrs_are_set_listed_and_removed() {
    let fixture = Fixture::new();
    let file = fixture.file("a");
    let root = Caller::root();
    let put = |name: &[u8], mode| {
        ask(
            &fixture.service,
            &root,
            calls::SetXattr {
                file,
                name: name.to_vec(),
                value: b"value".to_vec(),
                mode,
                drops_setgid: false,
            },
        )
    };
    let get =
        |name: &[u8]| ask(&fixture.service, &root, calls::GetXattr { file, name: name.to_vec() });
    assert_eq!(put(b"user.a", XattrSetMode::Replace), Err(FsError::NoAttribute));
    put(b"user.a", XattrSetMode::Create).unwrap();
    assert_eq!(put(b"user.a", XattrSetMode::Create), Err(FsError::Exists));
    put(b"trusted.b", XattrSetMode::Either).unwrap();
    put(b"security.capability", XattrSetMode::Either).unwrap();
    assert_eq!(get(b"user.a").unwrap(), b"value");
    let list = |caller: &Caller| ask(&fixture.service, caller, calls::ListXattrs { file }).unwrap();
    assert_eq!(list(&root).len(), 3);
    assert_eq!(list(&user(5)), [b"security.capability".to_vec(), b"user.a".to_vec()]);
    fixture.write(&root, file, 0, b"x").unwrap();
    assert_eq!(get(b"security.capability"), Err(FsError::NoAttribute), "the program changed");
    ask(&fixture.service, &root, calls::RemoveXattr { file, name: b"user.a".to_vec() }).unwrap();
    assert_eq!(get(b"user.a"), Err(FsError::NoAttribute));
    let again = ask(&fixture.service, &root, calls::RemoveXattr { file, name: b"user.a".to_vec() });
    assert_eq!(again, Err(FsError::NoAttribute));
}

#[test]
fn xattr_names_have_room_for_one_listing() {
    let fixture = Fixture::new();
    let file = fixture.file("a");
    let root = Caller::root();
    let mut set = 0;
    let refused = loop {
        let name = format!("user.{set:0>250}");
        let either = XattrSetMode::Either;
        let put = ask(
            &fixture.service,
            &root,
            calls::SetXattr {
                file,
                name: name.as_bytes().to_vec(),
                value: b"".to_vec(),
                mode: either,
                drops_setgid: false,
            },
        );
        match put {
            Ok(()) => set += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((refused, set), (FsError::AttributeTooLarge, 256));
}

//! Tests of calls on a wire: the memory backend at its other end.

use super::*;
use crate::memory::{MemoryFileSystem, VolumeOptions};
use crate::{
    AccessList, Attributes, CreateMode, DirectoryEntry, DirectoryPage, FileHandle, FileKind,
    FileService, SetAttributes, Stability, calls,
};
use platform::Clock;
use platform::sync::Mutex;
use std::sync::Arc;
use units::{Generation, InodeNumber, SnapshotId, Timestamp, VolumeUuid};

struct StoppedClock;

impl Clock for StoppedClock {
    fn wall(&self) -> Timestamp {
        Timestamp(1)
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        0
    }
}

/// A wire within the process: calls and answers become bytes and calls and answers again.
struct Loopback(MemoryFileSystem);

fn joined(data: &FrameData) -> Vec<u8> {
    data.slices().flatten().copied().collect()
}

impl Transport for Loopback {
    fn call(&self, caller: &Caller, request: Request, done: Done<Reply>) {
        let sent = Frame::of_request(caller, request);
        let data = Bytes::from(joined(&sent.data));
        let (caller, request) = decode_request(&sent.body, data).unwrap();
        let answered: Done<Reply> = Box::new(|answer| {
            let sent = Frame::of_answer(answer);
            done(decode_answer(&sent.body, &joined(&sent.data)).unwrap());
        });
        request.send(&self.0, &caller, answered);
    }
}

fn remote() -> Remote<Loopback> {
    let service = MemoryFileSystem::new(Arc::new(StoppedClock));
    service.add_volume("home", VolumeOptions::default()).unwrap();
    Remote { limits: service.limits(), transport: Loopback(service) }
}

fn ask<C: Call>(service: &dyn FileService, call: C) -> Result<C::Reply, FsError> {
    let slot = Arc::new(Mutex::new(None));
    let inner = Arc::clone(&slot);
    let done = Box::new(move |answer| assert!(inner.lock().replace(answer).is_none()));
    call.send(service, &Caller::root(), done);
    let answer = slot.lock().take();
    answer.expect("answered")
}

fn make_file(service: &dyn FileService) -> (FileHandle, FileHandle) {
    let directory = ask(service, calls::Root { name: "home".to_owned() }).unwrap().handle;
    let (name, mode, set) = (b"f".to_vec(), CreateMode::Guarded, SetAttributes::default());
    let made = ask(service, calls::Create { directory, name, mode, set }).unwrap();
    (directory, made.0.handle)
}

#[test]
fn calls_answers_and_data_survive_the_wire() {
    let service = remote();
    let (directory, file) = make_file(&service);
    let data: Vec<u8> = (0..10_000_u32).map(|at| at as u8).collect();
    let write = calls::Write {
        file,
        offset: 3,
        stability: Stability::FileSync,
        data: Bytes::from(data.clone()),
    };
    assert_eq!(ask(&service, write).unwrap().count, 10_000);
    let read = ask(&service, calls::Read { file, offset: 0, count: 20_000 }).unwrap();
    assert_eq!(read.to_vec(), [&[0; 3], data.as_slice()].concat());
    assert!(read.end_of_file);
    let hold = ask(&service, calls::HoldFile { file }).unwrap();
    ask(&service, calls::Remove { directory, name: b"f".to_vec() }).unwrap();
    assert_eq!(ask(&service, calls::GetAttributes { file }).unwrap().links, 0);
    ask(&service, calls::ReleaseHold { hold }).unwrap();
    assert_eq!(ask(&service, calls::GetAttributes { file }).unwrap_err(), FsError::Stale);
}

#[test]
fn only_writes_and_reads_have_data() {
    let caller = Caller::root();
    let file = make_file(&remote()).1;
    let asked = Frame::of_request(&caller, calls::GetAttributes { file }.into());
    assert!(asked.data.is_empty());
    let data = Bytes::from_static(b"data");
    assert_eq!(decode_request(&asked.body, data).unwrap_err(), WireError::Data(4));
    let refused = Frame::of_answer(Err(FsError::Stale));
    assert_eq!(decode_answer(&refused.body, &[]).unwrap().unwrap_err(), FsError::Stale);
    assert_eq!(decode_answer(&refused.body, b"x").unwrap_err(), WireError::Data(1));
}

#[test]
fn bytes_that_are_no_message_are_refused() {
    let caller = Caller { groups: Arc::new([1, 2, 3]), ..Caller::root() };
    let file = make_file(&remote()).1;
    let name = b"a name".to_vec();
    let body = Frame::of_request(&caller, calls::Lookup { directory: file, name }.into()).body;
    assert!(decode_request(&body, Bytes::new()).is_ok());
    for length in 0..body.len() {
        assert!(decode_request(&body[..length], Bytes::new()).is_err(), "{length}");
    }
    let longer = [body.as_slice(), &[0]].concat();
    assert_eq!(decode_request(&longer, Bytes::new()).unwrap_err(), WireError::Trailing(1));
}

#[test]
fn an_answer_to_another_call_is_an_error() {
    struct Confused;
    impl Transport for Confused {
        fn call(&self, _: &Caller, _: Request, done: Done<Reply>) {
            done(Ok(Reply::Seek(7)));
        }
    }
    let (limits, file) = (remote().limits, make_file(&remote()).1);
    let service = Remote { limits, transport: Confused };
    assert_eq!(ask(&service, calls::GetAttributes { file }).unwrap_err(), FsError::Io);
    let seek = calls::Seek { file, offset: 0, target: crate::SeekTarget::Data };
    assert_eq!(ask(&service, seek), Ok(7));
}

/// Answers everything with one answer.
struct Fixed(Reply);

impl Transport for Fixed {
    fn call(&self, _: &Caller, _: Request, done: Done<Reply>) {
        done(Ok(self.0.clone()));
    }
}

#[test]
fn an_answer_that_gives_too_much_reaches_nobody() {
    let (limits, file) = (remote().limits, make_file(&remote()).1);
    let segments = ReadData::segments_of(&[7; 9]);
    let read = ReadData { segments, ..ReadData::default() };
    let service = Remote { limits, transport: Fixed(Reply::Read(read)) };
    let asked =
        |count| ask(&service, calls::Read { file, offset: 0, count }).map(|read| read.len());
    assert_eq!((asked(9), asked(8)), (Ok(9), Err(FsError::Io)));
}

#[test]
fn a_directory_of_long_names_is_listed_in_pages_that_fit() {
    let service = remote();
    let directory = make_file(&service).0;
    // All in one page would be more than a message has room for.
    let count = BODY_BYTES_MAX / 255;
    for number in 0..count {
        let name = format!("{number:0255}").into_bytes();
        let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
        ask(&service, calls::Create { directory, name, mode, set }).unwrap();
    }
    let (mut cookie, mut listed) = (0, 0);
    loop {
        let (entries_max, with_attributes) = (u32::MAX, listed == 0);
        let list = calls::ReadDirectory { directory, cookie, entries_max, with_attributes };
        let page = ask(&service, list).unwrap();
        listed += page.entries.len();
        cookie = page.entries.last().unwrap().cookie;
        if page.end {
            break;
        }
    }
    assert_eq!(listed, count + 3, "and the file, and the dots");
}

#[test]
fn the_largest_page_that_is_asked_for_fits() {
    let most = FileHandle {
        volume: VolumeUuid([u8::MAX; 16]),
        inode: InodeNumber(u64::MAX),
        generation: Generation(u32::MAX),
        snapshot: SnapshotId(u32::MAX),
    };
    let attributes = Attributes {
        inode: most.inode,
        generation: most.generation,
        kind: FileKind::Socket,
        mode: u32::MAX,
        acl: AccessList::Unread,
        links: u32::MAX,
        uid: u32::MAX,
        gid: u32::MAX,
        size: u64::MAX,
        used: u64::MAX,
        device: (u32::MAX, u32::MAX),
        file_system: u64::MAX,
        atime: Timestamp(i64::MIN),
        mtime: Timestamp(i64::MIN),
        ctime: Timestamp(i64::MIN),
        birth: Timestamp(i64::MIN),
        change: u64::MAX,
    };
    let entry = DirectoryEntry {
        name: vec![0xff; 255],
        cookie: u64::MAX,
        inode: most.inode,
        kind: FileKind::Socket,
        entry: Some(crate::Entry { handle: most, attributes: attributes.clone() }),
    };
    let entries = vec![entry; LISTED_MAX as usize];
    let page = DirectoryPage { entries, end: false, attributes };
    let sent = Frame::of_answer(Ok(Reply::ReadDirectory(page)));
    assert!(decode_answer(&sent.body, &[]).is_ok(), "{} bytes", sent.body.len());
}

#[test]
fn what_is_too_large_is_refused() {
    let file = make_file(&remote()).1;
    let of = |caller: &Caller| Frame::of_request(caller, calls::Commit::of(file).into()).body;
    let groups = |count: usize| Caller { groups: vec![7; count].into(), ..Caller::root() };
    assert!(decode_request(&of(&groups(GROUPS_MAX)), Bytes::new()).is_ok());
    let many = decode_request(&of(&groups(GROUPS_MAX + 1)), Bytes::new());
    assert_eq!(many.unwrap_err(), WireError::Groups(GROUPS_MAX + 1));
    let body = vec![0; BODY_BYTES_MAX + 1];
    assert_eq!(decode_answer(&body, &[]).unwrap_err(), WireError::Body(body.len()));
    let data = vec![0; DATA_BYTES_MAX + 1];
    assert_eq!(decode_answer(&[], &data).unwrap_err(), WireError::DataSize(data.len()));
}

#[test]
fn who_asks_survives_the_wire() {
    let file = make_file(&remote()).1;
    let caller = Caller {
        uid: 5,
        gid: 6,
        groups: [7, 8].into(),
        durability: crate::Durability::Ordered,
        has_opened: true,
        umask: 0o22,
    };
    let body = Frame::of_request(&caller, calls::Commit::of(file).into()).body;
    let (found, _) = decode_request(&body, Bytes::new()).unwrap();
    assert_eq!(format!("{found:?}"), format!("{caller:?}"));
}

/// One call of each kind that has arguments of several types.
fn some_requests(directory: FileHandle, file: FileHandle) -> Vec<Request> {
    let (name, set) = (b"name".to_vec(), SetAttributes::default());
    let target = crate::SeekTarget::Hole;
    let node = crate::NewNode::Symlink(b"text".to_vec());
    let flags = crate::RenameFlags { no_replace: true, exchange: false };
    let (from_name, to_name) = (name.clone(), b"f".to_vec());
    let sized = SetAttributes { size: Some(7), ..set.clone() };
    vec![
        calls::Root { name: "home".to_owned() }.into(),
        calls::SetFileAttributes { file, set: sized }.into(),
        calls::Write { file, offset: 1, stability: Stability::Unstable, data: Bytes::new() }.into(),
        calls::MakeNode { directory, name: name.clone(), node, set }.into(),
        calls::Rename {
            from_directory: directory,
            from_name,
            to_directory: directory,
            to_name,
            flags,
        }
        .into(),
        calls::ReadDirectory { directory, cookie: 0, entries_max: 9, with_attributes: true }.into(),
        calls::GetXattr { file, name }.into(),
        calls::Seek { file, offset: 0, target }.into(),
        calls::Commit { file, known_losses: Some(3) }.into(),
        calls::Append { file, stability: Stability::FileSync, data: Bytes::new() }.into(),
    ]
}

proptest::proptest! {
    /// Bytes that are changed on the way are refused, or become a call that is answered.
    #[test]
    fn no_bytes_panic(
        bytes: Vec<u8>,
        which in 0..10_usize,
        changes in proptest::collection::vec((0..999_usize, 1..=u8::MAX), 1..4),
    ) {
        let _ = decode_request(&bytes, Bytes::new());
        let _ = decode_answer(&bytes, &bytes);
        let service = remote();
        let (directory, file) = make_file(&service);
        let requests = some_requests(directory, file);
        let mut body = Frame::of_request(&Caller::root(), requests[which].clone()).body;
        for (place, change) in changes {
            let length = body.len();
            body[place % length] ^= change;
        }
        let is_write = matches!(requests[which], Request::Write(_) | Request::Append(_));
        let data = if is_write { Bytes::from(bytes) } else { Bytes::new() };
        if let Ok((caller, request)) = decode_request(&body, data)
            && request.kind().open_use != crate::OpenUse::Closes
        {
            let answered: Done<Reply> = Box::new(|answer| {
                let sent = Frame::of_answer(answer);
                let _ = decode_answer(&sent.body, &joined(&sent.data)).unwrap();
            });
            request.send(&service.transport.0, &caller, answered);
        }
    }
}

//! The protocol without a kernel: requests go in as bytes, replies come out of a socket.

use super::Server;
use crate::abi::{
    self, AttrOut, CreateIn, EntryOut, FlushIn, InHeader, InterruptIn, LockIn, LockRange, OpenOut,
    OutHeader, ReadIn, ReleaseIn, SetAttrIn, WriteIn, WriteOut, lock_kind, opcode, set_attr,
};
use crate::convert::Validity;
use crate::device::Device;
use crate::reply::{Reply, Way};
use crate::request::{Buffer, Request};
use crate::request_memory::RequestBuffer;
use file_service::memory::{MemoryFileSystem, VolumeOptions};
use file_service::{FileHandle, FsError, Hold};
use locks::{Limits, LockManager};
use platform::Clock;
use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use units::{SnapshotId, Timestamp};
use zerocopy::{FromBytes, IntoBytes};

struct FixedClock;

impl Clock for FixedClock {
    fn wall(&self) -> Timestamp {
        Timestamp(7)
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        7
    }
}

/// A server whose kernel is this test.
struct Kernel {
    service: Arc<MemoryFileSystem>,
    server: Option<Arc<Server>>,
    device: Arc<Device>,
    replies: OwnedFd,
}

const VALID: Validity = Validity { seconds: 1, nanoseconds: 5 };
const USER: u32 = 1000;
const O_WRONLY: u32 = 1;

impl Kernel {
    fn new() -> Self {
        let service = Arc::new(MemoryFileSystem::new(Arc::new(FixedClock)));
        let options = VolumeOptions { root_mode: 0o777, ..VolumeOptions::default() };
        service.add_volume("home", options).unwrap();
        let root = crate::root_of("home", service.as_ref()).unwrap();
        let locks = LockManager::new(Arc::new(FixedClock), Limits::default());
        let locks = Some(Arc::new(locks));
        let server = Server::new(Arc::clone(&service) as _, root.handle, VALID, locks);
        // Packets, as the device has them; not waiting, because answers come at once here.
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK, None).unwrap();
        let device = Arc::new(Device::from_descriptor(pair.0));
        Self { service, server: Some(server), device, replies: pair.1 }
    }

    fn send(&self, bytes: &[u8]) {
        let buffer: Buffer = Arc::new(RequestBuffer::from(bytes.to_vec()));
        if let Some(request) = Request::parse(&buffer, bytes.len(), &self.device) {
            self.server.as_ref().unwrap().dispatch(request);
        }
    }

    /// The next reply: its error and body.
    fn reply(&self) -> Option<(i32, Vec<u8>)> {
        let (header, body) = self.message()?;
        assert_eq!(header.unique, 99);
        Some((header.error, body))
    }

    fn message(&self) -> Option<(OutHeader, Vec<u8>)> {
        let mut bytes = vec![0; 2 << 20];
        let length = rustix::io::read(&self.replies, &mut bytes[..]).ok()?;
        let (header, body) = OutHeader::read_from_prefix(&bytes[..length]).unwrap();
        assert_eq!(header.length as usize, length);
        Some((header, body.to_vec()))
    }

    /// The node of which the kernel is told to ask for the attributes again.
    fn invalidated(&self) -> u64 {
        let (header, body) = self.message().unwrap();
        assert_eq!((header.unique, header.error), (0, abi::NOTIFY_INVALIDATE_INODE));
        let told = abi::InvalidateInodeOut::read_from_bytes(&body).unwrap();
        assert_eq!((told.offset, told.length), (-1, 0), "its data is good");
        told.node
    }

    fn ask(&self, opcode: u32, node: u64, parts: &[&[u8]]) -> Result<Vec<u8>, i32> {
        self.send(&request(opcode, node, &parts.concat()));
        let (error, body) = self.reply().unwrap();
        assert_eq!(self.reply(), None, "answered once");
        if error == 0 { Ok(body) } else { Err(-error) }
    }

    fn lookup(&self, node: u64, name: &[u8]) -> Result<EntryOut, i32> {
        let body = self.ask(opcode::LOOKUP, node, &[name, b"\0"])?;
        Ok(EntryOut::read_from_bytes(&body).unwrap())
    }

    fn create(&self, name: &[u8], flags: u32, mode: u32) -> Result<(EntryOut, OpenOut), i32> {
        let arguments = CreateIn { flags, mode, ..CreateIn::default() };
        let body = self.ask(opcode::CREATE, 1, &[arguments.as_bytes(), name, b"\0"])?;
        let (entry, rest) = EntryOut::read_from_prefix(&body).unwrap();
        Ok((entry, OpenOut::read_from_bytes(rest).unwrap()))
    }

    fn release(&self, file: &EntryOut, opened: &OpenOut) -> Result<Vec<u8>, i32> {
        let arguments = ReleaseIn { handle: opened.handle, ..ReleaseIn::default() };
        self.ask(opcode::RELEASE, file.node, &[arguments.as_bytes()])
    }
}

fn request(opcode: u32, node: u64, arguments: &[u8]) -> Vec<u8> {
    let header = InHeader {
        length: (size_of::<InHeader>() + arguments.len()) as u32,
        opcode,
        unique: 99,
        node,
        uid: USER,
        gid: USER,
        ..InHeader::default()
    };
    [header.as_bytes(), arguments].concat()
}

#[test]
fn names_that_are_free_are_believed_for_a_while() {
    let kernel = Kernel::new();
    let free = kernel.lookup(1, b"a").unwrap();
    assert_eq!((free.node, free.entry_valid, free.entry_valid_nanoseconds), (0, 1, 5));
    let root = kernel.lookup(1, b".").unwrap();
    assert_eq!((root.node, root.attr.ino), (1, 2));
}

#[test]
fn node_ids_carry_the_generation_and_inode_numbers_do_not() {
    let kernel = Kernel::new();
    let (first, opened) = kernel.create(b"a", 0, 0o100_600).unwrap();
    assert_eq!((first.node, first.generation, first.attr.ino), (1 << 32 | 3, 1, 3));
    assert_eq!((first.attr.uid, first.attr.gid, first.attr.mode), (USER, USER, 0o100_600));
    kernel.ask(opcode::UNLINK, 1, &[b"a\0"]).unwrap();
    kernel.release(&first, &opened).unwrap();
    let (second, _) = kernel.create(b"a", 0, 0o100_600).unwrap();
    assert_eq!((second.node, second.attr.ino), (2 << 32 | 3, 3));
    assert_eq!(kernel.ask(opcode::GETATTR, first.node, &[]), Err(FsError::Stale.errno()));
    assert_eq!(kernel.ask(opcode::GETATTR, 1 << 63, &[]), Err(FsError::Stale.errno()));
}

#[test]
fn a_name_that_was_not_free_makes_the_kernel_look_again() {
    let kernel = Kernel::new();
    kernel.create(b"a", 0, 0o600).unwrap();
    assert_eq!(kernel.create(b"a", 0, 0o600).unwrap_err(), FsError::Stale.errno());
    assert_eq!(kernel.create(b"a", abi::O_EXCL, 0o600).unwrap_err(), FsError::Exists.errno());
}

#[test]
fn data_goes_in_and_comes_out() {
    let kernel = Kernel::new();
    let (file, opened) = kernel.create(b"a", abi::O_DIRECT, 0o600).unwrap();
    let direct = abi::FOPEN_DIRECT_IO | abi::FOPEN_PARALLEL_DIRECT_WRITES;
    assert_eq!(opened.open_flags, direct);
    for size in [5_u32, 100_000] {
        let arguments = WriteIn { offset: 3, size, ..WriteIn::default() };
        let data = vec![7; size as usize];
        let body = kernel.ask(opcode::WRITE, file.node, &[arguments.as_bytes(), &data]).unwrap();
        assert_eq!(WriteOut::read_from_bytes(&body).unwrap().size, size);
        let arguments = ReadIn { offset: 1, size: 1 << 20, ..ReadIn::default() };
        let body = kernel.ask(opcode::READ, file.node, &[arguments.as_bytes()]).unwrap();
        assert_eq!(body, [&[0, 0][..], &data].concat());
    }
    let short = WriteIn { size: 9, ..WriteIn::default() };
    assert_eq!(kernel.ask(opcode::WRITE, file.node, &[short.as_bytes(), b"12345678"]), Err(22));
}

/// The kernel sent the end that it knew of, and what another had appended was written over.
#[test]
fn regression_an_append_goes_where_the_file_ends_by_now() {
    let kernel = Kernel::new();
    let (file, _) = kernel.create(b"a", abi::O_APPEND, 0o600).unwrap();
    let write = |write_flags, offset, text: &[u8]| {
        let size = text.len() as u32;
        let flags = abi::O_APPEND;
        let arguments = WriteIn { offset, size, flags, write_flags, ..WriteIn::default() };
        let body = kernel.ask(opcode::WRITE, file.node, &[arguments.as_bytes(), text]).unwrap();
        assert_eq!(WriteOut::read_from_bytes(&body).unwrap().size, size);
    };
    write(0, 0, b"one ");
    write(0, 0, b"two ");
    write(0, 4, b"three");
    // What a page had that was mapped stays where it was.
    write(abi::WRITE_CACHE, 0, b"ONE");
    let arguments = ReadIn { size: 100, ..ReadIn::default() };
    let body = kernel.ask(opcode::READ, file.node, &[arguments.as_bytes()]).unwrap();
    assert_eq!(body, b"ONE two three");
}

/// What the page cache has and the service has not counts, too.
#[test]
fn the_kernel_says_where_a_file_ends_if_it_writes_back() {
    let kernel = Kernel::new();
    let flags = abi::O_APPEND | abi::O_DIRECT | O_WRONLY;
    let (file, through) = kernel.create(b"a", flags, 0o600).unwrap();
    let seek = abi::SeekIn { whence: 4, ..abi::SeekIn::default() };
    let seek = || kernel.ask(opcode::LSEEK, file.node, &[seek.as_bytes()]);
    assert_eq!(seek(), Err(FsError::NoSuchOffset.errno()), "it is empty");
    assert_ne!(through.open_flags & abi::FOPEN_DIRECT_IO, 0);
    kernel.server.as_ref().unwrap().agree(abi::init::WRITEBACK_CACHE);
    assert_eq!(seek(), Err(38));
    let body = kernel.ask(opcode::OPEN, file.node, &[&flags.to_le_bytes(), &[0; 4]]).unwrap();
    assert_eq!(OpenOut::read_from_bytes(&body).unwrap().open_flags, 0);
    let (offset, flags) = (6, abi::O_APPEND);
    let write = WriteIn { offset, size: 1, flags, ..WriteIn::default() };
    kernel.ask(opcode::WRITE, file.node, &[write.as_bytes(), b"x"]).unwrap();
    let body = kernel.ask(opcode::GETATTR, file.node, &[]).unwrap();
    assert_eq!(AttrOut::read_from_bytes(&body).unwrap().attr.size, 7);
}

#[test]
fn the_kernel_says_which_writes_clear_setuid() {
    let kernel = Kernel::new();
    let mode = |node| {
        let body = kernel.ask(opcode::GETATTR, node, &[]).unwrap();
        AttrOut::read_from_bytes(&body).unwrap().attr.mode
    };
    let (file, _) = kernel.create(b"a", 0, 0o4755).unwrap();
    let keeps = WriteIn { size: 1, ..WriteIn::default() };
    kernel.ask(opcode::WRITE, file.node, &[keeps.as_bytes(), b"x"]).unwrap();
    assert_eq!(mode(file.node), 0o104_755);
    let clears = WriteIn { write_flags: abi::WRITE_KILL_PRIVILEGE, ..keeps };
    let write = [clears.as_bytes(), b"x"].concat();
    kernel.send(&request(opcode::WRITE, file.node, &write));
    // Before the answer (xfstests generic/355), and once.
    assert_eq!(kernel.invalidated(), file.node);
    assert_eq!(kernel.reply().unwrap().0, 0);
    kernel.ask(opcode::WRITE, file.node, &[&write]).unwrap();
    assert_eq!(mode(file.node), 0o100_755);
    let (file, _) = kernel.create(b"b", 0, 0o4755).unwrap();
    let keeps = SetAttrIn { valid: set_attr::SIZE, ..SetAttrIn::default() };
    kernel.ask(opcode::SETATTR, file.node, &[keeps.as_bytes()]).unwrap();
    assert_eq!(mode(file.node), 0o104_755);
    let clears = SetAttrIn { valid: set_attr::SIZE | set_attr::KILL_PRIVILEGE, ..keeps };
    kernel.ask(opcode::SETATTR, file.node, &[clears.as_bytes()]).unwrap();
    assert_eq!(mode(file.node), 0o100_755);
}

/// The kernel saw the old mode for a second (xfstests generic/683).
#[test]
fn regression_an_allocation_by_another_clears_setuid_at_once() {
    let kernel = Kernel::new();
    let (file, _) = kernel.create(b"a", 0, 0o6755).unwrap();
    let allocate = abi::AllocateIn { length: 4096, ..abi::AllocateIn::default() };
    kernel.send(&request(opcode::FALLOCATE, file.node, allocate.as_bytes()));
    assert_eq!((kernel.invalidated(), kernel.reply()), (file.node, Some((0, Vec::new()))));
    kernel.ask(opcode::FALLOCATE, file.node, &[allocate.as_bytes()]).unwrap();
}

#[test]
fn locks_wait_are_given_and_interrupted() {
    let kernel = Kernel::new();
    let (file, _) = kernel.create(b"a", 0, 0o600).unwrap();
    let lock = |owner, kind| {
        let lock = LockRange { start: 0, end: i64::MAX as u64, kind, process: 5 };
        LockIn { owner, lock, ..LockIn::default() }
    };
    let ask = |opcode, lock: LockIn| kernel.ask(opcode, file.node, &[lock.as_bytes()]);
    let waits = |lock: LockIn| {
        kernel.send(&request(opcode::SETLKW, file.node, lock.as_bytes()));
        assert_eq!(kernel.reply(), None);
    };
    ask(opcode::SETLK, lock(1, lock_kind::WRITE)).unwrap();
    assert_eq!(ask(opcode::SETLK, lock(2, lock_kind::READ)), Err(11));
    let held = ask(opcode::GETLK, lock(2, lock_kind::READ)).unwrap();
    let held = LockRange::read_from_bytes(&held).unwrap();
    assert_eq!((held.kind, held.process, held.end), (lock_kind::WRITE, 5, i64::MAX as u64));
    waits(lock(2, lock_kind::WRITE));
    kernel.send(&request(opcode::SETLK, file.node, lock(1, lock_kind::NONE).as_bytes()));
    // The waiter's answer and that of the unlock.
    assert_eq!((kernel.reply(), kernel.reply()), (Some((0, vec![])), Some((0, vec![]))));
    waits(lock(1, lock_kind::WRITE));
    kernel.send(&request(opcode::INTERRUPT, 0, InterruptIn { unique: 99 }.as_bytes()));
    assert_eq!((kernel.reply(), kernel.reply()), (Some((-4, vec![])), None));
    // An interrupt that came first.
    kernel.send(&request(opcode::INTERRUPT, 0, InterruptIn { unique: 99 }.as_bytes()));
    assert_eq!(ask(opcode::SETLKW, lock(1, lock_kind::WRITE)), Err(4));
    let flush = FlushIn { lock_owner: 2, ..FlushIn::default() };
    kernel.ask(opcode::FLUSH, file.node, &[flush.as_bytes()]).unwrap();
    ask(opcode::SETLKW, lock(1, lock_kind::WRITE)).unwrap();
}

/// A directory that was removed while somebody was in it was stale (xfstests generic/035).
#[test]
fn regression_a_removed_directory_is_there_until_it_is_forgotten() {
    let kernel = Kernel::new();
    let make = |name: &[u8]| {
        let arguments = abi::MakeDirectoryIn { mode: 0o755, umask: 0 };
        let body = kernel.ask(opcode::MKDIR, 1, &[arguments.as_bytes(), name]).unwrap();
        EntryOut::read_from_bytes(&body).unwrap().node
    };
    let links = |node| {
        let body = kernel.ask(opcode::GETATTR, node, &[])?;
        Ok(AttrOut::read_from_bytes(&body).unwrap().attr.links)
    };
    let (first, second, third) = (make(b"a\0"), make(b"b\0"), make(b"c\0"));
    kernel.ask(opcode::RMDIR, 1, &[b"a\0"]).unwrap();
    let over = abi::RenameIn { new_directory: 1 };
    kernel.ask(opcode::RENAME, 1, &[over.as_bytes(), b"c\0b\0"]).unwrap();
    for gone in [first, second] {
        assert_eq!(links(gone), Ok(0));
        let arguments = ReadIn { size: 4096, ..ReadIn::default() };
        kernel.ask(opcode::OPENDIR, gone, &[&[0; 8]]).unwrap();
        assert_eq!(kernel.ask(opcode::READDIR, gone, &[arguments.as_bytes()]), Ok(Vec::new()));
        kernel.ask(opcode::FSYNCDIR, gone, &[&[0; 16]]).unwrap();
        kernel.ask(opcode::STATFS, gone, &[]).unwrap();
        // The kernel asks for its list when another than its owner looks into it.
        let list: [&[u8]; 2] = [&[0; 8], b"system.posix_acl_access\0"];
        assert_eq!(kernel.ask(opcode::GETXATTR, gone, &list), Err(FsError::NoAttribute.errno()));
        let forget = request(opcode::FORGET, gone, 1_u64.as_bytes());
        kernel.send(&forget);
        assert_eq!(links(gone), Err(FsError::Stale.errno()));
    }
    assert_eq!(links(third), Ok(2));
    // One that is not empty stays.
    kernel.ask(opcode::MKDIR, third, &[&[0; 8], b"d\0"]).unwrap();
    assert_eq!(kernel.ask(opcode::RMDIR, 1, &[b"b\0"]), Err(FsError::NotEmpty.errno()));
    assert_eq!(links(third), Ok(3));
}

/// The kernel sends no OPEN for a FIFO: one that was removed in use was stale.
#[test]
fn regression_a_removed_fifo_is_there_until_it_is_forgotten() {
    const FIFO: u32 = 0o010_644;
    let kernel = Kernel::new();
    let arguments = abi::MakeNodeIn { mode: FIFO, ..abi::MakeNodeIn::default() };
    let body = kernel.ask(opcode::MKNOD, 1, &[arguments.as_bytes(), b"p\0"]).unwrap();
    let fifo = EntryOut::read_from_bytes(&body).unwrap().node;
    let links = |node| {
        let body = kernel.ask(opcode::GETATTR, node, &[])?;
        Ok(AttrOut::read_from_bytes(&body).unwrap().attr.links)
    };
    assert_eq!(links(fifo), Ok(1));
    kernel.ask(opcode::UNLINK, 1, &[b"p\0"]).unwrap();
    assert_eq!(links(fifo), Ok(0));
    kernel.send(&request(opcode::FORGET, fifo, 1_u64.as_bytes()));
    assert_eq!(links(fifo), Err(FsError::Stale.errno()));
}

/// Stores through a mapping of it were lost.
#[test]
fn regression_a_file_of_a_snapshot_is_not_opened_for_writing() {
    let kernel = Kernel::new();
    let root = crate::root_of("home", kernel.service.as_ref()).unwrap();
    let image = FileHandle { snapshot: SnapshotId(5), ..root.handle };
    let node = kernel.server.as_ref().unwrap().nodes.remember(image);
    let open = |flags: u32| kernel.ask(opcode::OPEN, node, &[&flags.to_le_bytes(), &[0; 4]]);
    for flags in [1, 2] {
        assert_eq!(open(flags), Err(FsError::ReadOnly.errno()));
    }
    assert_ne!(open(0), Err(FsError::ReadOnly.errno()));
}

/// Locks of an open file (`F_OFD_SETLK`) were held for ever: no FLUSH and no RELEASE names their
/// owner (xfstests generic/478).
#[test]
fn regression_locks_of_an_open_file_end_with_it() {
    let kernel = Kernel::new();
    let (file, first) = kernel.create(b"a", 0, 0o600).unwrap();
    let open = || {
        let body = kernel.ask(opcode::OPEN, file.node, &[&[0; 8]]).unwrap();
        OpenOut::read_from_bytes(&body).unwrap()
    };
    let (second, third) = (open(), open());
    let lock = |opened: &OpenOut, owner, start| {
        let lock = LockRange { start, end: start, kind: lock_kind::WRITE, process: 5 };
        let lock = LockIn { handle: opened.handle, owner, lock, ..LockIn::default() };
        kernel.ask(opcode::SETLK, file.node, &[lock.as_bytes()])
    };
    let (program, open_file, other) = (1, 2, 3);
    lock(&first, open_file, 0).unwrap();
    lock(&first, program, 1).unwrap();
    // The program closes the first, and locks again through the second.
    let flush = FlushIn { handle: first.handle, lock_owner: program, ..FlushIn::default() };
    kernel.ask(opcode::FLUSH, file.node, &[flush.as_bytes()]).unwrap();
    lock(&second, program, 1).unwrap();
    assert_eq!(lock(&third, other, 0), Err(11), "another program has the file open still");
    kernel.release(&file, &first).unwrap();
    assert_eq!(lock(&third, other, 0), Ok(Vec::new()));
    assert_eq!(lock(&third, other, 1), Err(11));
}

/// A program whose file was open while its aggregate was away is told at its next fsync, and so is
/// one whose file is gone.
#[test]
fn regression_fsync_of_what_may_be_lost_is_an_io_error() {
    let kernel = Kernel::new();
    let (file, open) = kernel.create(b"a", 0, 0o600).unwrap();
    let sync = |known: u64| kernel.ask(opcode::FSYNC, file.node, &[&known.to_le_bytes(), &[0; 8]]);
    assert_eq!(sync(open.handle), Ok(Vec::new()));
    let hold = kernel.server.as_ref().unwrap().opens.hold(open.handle).unwrap();
    let before = kernel.server.as_ref().unwrap().opens.add(Hold { losses: 1, ..hold }, false);
    assert_eq!(sync(before), Err(FsError::Io.errno()), "its aggregate was away since");
    kernel.server.as_ref().unwrap().opens.remove(before);
    kernel.ask(opcode::UNLINK, 1, &[b"a\0"]).unwrap();
    assert_eq!(sync(open.handle), Ok(Vec::new()));
    kernel.release(&file, &open).unwrap();
    assert_eq!(sync(open.handle), Err(FsError::Stale.errno()));
}

#[test]
fn what_is_open_at_the_end_is_released() {
    let mut kernel = Kernel::new();
    let root = crate::root_of("home", kernel.service.as_ref()).unwrap().handle;
    kernel.create(b"a", 0, 0o600).unwrap();
    kernel.ask(opcode::UNLINK, 1, &[b"a\0"]).unwrap();
    assert_eq!(kernel.service.file_count(root), 2);
    kernel.server = None;
    assert_eq!(kernel.service.file_count(root), 1);
}

/// What was written, closed and not synced was lost by a crash for ten seconds, whatever `sync`
/// said.
#[test]
fn regression_what_was_written_is_to_be_durable_once_it_is_closed() {
    let kernel = Kernel::new();
    let unsettled = kernel.server.as_ref().unwrap().unsettled();
    let written = |name: &[u8], flags| {
        let (file, opened) = kernel.create(name, flags | O_WRONLY, 0o600).unwrap();
        let write = WriteIn { handle: opened.handle, size: 1, flags, ..WriteIn::default() };
        kernel.ask(opcode::WRITE, file.node, &[write.as_bytes(), b"x"]).unwrap();
        (file, opened)
    };
    let close = |(file, opened): (EntryOut, OpenOut)| kernel.release(&file, &opened).unwrap();
    close(kernel.create(b"a", 0, 0o600).unwrap());
    close(written(b"b", abi::O_DSYNC));
    let synced = written(b"s", 0);
    kernel.ask(opcode::FSYNC, synced.0.node, &[&synced.1.handle.to_le_bytes(), &[0; 8]]).unwrap();
    close(synced);
    assert_eq!(unsettled.count(), 0, "nothing was written, or it is durable");
    let open = written(b"c", 0);
    close(written(b"d", 0));
    assert_eq!(unsettled.count(), 1);
    close(open);
    assert_eq!(unsettled.count(), 2);
    unsettled.beat();
    assert_eq!(unsettled.count(), 0);
    let (_, opened) = written(b"e", 0);
    assert!(opened.handle > 0);
    drop(kernel);
    assert_eq!(unsettled.count(), 0, "the end of the mount asks for what was open");
}

#[test]
fn a_sync_of_the_file_system_is_answered_when_all_is_durable() {
    let kernel = Kernel::new();
    assert_eq!(kernel.ask(opcode::SYNCFS, 1, &[&[0; 8]]), Ok(Vec::new()));
}

#[test]
fn what_is_not_known_is_not_implemented() {
    let kernel = Kernel::new();
    for unknown in [0, 34, 47, 1000, u32::MAX] {
        assert_eq!(kernel.ask(unknown, 1, &[&[0; 64]]), Err(38));
    }
}

#[test]
fn an_answer_that_is_lost_is_an_error() {
    let kernel = Kernel::new();
    drop(Reply::new(Some(Way::Device(Arc::clone(&kernel.device))), 99));
    assert_eq!(kernel.reply(), Some((-5, Vec::new())));
}

proptest! {
    /// Nothing that could come through the device brings the server down, and everything but
    /// FORGET and INTERRUPT gets one answer.
    #[test]
    fn garbage_is_answered(
        requests in prop::collection::vec(
            (0..60_u32, 0..4_u64, prop::collection::vec(any::<u8>(), 0..120)), 1..20
        )
    ) {
        let kernel = Kernel::new();
        let (file, _) = kernel.create(b"a", 0, 0o644).unwrap();
        for (opcode, node, arguments) in requests {
            let node = [1, file.node, 1 << 63, u64::MAX][node as usize];
            // Who waits for a lock is answered later.
            let opcode = if opcode == opcode::SETLKW { opcode::SETLK } else { opcode };
            kernel.send(&request(opcode, node, &arguments));
            let unanswered = [opcode::FORGET, opcode::BATCH_FORGET, opcode::INTERRUPT];
            let forget = unanswered.contains(&opcode);
            prop_assert_eq!(kernel.reply().is_some(), !forget);
            prop_assert_eq!(kernel.reply(), None);
        }
        kernel.service.verify();
    }

    #[test]
    fn torn_requests_are_passed_over(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        Kernel::new().send(&bytes);
    }
}

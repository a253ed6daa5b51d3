//! Target `nfs_call`: a sequence of NFSv3, NFSACL and MOUNT calls by one client, each with
//! arguments of its procedure's shape, some of them spoilt. Handles are mostly ones that were
//! answered before.
//!
//! Rules: each call gets exactly one reply, of the shape that RFC 1813 gives it, or that clients of
//! NFSACL expect; a call that is sent again gets the same reply if it may not be done twice; the
//! file system stays whole.

use crate::input::Input;
use crate::{memory, results};
use file_service::memory::MemoryFileSystem;
use file_service::{HandleKey, SealedHandle};
use nfs::{EveryClient, Export, ExportAccess, ExportPolicy, Programs, ReplyLimits, Squash};
use onc_rpc::{AuthSys, CallHeader, Credential, Dialogue, Reader, Writer, record};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use units::{Generation, InodeNumber, SnapshotId, VolumeUuid};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const ACL: u32 = 100_227;
/// Procedures of NFSv3, and two more that it does not have.
const NFS_PROCEDURES: u64 = 24;
/// Those of MOUNT, and one more.
const MOUNT_PROCEDURES: u64 = 7;
/// Those of NFSACL, and one more.
const ACL_PROCEDURES: u64 = 4;
/// Most entries of a list.
const ACL_ENTRIES_MAX: u64 = 12;
/// Calls of one input.
const CALLS_MAX: usize = 200;
/// Handles that are remembered.
const HANDLES_MAX: usize = 16;
/// Longest data of a WRITE.
const DATA_BYTES_MAX: u64 = 9000;

/// `vol` may be changed, `other` only be read.
struct Policy;

impl ExportPolicy for Policy {
    fn generation(&self) -> Option<u64> {
        Some(0)
    }

    fn handle_key(&self, volume: VolumeUuid) -> Option<HandleKey> {
        (volume.half() <= 2).then_some(EveryClient::KEY)
    }

    fn rule(&self, volume: VolumeUuid, _: IpAddr) -> Option<ExportAccess> {
        match volume.half() {
            1 => Some(ExportAccess::ROOT_IS_ROOT),
            2 => Some(ExportAccess {
                read_only: true,
                squash: Squash::Root,
                hide_snapshots: true,
                ..ExportAccess::ROOT_IS_ROOT
            }),
            _ => None,
        }
    }

    fn rule_for_export(&self, _: &str, _: IpAddr) -> Option<ExportAccess> {
        Some(ExportAccess::ROOT_IS_ROOT)
    }

    fn exports(&self, _: IpAddr) -> Vec<Export> {
        let clients = vec!["10.0.0.0/8".to_owned()];
        vec![Export { path: "/vol".to_owned(), clients }]
    }
}

/// A client that remembers what it was answered.
struct Client {
    dialogue: Dialogue<Programs>,
    handles: Vec<Vec<u8>>,
    xid: u32,
}

/// See the module.
pub fn nfs_call(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let service = memory::service();
    let mut client = Client::new(&service);
    for _ in 0..CALLS_MAX {
        if input.is_empty() {
            break;
        }
        client.one(&mut input);
    }
    service.verify();
}

impl Client {
    fn new(service: &Arc<MemoryFileSystem>) -> Self {
        let programs = Programs::new(
            Arc::clone(service) as _,
            Arc::new(Policy),
            memory::clock(),
            ReplyLimits::default(),
        );
        let record_bytes_max = programs.record_bytes_max();
        let peer = SocketAddr::from(([10, 0, 0, 1], 700));
        let dialogue = Dialogue::new(programs, peer, record_bytes_max);
        let root = |volume| memory::root(service, volume).handle.seal(&EveryClient::KEY).to_vec();
        Self { dialogue, handles: vec![root("vol"), root("other")], xid: 0 }
    }

    /// One call and its reply.
    fn one(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let (program, procedures) = match choice % 16 {
            0 => (MOUNT, MOUNT_PROCEDURES),
            5 | 10 => (ACL, ACL_PROCEDURES),
            _ => (NFS, NFS_PROCEDURES),
        };
        let procedure = input.below(procedures) as u32;
        let credential = match choice >> 4 & 3 {
            0 => Credential::None,
            1 => Credential::Sys(AuthSys::new(1000, 100, &[200])),
            _ => Credential::Sys(AuthSys::new(0, 0, &[])),
        };
        self.xid += 1;
        let mut writer = Writer::default();
        writer.u32(0);
        let header = CallHeader { xid: self.xid, program, version: 3, procedure, credential };
        header.write(&mut writer);
        let header_bytes = writer.len();
        match program {
            MOUNT => mount_arguments(procedure, &mut writer, input),
            ACL => self.acl_arguments(procedure, &mut writer, input),
            _ => self.arguments(procedure, &mut writer, input),
        }
        let call = spoilt(writer.into_bytes(), header_bytes, choice, input);
        let reply = reply_to(&mut self.dialogue, &call);
        let is_change = match program {
            NFS => matches!(procedure, 2 | 8..=15),
            ACL => procedure == 2,
            _ => false,
        };
        if choice & 0x40 != 0 {
            let again = reply_to(&mut self.dialogue, &call);
            assert!(!is_change || again == reply, "the same reply to a call that came again");
        }
        let mut reader = Reader::new(&reply);
        let header = results::header(&mut reader);
        assert_eq!(header.xid, self.xid);
        let accepted = header.accepted;
        assert!(matches!(accepted, Some(0 | 3 | 4)), "accept status {accepted:?}");
        if accepted == Some(0) && program == ACL {
            assert!(procedure < 3, "NFSACL has no procedure {procedure}");
            results::acl(procedure, &mut reader);
        }
        if accepted == Some(0) && program == NFS {
            assert!(procedure < 22, "there is no procedure {procedure}");
            if let Some(handle) = results::nfs(procedure, &mut reader) {
                self.remember(handle);
            }
        }
    }

    fn remember(&mut self, handle: Vec<u8>) {
        if self.handles.contains(&handle) {
            return;
        }
        if self.handles.len() == HANDLES_MAX {
            self.handles.remove(2); // after the roots
        }
        self.handles.push(handle);
    }

    fn handle(&self, writer: &mut Writer, input: &mut Input<'_>) {
        let choice = usize::from(input.byte());
        match self.handles.get(choice % (HANDLES_MAX + 1)) {
            Some(handle) if choice >= 0xf0 => {
                // One that was changed in a place.
                let mut changed = handle.clone();
                let at = input.index(changed.len());
                if let Some(byte) = changed.get_mut(at) {
                    *byte ^= input.byte();
                }
                writer.opaque(&changed);
            }
            Some(handle) if choice >= 0xe0 => writer.opaque(&changed_and_sealed(handle, input)),
            Some(handle) => writer.opaque(handle),
            None => {
                let length = input.index(70);
                writer.opaque(input.bytes(length));
            }
        }
    }

    /// A directory's handle and a name in it.
    fn place(&self, writer: &mut Writer, input: &mut Input<'_>) {
        self.handle(writer, input);
        name(writer, input);
    }

    fn acl_arguments(&self, procedure: u32, writer: &mut Writer, input: &mut Input<'_>) {
        if !matches!(procedure, 1 | 2) {
            return;
        }
        self.handle(writer, input);
        writer.u32(input.u32());
        if procedure == 2 {
            acl_entries(writer, input, 0);
            acl_entries(writer, input, 0x1000);
        }
    }

    fn arguments(&self, procedure: u32, writer: &mut Writer, input: &mut Input<'_>) {
        match procedure {
            0 => {}
            3 | 12 | 13 => self.place(writer, input),
            14 => {
                self.place(writer, input);
                self.place(writer, input);
            }
            8 | 9 => {
                self.place(writer, input);
                let mode = if procedure == 8 { input.below(4) as u32 } else { 0 };
                if procedure == 8 {
                    writer.u32(mode);
                }
                match mode {
                    2 => writer.u64(input.u64()),
                    _ => set_attributes(writer, input),
                }
            }
            10 => {
                self.place(writer, input);
                set_attributes(writer, input);
                let length = input.index(40);
                writer.opaque(input.bytes(length));
            }
            11 => {
                self.place(writer, input);
                let kind = input.below(9) as u32;
                writer.u32(kind);
                if matches!(kind, 3 | 4 | 6 | 7) {
                    set_attributes(writer, input);
                }
                if matches!(kind, 3 | 4) {
                    writer.u64(input.u64());
                }
            }
            15 => {
                self.handle(writer, input);
                self.place(writer, input);
            }
            _ => {
                self.handle(writer, input);
                rest_of_arguments(procedure, writer, input);
            }
        }
    }
}

/// What follows the one handle that a procedure is about.
fn rest_of_arguments(procedure: u32, writer: &mut Writer, input: &mut Input<'_>) {
    match procedure {
        2 => {
            set_attributes(writer, input);
            let guarded = input.rarely(4);
            writer.bool(guarded);
            if guarded {
                writer.u32(1_600_000_000);
                writer.u32(input.u32());
            }
        }
        4 => writer.u32(input.u32()),
        6 | 21 => {
            writer.u64(input.u64());
            writer.u32(input.u32());
        }
        7 => {
            let length = input.index(DATA_BYTES_MAX as usize);
            let data = vec![input.byte(); length];
            writer.u64(input.u64());
            let count = if input.rarely(16) { input.u32() } else { length as u32 };
            writer.u32(count);
            writer.u32(input.below(4) as u32);
            writer.opaque(&data);
        }
        16 | 17 => {
            writer.u64(input.u64());
            writer.u64(u64::from(input.rarely(16)));
            let room = [input.u32(), input.u32()];
            let room = room.map(|room| if room < 16 { room * 300 } else { room });
            room.iter().take(procedure as usize - 15).for_each(|room| writer.u32(*room));
        }
        _ => {}
    }
}

fn mount_arguments(procedure: u32, writer: &mut Writer, input: &mut Input<'_>) {
    if matches!(procedure, 1 | 3) {
        let length = input.index(12);
        let path = match input.below(4) {
            0 => b"/vol".to_vec(),
            1 => [b"/vol/", input.bytes(length)].concat(),
            2 => b"/other/".to_vec(),
            _ => input.bytes(length).to_vec(),
        };
        writer.opaque(&path);
    }
}

/// A list, mostly with the three or four entries that every list has.
fn acl_entries(writer: &mut Writer, input: &mut Input<'_>, tag_bits: u32) {
    let count = input.below(ACL_ENTRIES_MAX + 1) as u32;
    writer.u32(if input.rarely(16) { input.u32() } else { count });
    writer.u32(if input.rarely(16) { input.u32() } else { count });
    for place in 0..count {
        let (tag, id) = match (place, input.byte()) {
            (_, 0xf0..) => (input.u32(), input.u32()),
            (0, _) => (1, 0),
            (1, _) => (4, 0),
            (2, _) => (0x20, 0),
            (3, _) => (0x10, 0),
            (_, choice) => (if choice & 1 == 0 { 2 } else { 8 }, u32::from(choice >> 1)),
        };
        writer.u32(tag | tag_bits);
        writer.u32(id);
        writer.u32(if input.rarely(32) { input.u32() } else { input.below(8) as u32 });
    }
}

fn name(writer: &mut Writer, input: &mut Input<'_>) {
    let choice = input.byte();
    match choice {
        0xf0.. => {
            let length = input.index(300);
            writer.opaque(input.bytes(length));
        }
        0xe0.. => writer.opaque(input.pick(&[b".".as_slice(), b"..", b"", b".snapshot", b"a/b"])),
        _ => writer.opaque(&[b'a' + choice % 12]),
    }
}

fn set_attributes(writer: &mut Writer, input: &mut Input<'_>) {
    let which = input.byte();
    for bit in 0..3 {
        let is_set = which >> bit & 1 == 1;
        writer.bool(is_set);
        if is_set {
            writer.u32(input.u32());
        }
    }
    let is_set = which >> 3 & 1 == 1;
    writer.bool(is_set);
    if is_set {
        writer.u64(input.u64());
    }
    for shift in [4, 6] {
        let how = u32::from(which >> shift & 3);
        writer.u32(how);
        if how == 2 {
            writer.u32(input.u32());
            writer.u32(input.u32());
        }
    }
}

/// The one reply to a call, without its mark.
pub(crate) fn reply_to(dialogue: &mut Dialogue<Programs>, call: &[u8]) -> Vec<u8> {
    dialogue.hear(call);
    let stream = dialogue.take_replies();
    let replies = results::split(&stream);
    assert_eq!(replies.len(), 1, "each call gets one reply");
    replies.first().map(|reply| reply.to_vec()).unwrap_or_default()
}

/// The call with its mark: whole mostly, else cut short, made longer, or changed in a place behind
/// its header.
pub(crate) fn spoilt(
    mut call: Vec<u8>,
    header_bytes: usize,
    choice: u8,
    input: &mut Input<'_>,
) -> Vec<u8> {
    if choice & 0xf == 0xf {
        let at = header_bytes + input.index(call.len() - header_bytes + 1);
        match input.below(3) {
            0 => call.truncate(at),
            1 => call.extend(input.bytes(9)),
            _ => {
                if let Some(byte) = call.get_mut(at) {
                    *byte = input.byte();
                }
            }
        }
    }
    let mark = record::mark(call.len() - 4).to_be_bytes();
    call.iter_mut().zip(mark).for_each(|(to, from)| *to = from);
    call
}

/// A handle that a server with this state never gives and that opens all the same, as those of
/// files that are gone do.
fn changed_and_sealed(handle: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let opened = SealedHandle::parse(handle).and_then(|sealed| sealed.open(&EveryClient::KEY));
    let Ok(mut file) = opened else { return handle.to_vec() };
    match input.byte() & 3 {
        0 => file.volume.0[7] = input.byte(),
        1 => file.inode = InodeNumber(input.u64()),
        2 => file.generation = Generation(u32::from(input.byte())),
        _ => file.snapshot = SnapshotId(u32::from(input.byte())),
    }
    file.seal(&EveryClient::KEY).to_vec()
}

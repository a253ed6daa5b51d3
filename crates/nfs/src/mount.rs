//! MOUNT version 3 (RFC 1813 appendix I): from an export's path to a handle.
//!
//! `/volume` is a volume's root, `/volume/a/b` a directory in it, which the caller must be able to
//! reach: its handle would lead past a directory that keeps him out. A mount gives a handle and no
//! rights: each later call is checked by itself.
//!
//! Invariants:
//! - The table of mounts is for `showmount -a` only, bounded, and nothing depends on it; clients
//!   that vanish stay in it.
//! - A client that may not mount a volume is told the same (`MNT3ERR_ACCES`) whether there is such
//!   a volume or not, and whether an administrator took it offline; and sees
//!   in the lists only what it may mount, and its own mounts. Over UDP, where its address may be
//!   another's, it gets no lists.
//!
//! Fails: with the statuses of RFC 1813 appendix I; what has no number there is
//! `MNT3ERR_SERVERFAULT`.

use crate::export::{self, ExportAccess};
use crate::once::Way;
use crate::request::{Answer, Context, Refusal, Request, Session};
use file_service::rules::names;
use file_service::{Caller, Entry, FileKind, FsError, calls};
use onc_rpc::{Call, Replier, Writer, message};
use platform::sync::Mutex;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use units::VolumeUuid;

/// The program's number.
pub(crate) const PROGRAM: u32 = 100_005;
/// Its only version here.
pub(crate) const VERSION: u32 = 3;

const DUMP: u32 = 2;
const EXPORT: u32 = 5;

/// Longest path (`MNTPATHLEN`).
const PATH_BYTES_MAX: usize = 1024;
/// Mounts that are remembered; the oldest is forgotten first.
const MOUNTS_MAX: usize = 1024;
/// Of them, of one address, which are shown to it: so many that a stranger may ask for the list.
const MOUNTS_OF_ADDRESS_MAX: usize = 32;
/// Bytes of a list of the mounts of an address at most. Each has a flag, the address and the path
/// with a length each; a last flag ends the list.
const DUMP_BYTES_MAX: usize =
    MOUNTS_OF_ADDRESS_MAX * (4 + 4 + ADDRESS_BYTES_MAX + 4 + PATH_BYTES_MAX) + 4;
/// Bytes of the list of exports that is promised. A longer one is charged when it is made.
const EXPORT_BYTES: usize = 4 << 10;
/// An IPv6 address in full, as XDR pads it.
const ADDRESS_BYTES_MAX: usize = 40;
/// Bytes of any other result at most: a handle and a flavor.
const RESULT_BYTES_MAX: usize = 128;
/// `MNT3ERR_SERVERFAULT`.
const SERVER_FAULT: u32 = 10006;

/// Who mounted what.
#[derive(Default)]
pub(crate) struct Mounts {
    table: Mutex<VecDeque<(IpAddr, Vec<u8>)>>,
}

impl Mounts {
    fn add(&self, client: IpAddr, path: &[u8]) {
        let mut table = self.table.lock();
        if table.iter().any(|mount| (mount.0, mount.1.as_slice()) == (client, path)) {
            return;
        }
        let of_client = table.iter().filter(|mount| mount.0 == client).count();
        let oldest = match of_client < MOUNTS_OF_ADDRESS_MAX {
            true => (table.len() == MOUNTS_MAX).then_some(0),
            false => table.iter().position(|mount| mount.0 == client),
        };
        oldest.map(|oldest| table.remove(oldest));
        table.push_back((client, path.to_vec()));
    }

    fn remove(&self, client: IpAddr, path: Option<&[u8]>) {
        let goes = |mount: &(IpAddr, Vec<u8>)| {
            mount.0 == client && path.is_none_or(|path| mount.1.as_slice() == path)
        };
        self.table.lock().retain(|mount| !goes(mount));
    }
}

/// The status for an error, out of those that the protocol knows.
const fn status(error: FsError) -> u32 {
    match error.nfs3_status() {
        known @ (1 | 2 | 5 | 13 | 20 | 22 | 63 | 10004) => known,
        _ => SERVER_FAULT,
    }
}

impl Refusal {
    /// An error as MOUNT numbers it.
    const fn mount(error: FsError) -> Self {
        Self::Status(status(error))
    }
}

/// Bytes of the result of a call at most.
pub(crate) const fn reply_bytes(procedure: u32) -> usize {
    match procedure {
        DUMP => DUMP_BYTES_MAX,
        EXPORT => EXPORT_BYTES,
        _ => RESULT_BYTES_MAX,
    }
}

/// Does one call.
pub(crate) fn dispatch(
    context: &Arc<Context>,
    mounts: &Arc<Mounts>,
    session: &mut Session,
    call: Call<'_>,
    replier: Replier,
) {
    let procedure = call.header.procedure;
    let answer = Answer::new(context, Way::unkept(replier), &[]);
    let mut request = Request::new(context, session, call, answer);
    let outcome = run(procedure, &mut request, mounts);
    request.conclude(outcome);
}

fn run(procedure: u32, request: &mut Request<'_>, mounts: &Arc<Mounts>) -> Result<(), Refusal> {
    match procedure {
        0 => request.take_answer().plain(|_| {}),
        1 => return mount(request, mounts),
        DUMP | EXPORT if request.session.datagram => return Err(Refusal::NoProcedure),
        DUMP => {
            let client = request.session.client;
            request.take_answer().plain(|writer| write_mounts(writer, mounts, client));
        }
        3 => {
            let path = request.arguments.opaque(PATH_BYTES_MAX)?;
            mounts.remove(request.session.client, Some(path));
            request.take_answer().plain(|_| {});
        }
        4 => {
            mounts.remove(request.session.client, None);
            request.take_answer().plain(|_| {});
        }
        EXPORT => {
            let exports = request.context.policy.exports(request.session.client);
            request.take_answer().plain(|writer| {
                for export in &exports {
                    writer.bool(true);
                    writer.opaque(export.path.as_bytes());
                    for client in &export.clients {
                        writer.bool(true);
                        writer.opaque(client.as_bytes());
                    }
                    writer.bool(false);
                }
                writer.bool(false);
            });
        }
        _ => return Err(Refusal::NoProcedure),
    }
    Ok(())
}

fn write_mounts(writer: &mut Writer, mounts: &Mounts, of: IpAddr) {
    for (client, path) in mounts.table.lock().iter().filter(|(client, _)| *client == of) {
        writer.bool(true);
        writer.opaque(client.to_string().as_bytes());
        writer.opaque(path);
    }
    writer.bool(false);
}

/// The way to a directory that is being mounted.
struct Walk {
    context: Arc<Context>,
    mounts: Arc<Mounts>,
    answer: Answer,
    client: IpAddr,
    caller: Caller,
    path: Vec<u8>,
    /// Names still to be looked up, the last first.
    names: Vec<Vec<u8>>,
}

/// MNT.
fn mount(request: &mut Request<'_>, mounts: &Arc<Mounts>) -> Result<(), Refusal> {
    let path = request.arguments.opaque(PATH_BYTES_MAX)?;
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let volume = names.next().and_then(|name| std::str::from_utf8(name).ok());
    let (client, port) = (request.session.client, request.session.peer.port());
    let context = request.context;
    let denied = || {
        // Of an aggregate that is away since the start not even the names are known.
        if context.policy.is_away(VolumeUuid::NIL) {
            return Refusal::mount(FsError::Offline);
        }
        context.refusals.mount(client, path);
        Refusal::mount(FsError::AccessDenied)
    };
    let volume = volume.ok_or_else(denied)?.to_owned();
    let rule = context.policy.rule_for_export(&volume, client);
    let access = rule.filter(|access| !access.refuses_port(port)).ok_or_else(denied)?;
    let names = names.rev().map(<[u8]>::to_vec).collect();
    let walk = Walk {
        context: Arc::clone(request.context),
        mounts: Arc::clone(mounts),
        answer: request.take_answer(),
        client,
        caller: export::caller(&request.credential, &access),
        path: path.to_vec(),
        names,
    };
    request.service().root(
        &Caller::root(),
        calls::Root { name: volume },
        Box::new(move |result| match result {
            // It is offline, or was deleted since its rule was read: as if no rule let him in.
            Err(FsError::NotFound) => walk.answer.status(status(FsError::AccessDenied)),
            Err(error) => walk.answer.status(status(error)),
            Ok(root) => walk.step(root, access),
        }),
    );
    Ok(())
}

impl Walk {
    /// Looks up the next name, as the caller: each directory on the way must let him pass.
    fn step(mut self, entry: Entry, access: ExportAccess) {
        if entry.attributes.kind != FileKind::Directory {
            return self.answer.status(status(FsError::NotDirectory));
        }
        let Some(name) = self.names.pop() else { return self.arrive(&entry) };
        if access.hide_snapshots && name == names::SNAPSHOT_DIRECTORY {
            return self.answer.status(status(FsError::NotFound));
        }
        let (context, caller) = (Arc::clone(&self.context), self.caller.clone());
        let done = move |result| match result {
            Err(error) => self.answer.status(status(error)),
            Ok(entry) => self.step(entry, access),
        };
        context.service.lookup(
            &caller,
            calls::Lookup { directory: entry.handle, name: name.to_vec() },
            Box::new(done),
        );
    }

    fn arrive(self, entry: &Entry) {
        let Some(handle) = self.context.seal(&entry.handle) else {
            return self.answer.status(status(FsError::NotFound));
        };
        self.mounts.add(self.client, &self.path);
        let mut writer = self.answer.begin(64);
        writer.opaque(&handle);
        writer.u32(1); // one flavor:
        writer.u32(message::AUTH_SYS);
        self.answer.send(writer, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_mounts_is_bounded() {
        let mounts = Mounts::default();
        let client = |number: usize| IpAddr::from([10, 0, (number / 256) as u8, number as u8]);
        let count = || mounts.table.lock().len();
        for number in 0..MOUNTS_OF_ADDRESS_MAX + 5 {
            mounts.add(client(1), number.to_string().as_bytes());
            mounts.add(client(1), number.to_string().as_bytes());
        }
        assert_eq!(count(), MOUNTS_OF_ADDRESS_MAX);
        mounts.remove(client(1), Some(b"5"));
        mounts.remove(client(1), Some(b"4"));
        assert_eq!(count(), MOUNTS_OF_ADDRESS_MAX - 1);
        mounts.remove(client(2), None);
        assert_eq!(count(), MOUNTS_OF_ADDRESS_MAX - 1);
        mounts.remove(client(1), None);
        assert_eq!(count(), 0);
        (0..MOUNTS_MAX + 5).for_each(|number| mounts.add(client(number), b"path"));
        assert_eq!(count(), MOUNTS_MAX);
        mounts.remove(client(4), None);
        assert_eq!(count(), MOUNTS_MAX, "the oldest went first");
        mounts.remove(client(5), None);
        assert_eq!(count(), MOUNTS_MAX - 1);
    }

    #[test]
    fn the_longest_list_is_as_long_as_promised() {
        let mounts = Mounts::default();
        let client = "fd00:1234:1234:1234:1234:1234:1234:1234".parse().unwrap();
        for number in 0..MOUNTS_MAX {
            let mut path = vec![b'x'; PATH_BYTES_MAX];
            path[..8].copy_from_slice(format!("{number:08}").as_bytes());
            mounts.add(client, &path);
        }
        let mut writer = Writer::default();
        write_mounts(&mut writer, &mounts, client);
        assert_eq!(writer.bytes().len(), reply_bytes(DUMP));
    }

    #[test]
    fn errors_have_the_numbers_of_the_protocol() {
        assert_eq!(status(FsError::AccessDenied), 13);
        assert_eq!(status(FsError::NotFound), 2);
        assert_eq!(status(FsError::Stale), SERVER_FAULT);
    }
}

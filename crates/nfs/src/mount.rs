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

/// Longest path (`MNTPATHLEN`).
const PATH_BYTES_MAX: usize = 1024;
/// Mounts that are remembered; the oldest is forgotten first.
const MOUNTS_MAX: usize = 1024;
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
        if table.len() == MOUNTS_MAX {
            table.pop_front();
        }
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
        2 | 5 if request.session.datagram => return Err(Refusal::NoProcedure),
        2 => {
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
        5 => {
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
        let client = IpAddr::from([10, 0, 0, 1]);
        for number in 0..MOUNTS_MAX + 5 {
            mounts.add(client, number.to_string().as_bytes());
            mounts.add(client, number.to_string().as_bytes());
        }
        assert_eq!(mounts.table.lock().len(), MOUNTS_MAX);
        mounts.remove(client, Some(b"5"));
        mounts.remove(client, Some(b"4"));
        assert_eq!(mounts.table.lock().len(), MOUNTS_MAX - 1);
        mounts.remove(IpAddr::from([10, 0, 0, 2]), None);
        assert_eq!(mounts.table.lock().len(), MOUNTS_MAX - 1);
        mounts.remove(client, None);
        assert!(mounts.table.lock().is_empty());
    }

    #[test]
    fn errors_have_the_numbers_of_the_protocol() {
        assert_eq!(status(FsError::AccessDenied), 13);
        assert_eq!(status(FsError::NotFound), 2);
        assert_eq!(status(FsError::Stale), SERVER_FAULT);
    }
}

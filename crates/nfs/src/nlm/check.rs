//! Whether a call about a lock may be made: what the handle leads to, which machine asks, and what
//! the export rule lets it do.
//!
//! Invariants: the export rule is asked before anything is remembered of who asks. Giving back is
//! another matter: a machine that was let in gives back what it has whatever the rule says by now,
//! or its lock would stand in everybody's way. The kind of port counts still: on a machine whose
//! locks were all had from ports that take root, no other user gives them back.
//!
//! Fails: with a [`Status`].

use super::hosts::{Host, Hosts, Unmonitored};
use super::wire::{self, Lock, Status};
use crate::export;
use crate::request::{Context, Session};
use file_service::{FileHandle, FsError, SealedHandle};
use locks::{Kind, Mode, Owner, Range, Request};
use units::SnapshotId;

/// What a call is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// To take, or to look.
    Take,
    /// To give back.
    GiveBack,
}

/// A call that may be made: which machine, and about which lock.
pub(super) struct Checked {
    pub(super) host: Host,
    pub(super) request: Request,
    /// Whether nothing may be changed through the export, if the call is to take.
    pub(super) read_only: bool,
}

pub(super) fn check(
    context: &Context,
    hosts: &Hosts,
    session: &Session,
    (lock, mode): (&Lock<'_>, Mode),
    purpose: Purpose,
) -> Result<Checked, Status> {
    let sealed = SealedHandle::parse(lock.file).map_err(|_| Status::Stale)?;
    let file = context.open(sealed).map_err(|error| match error {
        FsError::Offline => Status::Failed,
        _ => Status::Stale,
    })?;
    let host = Host::new(session.client, lock.caller).ok_or(Status::Failed)?;
    let range = Range::of_length(lock.offset, lock.length).ok_or(Status::TooFar)?;
    let is_privileged = export::is_privileged(session.peer.port());
    let known = match purpose {
        Purpose::GiveBack => hosts.known(&host, file.volume, is_privileged),
        Purpose::Take => None,
    };
    let (client, read_only) = match known {
        Some(client) => (client, false),
        None => {
            let read_only = admit(context, session, &file)?;
            let client = hosts.client(&host, file.volume, is_privileged);
            (client.map_err(|Unmonitored| Status::DeniedNoLocks)?, read_only)
        }
    };
    let request = Request {
        file,
        owner: Owner::new(client, &wire::owner_name(lock.process, lock.owner)),
        process: lock.process,
        kind: Kind::Record,
        mode,
        range,
    };
    Ok(Checked { host, request, read_only })
}

/// Asks the export rule; whether it lets nothing be changed.
fn admit(context: &Context, session: &Session, file: &FileHandle) -> Result<bool, Status> {
    let access = context.policy.rule(file.volume, session.client).ok_or(Status::Failed)?;
    let image = file.snapshot != SnapshotId::ACTIVE;
    if access.refuses_port(session.peer.port()) || (image && access.hide_snapshots) {
        return Err(Status::Failed);
    }
    Ok(image || access.read_only)
}

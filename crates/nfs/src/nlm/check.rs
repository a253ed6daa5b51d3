//! Whether a call about a lock may be made: what the handle leads to, which machine asks, and what
//! the export rule lets it do.
//!
//! Invariants: the export rule is asked before anything is remembered of who asks, and before
//! anything is said to who asks by a call of ours. Giving back is another matter: a machine
//! that was let in gives back what it has whatever the rule says by now, or its lock would
//! stand in everybody's way. The kind of port counts still: on a machine whose locks were all
//! had from ports that take root, no other user gives them back.
//!
//! Fails: with [`Denied`].

use super::host::Host;
use super::hosts::{Hosts, Unmonitored};
use super::wire::{self, Lock, Status};
use crate::export::{self, ExportAccess};
use crate::request::{Context, Session};
use file_service::{Caller, FileHandle, FsError, SealedHandle};
use locks::{Kind, Mode, Owner, Range, Request};
use onc_rpc::Credential;
use units::SnapshotId;

/// What a call is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// To take.
    Take,
    /// To look at what others have: nothing is remembered of who asks.
    Look,
    /// To give back.
    GiveBack,
}

/// A call that may be made: which machine, and about which lock.
pub(super) struct Checked {
    pub(super) host: Host,
    pub(super) request: Request,
    /// Whether nothing may be changed through the export, if the call is to take.
    pub(super) read_only: bool,
    /// Whether the call came from a port that takes root.
    pub(super) is_privileged: bool,
    /// As whom the file would be opened, if the call is to take.
    pub(super) caller: Option<Caller>,
}

/// A call that may not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Denied {
    pub(super) status: Status,
    /// Whether the export rule let its client in: else nothing is remembered of it, and no call of
    /// ours tells it.
    pub(super) is_admitted: bool,
}

impl Denied {
    const fn stranger(status: Status) -> Self {
        Self { status, is_admitted: false }
    }

    const fn admitted(status: Status) -> Self {
        Self { status, is_admitted: true }
    }
}

pub(super) fn check(
    context: &Context,
    hosts: &Hosts,
    (session, credential): (&Session, &Credential),
    (lock, mode): (&Lock<'_>, Mode),
    purpose: Purpose,
) -> Result<Checked, Denied> {
    let stale = Denied::stranger(Status::Stale);
    let sealed = SealedHandle::parse(lock.file).map_err(|_| stale)?;
    let file = context.open(sealed).map_err(|error| match error {
        FsError::Offline => Denied::stranger(Status::Failed),
        _ => stale,
    })?;
    let host = Host::new(session.client, lock.caller).ok_or(Denied::stranger(Status::Failed))?;
    let is_privileged = export::is_privileged(session.peer.port());
    let known = match purpose {
        Purpose::GiveBack => hosts.known(&host, file.volume, is_privileged),
        Purpose::Take | Purpose::Look => None,
    };
    let (client, access) = match known {
        Some(client) => (client, None),
        None => {
            let access = admit(context, session, &file).map_err(Denied::stranger)?;
            let no_locks = |Unmonitored| Denied::admitted(Status::DeniedNoLocks);
            let client = match purpose {
                Purpose::Look => hosts.looks(&host),
                _ => hosts.client(&host, file.volume, is_privileged).map_err(no_locks)?,
            };
            (client, Some(access))
        }
    };
    let range = Range::of_length(lock.offset, lock.length);
    let range = range.ok_or(Denied::admitted(Status::TooFar))?;
    let request = Request {
        file,
        owner: Owner::new(client, &wire::owner_name(lock.process, lock.owner)),
        process: lock.process,
        kind: Kind::Record,
        mode,
        range,
    };
    let image = file.snapshot != SnapshotId::ACTIVE;
    Ok(Checked {
        host,
        request,
        is_privileged,
        read_only: access.is_some_and(|access| image || access.read_only),
        caller: access.map(|access| export::caller(credential, &access)),
    })
}

/// Asks the export rule.
fn admit(context: &Context, session: &Session, file: &FileHandle) -> Result<ExportAccess, Status> {
    let rule = context.policy.rule(file.volume, session.client);
    let rule = rule.filter(|access| !access.refuses_port(session.peer.port()));
    let Some(access) = rule else {
        context.refusals.call(session.client, file.volume);
        return Err(Status::Failed);
    };
    let image = file.snapshot != SnapshotId::ACTIVE;
    if image && access.hide_snapshots {
        return Err(Status::Failed);
    }
    Ok(access)
}

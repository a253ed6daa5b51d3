//! NSM version 1 (XNFS): the status monitor, for machines that were started anew.
//!
//! NOTIFY is what matters: a client that was started anew has lost its programs, so their locks
//! go, once the machine itself has said that it was (`callbacks`). Monitoring on behalf of
//! others (MON) is refused: the node's own list is kept by `hosts`, and a machine's own NFS
//! client has its own `statd`.
//!
//! Invariants: a NOTIFY frees nothing by itself. It causes a call to its sender's address only, and
//! only if a machine of that address and name was let in to a volume, and from a port that takes
//! root there, which status monitors use.

use super::LockService;
use crate::export;
use crate::request::Session;
use onc_rpc::{Call, Replier, ReplyError, XdrError};
use std::num::NonZeroU32;

/// The program's number.
pub(crate) const PROGRAM: u32 = 100_024;
/// Its only version.
pub(crate) const VERSION: u32 = 1;
/// STAT: the number of the status monitor, and whether it would monitor a machine.
pub(crate) const STAT: u32 = 1;
/// NOTIFY.
pub(crate) const NOTIFY: u32 = 6;

/// Longest name (`SM_MAXSTRLEN`).
const NAME_BYTES_MAX: usize = 1024;
/// `STAT_FAIL`.
const STAT_FAIL: u32 = 1;

/// The number of a status monitor, if it is one: odd while the machine is up. Some monitors answer
/// zero, or all ones, if they do not mean to say.
pub(super) fn number(state: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(state).filter(|state| state.get() % 2 == 1 && state.get() != u32::MAX)
}

/// Does one call.
pub(crate) fn dispatch(service: &LockService, session: &Session, call: Call<'_>, replier: Replier) {
    if let Err(error) = run(service, session, call, replier) {
        tracing::debug!(client = %session.client, %error, "a call to the status monitor");
    }
}

fn run(
    service: &LockService,
    session: &Session,
    call: Call<'_>,
    replier: Replier,
) -> Result<(), XdrError> {
    let mut arguments = call.arguments;
    let mut writer = replier.begin(8);
    let state = service.hosts.state();
    match call.header.procedure {
        // NULL; SIMU_CRASH, which is for tests of a monitor alone
        0 | 5 => {}
        // STAT, MON: no machine can be monitored here
        STAT | 2 => {
            writer.u32(STAT_FAIL);
            writer.u32(state);
        }
        // UNMON, UNMON_ALL
        3 | 4 => writer.u32(state),
        NOTIFY => {
            let name = arguments.opaque(NAME_BYTES_MAX);
            let (name, state) = match name.and_then(|name| Ok((name, arguments.u32()?))) {
                Ok(read) => read,
                Err(error) => {
                    replier.fail(ReplyError::GarbageArguments);
                    return Err(error);
                }
            };
            tracing::debug!(client = %session.client, state, "a NOTIFY");
            heard_of_restart(service, session, name);
        }
        _ => {
            replier.fail(ReplyError::ProcedureUnavailable);
            return Ok(());
        }
    }
    replier.send(writer, None);
    Ok(())
}

/// Somebody says that a machine was started anew.
fn heard_of_restart(service: &LockService, session: &Session, name: &[u8]) {
    if !export::is_privileged(session.peer.port()) {
        tracing::debug!(client = %session.peer, "NOTIFY from a port that any user may use");
        return;
    }
    for host in service.hosts.named(session.client, name) {
        service.callbacks.confirm_restart(host);
    }
}

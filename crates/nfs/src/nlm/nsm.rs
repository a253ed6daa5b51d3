//! NSM version 1 (XNFS): the status monitor, for machines that were started anew.
//!
//! NOTIFY is what matters: a client that was started anew has lost its programs, so their locks
//! go. Monitoring on behalf of others (MON) is refused: the node's own list is kept by `hosts`, and
//! a machine's own NFS client has its own `statd`.
//!
//! Invariants: whoever sends a NOTIFY can free the locks of its own address only.

use super::LockService;
use crate::request::Session;
use onc_rpc::{Call, Replier, ReplyError, XdrError};

/// The program's number.
pub(crate) const PROGRAM: u32 = 100_024;
/// Its only version.
pub(crate) const VERSION: u32 = 1;
/// NOTIFY.
pub(crate) const NOTIFY: u32 = 6;

/// Longest name (`SM_MAXSTRLEN`).
const NAME_BYTES_MAX: usize = 1024;
/// `STAT_FAIL`.
const STAT_FAIL: u32 = 1;

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
        1 | 2 => {
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
            let count = service.hosts.started_anew(session.client, name);
            let name = String::from_utf8_lossy(name);
            tracing::info!(client = %session.client, %name, state, count, "a client was restarted");
        }
        _ => {
            replier.fail(ReplyError::ProcedureUnavailable);
            return Ok(());
        }
    }
    replier.send(writer, None);
    Ok(())
}

//! Calls of NLM version 4 as bytes, each about a whole file, alone and without waiting.
//!
//! Fails: reading an answer, in words.

use onc_rpc::{AuthSys, CallHeader, Credential, Reader, Writer, record};

const PROGRAM: u32 = 100_021;
pub(super) const TEST: u32 = 1;
pub(super) const LOCK: u32 = 2;
pub(super) const CANCEL: u32 = 3;
pub(super) const UNLOCK: u32 = 4;
pub(super) const SHARE: u32 = 20;
pub(super) const UNSHARE: u32 = 21;
pub(super) const GRANTED: u32 = 0;
pub(super) const DENIED: u32 = 1;
pub(super) const DENIED_GRACE: u32 = 4;
/// Of a handle that leads nowhere, or that the server has not made.
pub(super) const STALE: u32 = 7;
/// What a server without its disks says.
pub(super) const FAILED: u32 = 9;

/// A call.
pub(super) struct LockCall<'a> {
    pub(super) xid: u32,
    pub(super) procedure: u32,
    /// The machine's name for itself.
    pub(super) machine: &'a str,
    /// The file's handle.
    pub(super) file: &'a [u8],
    pub(super) is_reclaim: bool,
}

impl LockCall<'_> {
    /// The call as it goes over the wire.
    pub(super) fn record(&self) -> Vec<u8> {
        let Self { xid, procedure, machine, file, is_reclaim } = *self;
        let mut writer = Writer::default();
        writer.u32(0);
        let credential = Credential::Sys(AuthSys::new(0, 0, &[]));
        CallHeader { xid, program: PROGRAM, version: 4, procedure, credential }.write(&mut writer);
        writer.opaque(&xid.to_be_bytes());
        if matches!(procedure, LOCK | CANCEL) {
            writer.bool(false); // it does not wait
        }
        if matches!(procedure, TEST | LOCK | CANCEL) {
            writer.bool(true); // exclusively
        }
        writer.opaque(machine.as_bytes());
        writer.opaque(file);
        writer.opaque(format!("1@{machine}").as_bytes());
        if matches!(procedure, SHARE | UNSHARE) {
            writer.u32(3); // nobody else may do anything
            writer.u32(3); // it reads and writes
            writer.bool(is_reclaim);
        } else {
            writer.u32(1);
            writer.u64(0);
            writer.u64(0);
        }
        if procedure == LOCK {
            writer.bool(is_reclaim);
            writer.u32(1);
        }
        writer.overwrite_u32(0, record::mark(writer.len() - 4));
        writer.into_bytes()
    }
}

/// The status in the results of call `xid`.
///
/// # Errors
/// What is wrong with them, in words.
pub(super) fn status_of(results: &[u8], xid: u32) -> Result<u32, String> {
    let mut reader = Reader::new(results);
    let cookie = reader.opaque(64).map(<[u8]>::to_vec);
    let (Ok(cookie), Ok(status)) = (cookie, reader.u32()) else {
        return Err(format!("{results:02x?} is no result"));
    };
    if cookie != xid.to_be_bytes() {
        return Err(format!("the cookie {cookie:02x?} in the answer to {xid}"));
    }
    Ok(status)
}

//! NLM version 4's types as XDR.
//!
//! Fails: reading, by [`XdrError`]; what can be read and makes no sense is judged by `procedures`.

use locks::{Held, Mode, Owner};
use onc_rpc::{Reader, Writer, XdrError};

/// Longest cookie, handle and owner (`MAXNETOBJ_SZ`).
pub(crate) const OBJECT_BYTES_MAX: usize = 1024;
/// Longest name of a machine (`LM_MAXSTRLEN`).
pub(crate) const NAME_BYTES_MAX: usize = 1024;

/// `nlm4_stats`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Status {
    Granted = 0,
    Denied = 1,
    DeniedNoLocks = 2,
    Blocked = 3,
    DeniedGracePeriod = 4,
    Deadlock = 5,
    ReadOnly = 6,
    Stale = 7,
    TooFar = 8,
    Failed = 9,
}

/// `nlm4_lock`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock<'a> {
    pub(crate) caller: &'a [u8],
    pub(crate) file: &'a [u8],
    pub(crate) owner: &'a [u8],
    pub(crate) process: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl<'a> Lock<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            caller: reader.opaque(NAME_BYTES_MAX)?,
            file: reader.opaque(OBJECT_BYTES_MAX)?,
            owner: reader.opaque(OBJECT_BYTES_MAX)?,
            process: reader.u32()?,
            offset: reader.u64()?,
            length: reader.u64()?,
        })
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        [self.caller, self.file, self.owner].iter().for_each(|bytes| writer.opaque(bytes));
        writer.u32(self.process);
        writer.u64(self.offset);
        writer.u64(self.length);
    }
}

/// The name of an owner within its machine: the process and what the client calls it.
pub(crate) fn owner_name(process: u32, owner: &[u8]) -> Vec<u8> {
    [&process.to_be_bytes()[..], owner].concat()
}

/// What a client called an owner; one that came in another way has only our name for it.
pub(crate) fn object_of(owner: &Owner) -> &[u8] {
    owner.name.get(size_of::<u32>()..).unwrap_or_default()
}

pub(crate) const fn mode(exclusive: bool) -> Mode {
    if exclusive { Mode::Exclusive } else { Mode::Shared }
}

/// `nlm4_holder`.
pub(crate) fn holder(writer: &mut Writer, held: &Held) {
    writer.bool(held.mode == Mode::Exclusive);
    writer.u32(held.process);
    writer.opaque(object_of(&held.owner));
    writer.u64(held.range.start());
    writer.u64(held.range.length());
}

//! Call and reply headers (RFC 5531 sections 9 and 10, appendix A).
//!
//! Invariants: a header's variable parts are bounded by [`AUTH_BYTES_MAX`], [`MACHINE_NAME_MAX`]
//! and [`GROUPS_MAX`]; what a reply says is one of [`ReplyError`] or success.
//!
//! Fails: [`HeaderError`] tells what can still be answered ([`HeaderError::Reply`]) from what
//! cannot, where the connection is to be closed.

use crate::xdr::{Reader, Writer, XdrError};

/// The version of the RPC protocol.
pub const RPC_VERSION: u32 = 2;
/// Longest body of a credential or verifier (RFC 5531 section 8.2).
pub const AUTH_BYTES_MAX: usize = 400;
/// Longest machine name in an AUTH_SYS credential (RFC 5531 appendix A).
pub const MACHINE_NAME_MAX: usize = 255;
/// Most supplementary groups in an AUTH_SYS credential (RFC 5531 appendix A).
pub const GROUPS_MAX: usize = 16;

/// `AUTH_NONE`.
pub const AUTH_NONE: u32 = 0;
/// `AUTH_SYS`.
pub const AUTH_SYS: u32 = 1;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;

/// Why a credential is refused (RFC 5531 `auth_stat`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum AuthStatus {
    /// The credential is malformed, or of a flavor that the server does not know.
    BadCredential = 1,
    /// The credential is known, but too weak for the program.
    TooWeak = 5,
}

/// A reply other than success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyError {
    /// The RPC version is not 2.
    RpcMismatch,
    /// The credential is refused.
    Authentication(AuthStatus),
    /// The server has no such program.
    ProgramUnavailable,
    /// The server has other versions of the program.
    ProgramMismatch {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The program has no such procedure.
    ProcedureUnavailable,
    /// The arguments are not what the procedure takes.
    GarbageArguments,
    /// The server failed in a way that the protocol has no word for.
    SystemError,
}

/// An `AUTH_SYS` credential's identity. The stamp and machine name are checked and dropped: any
/// client can claim any, so nothing may rest on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuthSys {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    groups: [u32; GROUPS_MAX],
    group_count: usize,
}

impl AuthSys {
    /// An identity.
    ///
    /// # Panics
    /// With more than [`GROUPS_MAX`] groups.
    #[must_use]
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Self {
        let mut array = [0; GROUPS_MAX];
        array[..groups.len()].copy_from_slice(groups);
        Self { uid, gid, groups: array, group_count: groups.len() }
    }

    /// Supplementary groups.
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        self.groups.get(..self.group_count).unwrap_or_default()
    }

    fn parse(body: &[u8]) -> Result<Self, XdrError> {
        let mut reader = Reader::new(body);
        reader.u32()?; // the stamp
        reader.opaque(MACHINE_NAME_MAX)?;
        let (uid, gid) = (reader.u32()?, reader.u32()?);
        let count = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        if count > GROUPS_MAX {
            return Err(XdrError::TooLong { length: count, length_max: GROUPS_MAX });
        }
        let mut groups = [0; GROUPS_MAX];
        for group in groups.iter_mut().take(count) {
            *group = reader.u32()?;
        }
        Ok(Self { uid, gid, groups, group_count: count })
    }

    /// Appends the credential as a client sends it.
    pub fn write(&self, writer: &mut Writer) {
        let mut body = Writer::with_capacity(AUTH_BYTES_MAX);
        body.u32(0);
        body.opaque(b"");
        body.u32(self.uid);
        body.u32(self.gid);
        body.u32(u32::try_from(self.group_count).unwrap_or_default());
        self.groups().iter().for_each(|group| body.u32(*group));
        writer.u32(AUTH_SYS);
        writer.opaque(body.bytes());
    }
}

/// Who a call says it is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credential {
    /// Nobody.
    None,
    /// A Unix identity, unproven.
    Sys(AuthSys),
}

/// The header of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallHeader {
    /// The client's number for the call.
    pub xid: u32,
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// Who calls.
    pub credential: Credential,
}

/// Why a header is not that of a call to be dispatched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// The call gets this answer.
    Reply {
        /// The client's number for the call.
        xid: u32,
        /// The answer.
        error: ReplyError,
    },
    /// No call at all: the connection is to be closed.
    NotACall,
}

impl From<XdrError> for HeaderError {
    fn from(_: XdrError) -> Self {
        Self::NotACall
    }
}

impl CallHeader {
    /// Reads a header; what `reader` has left then are the arguments.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, HeaderError> {
        let xid = reader.u32()?;
        if reader.u32()? != CALL {
            return Err(HeaderError::NotACall);
        }
        if reader.u32()? != RPC_VERSION {
            return Err(HeaderError::Reply { xid, error: ReplyError::RpcMismatch });
        }
        let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let refused = ReplyError::Authentication(AuthStatus::BadCredential);
        let refused = HeaderError::Reply { xid, error: refused };
        let flavor = reader.u32()?;
        let body = reader.opaque(AUTH_BYTES_MAX).map_err(|_| refused)?;
        let credential = match flavor {
            AUTH_NONE => Credential::None,
            AUTH_SYS => Credential::Sys(AuthSys::parse(body).map_err(|_| refused)?),
            _ => return Err(refused),
        };
        reader.u32()?; // the verifier's flavor: AUTH_NONE has no verifier worth reading
        reader.opaque(AUTH_BYTES_MAX).map_err(|_| refused)?;
        Ok(Self { xid, program, version, procedure, credential })
    }

    /// Appends the header as a client sends it.
    pub fn write(&self, writer: &mut Writer) {
        for word in [self.xid, CALL, RPC_VERSION, self.program, self.version, self.procedure] {
            writer.u32(word);
        }
        match &self.credential {
            Credential::None => writer.fixed(&[0; 8]),
            Credential::Sys(identity) => identity.write(writer),
        }
        writer.fixed(&[0; 8]); // AUTH_NONE verifier
    }
}

/// Appends the header of a reply that succeeded; the results follow it.
pub fn write_success(writer: &mut Writer, xid: u32) {
    // One append instead of six: this is on the path of every call.
    let mut bytes = [0; 24];
    let words = [xid, REPLY, ACCEPTED, AUTH_NONE, 0, 0];
    for (target, word) in bytes.chunks_exact_mut(4).zip(words) {
        target.copy_from_slice(&word.to_be_bytes());
    }
    writer.fixed(&bytes);
}

/// Appends the whole of a reply that failed.
pub fn write_error(writer: &mut Writer, xid: u32, error: ReplyError) {
    writer.u32(xid);
    writer.u32(REPLY);
    let words: &[u32] = match error {
        ReplyError::RpcMismatch => &[DENIED, 0, RPC_VERSION, RPC_VERSION],
        ReplyError::Authentication(status) => &[DENIED, 1, status as u32],
        ReplyError::ProgramUnavailable => &[ACCEPTED, AUTH_NONE, 0, 1],
        ReplyError::ProgramMismatch { low, high } => &[ACCEPTED, AUTH_NONE, 0, 2, low, high],
        ReplyError::ProcedureUnavailable => &[ACCEPTED, AUTH_NONE, 0, 3],
        ReplyError::GarbageArguments => &[ACCEPTED, AUTH_NONE, 0, 4],
        ReplyError::SystemError => &[ACCEPTED, AUTH_NONE, 0, 5],
    };
    words.iter().for_each(|word| writer.u32(*word));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(credential: Credential) -> CallHeader {
        CallHeader { xid: 7, program: 100_003, version: 3, procedure: 6, credential }
    }

    fn words(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_be_bytes()).collect()
    }

    #[test]
    fn headers_survive_the_wire() {
        let groups: Vec<u32> = (0..16).collect();
        for credential in [Credential::None, Credential::Sys(AuthSys::new(1, 2, &groups))] {
            let mut writer = Writer::default();
            call(credential).write(&mut writer);
            writer.u32(99);
            let mut reader = Reader::new(writer.bytes());
            assert_eq!(CallHeader::read(&mut reader), Ok(call(credential)));
            assert_eq!(reader.u32(), Ok(99));
        }
    }

    #[test]
    fn wrong_headers_get_the_answer_that_says_why() {
        let read = |values: &[u32]| CallHeader::read(&mut Reader::new(&words(values)));
        let reply = |error| Err(HeaderError::Reply { xid: 7, error });
        assert_eq!(read(&[7]), Err(HeaderError::NotACall));
        assert_eq!(read(&[7, 1, 2, 3]), Err(HeaderError::NotACall));
        assert_eq!(read(&[7, 0, 3]), reply(ReplyError::RpcMismatch));
        let refused = reply(ReplyError::Authentication(AuthStatus::BadCredential));
        assert_eq!(read(&[7, 0, 2, 1, 1, 1, 6, 0, 0, 0]), refused, "RPCSEC_GSS");
        assert_eq!(read(&[7, 0, 2, 1, 1, 1, 0, 401]), refused, "a body above the limit");
        // stamp, empty name, uid, gid, 17 groups
        let mut many = vec![7, 0, 2, 1, 1, 1, 1, 88, 0, 0, 0, 0, 17];
        many.extend([0; 20]);
        assert_eq!(read(&many), refused, "17 groups");
    }

    #[test]
    fn replies_are_as_the_rfc_writes_them() {
        let reply = |error| {
            let mut writer = Writer::default();
            write_error(&mut writer, 7, error);
            writer.into_bytes()
        };
        assert_eq!(reply(ReplyError::RpcMismatch), words(&[7, 1, 1, 0, 2, 2]));
        let refused = ReplyError::Authentication(AuthStatus::TooWeak);
        assert_eq!(reply(refused), words(&[7, 1, 1, 1, 5]));
        assert_eq!(reply(ReplyError::ProgramUnavailable), words(&[7, 1, 0, 0, 0, 1]));
        let mismatch = ReplyError::ProgramMismatch { low: 3, high: 4 };
        assert_eq!(reply(mismatch), words(&[7, 1, 0, 0, 0, 2, 3, 4]));
        assert_eq!(reply(ReplyError::ProcedureUnavailable), words(&[7, 1, 0, 0, 0, 3]));
        assert_eq!(reply(ReplyError::GarbageArguments), words(&[7, 1, 0, 0, 0, 4]));
        assert_eq!(reply(ReplyError::SystemError), words(&[7, 1, 0, 0, 0, 5]));
        let mut writer = Writer::default();
        write_success(&mut writer, 7);
        assert_eq!(writer.into_bytes(), words(&[7, 1, 0, 0, 0, 0]));
    }

    proptest! {
        #[test]
        fn arbitrary_headers_never_panic(
            head in prop::collection::vec(0..8_u32, 0..12),
            tail in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = words(&head);
            bytes.extend(&tail);
            let _ = CallHeader::read(&mut Reader::new(&bytes));
            let _ = CallHeader::read(&mut Reader::new(&tail));
        }
    }
}

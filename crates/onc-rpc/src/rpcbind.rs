//! rpcbind (RFC 1833): where a program is to be found on another machine, and telling our own
//! machine's where ours are.
//!
//! Ports of IPv4 machines are asked for with version 2 (the portmapper), which all know; those of
//! IPv6 machines with version 4. Registering goes over rpcbind's Unix socket, by which it sees that
//! root asks.
//!
//! Fails: [`CallError`].

use crate::client::{CallError, Procedure, call_datagram, call_local, call_stream};
use crate::xdr::{Reader, Writer};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// rpcbind's program.
pub const PROGRAM: u32 = 100_000;
/// rpcbind's port.
pub const PORT: u16 = 111;
/// Where rpcbind listens on its own machine, the usual place first.
pub const SOCKETS: [&str; 2] = ["/run/rpcbind.sock", "/var/run/rpcbind.sock"];

/// `PMAPPROC_GETPORT` of the portmapper: the port of a program.
const GET_PORT: Procedure = Procedure { program: PROGRAM, version: 2, procedure: 3 };
/// `RPCBPROC_GETADDR`: the universal address of a program.
const GET_ADDRESS: Procedure = procedure(3);
const SET: Procedure = procedure(1);
const UNSET: Procedure = procedure(2);
/// Longest universal address: that of an IPv6 address with its port fits well.
const UNIVERSAL_BYTES_MAX: usize = 256;

/// A procedure of version 4, in which IPv6 has a place.
const fn procedure(procedure: u32) -> Procedure {
    Procedure { program: PROGRAM, version: 4, procedure }
}

/// What a program is called over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// The protocol's number, in IP as in version 2.
    const fn protocol(self) -> u32 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// The name of the transport over an address's family (`netid`).
    #[must_use]
    pub const fn netid(self, address: IpAddr) -> &'static str {
        match (self, address) {
            (Self::Tcp, IpAddr::V4(_)) => "tcp",
            (Self::Tcp, IpAddr::V6(_)) => "tcp6",
            (Self::Udp, IpAddr::V4(_)) => "udp",
            (Self::Udp, IpAddr::V6(_)) => "udp6",
        }
    }
}

/// A universal address: address and port, as text with the port's two bytes behind.
struct Universal(SocketAddr);

impl fmt::Display for Universal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.0.port();
        write!(formatter, "{}.{}.{}", self.0.ip(), port >> 8, port & 0xff)
    }
}

/// The port in a universal address.
fn universal_port(text: &str) -> Option<u16> {
    let mut parts = text.rsplit('.');
    let mut byte = || parts.next()?.parse::<u8>().ok();
    let (low, high) = (byte()?, byte()?);
    Some(u16::from(high) << 8 | u16::from(low))
}

/// Calls over UDP, and over TCP if nobody answers there.
fn call(address: SocketAddr, procedure: Procedure, arguments: &[u8]) -> Result<Vec<u8>, CallError> {
    call_datagram(address, procedure, arguments).or_else(|error| match error {
        CallError::Io(_) => call_stream(address, procedure, arguments),
        other => Err(other),
    })
}

/// Where `program` is to be found on the machine whose rpcbind is at `rpcbind`, by custom at
/// [`PORT`].
///
/// # Errors
/// [`CallError::NotRegistered`] if it is not; others if rpcbind does not answer.
pub fn find(
    rpcbind: SocketAddr,
    program: u32,
    version: u32,
    transport: Transport,
) -> Result<SocketAddr, CallError> {
    find_by(call, rpcbind, (program, version), transport)
}

/// The same of a program over TCP, and rpcbind is asked over TCP, too: who answers is at that
/// address.
///
/// # Errors
/// As of [`find`].
pub fn find_stream(
    rpcbind: SocketAddr,
    program: u32,
    version: u32,
) -> Result<SocketAddr, CallError> {
    find_by(call_stream, rpcbind, (program, version), Transport::Tcp)
}

/// How rpcbind is asked.
type Ask = fn(SocketAddr, Procedure, &[u8]) -> Result<Vec<u8>, CallError>;

fn find_by(
    call: Ask,
    rpcbind: SocketAddr,
    (program, version): (u32, u32),
    transport: Transport,
) -> Result<SocketAddr, CallError> {
    let host = rpcbind.ip();
    let mut arguments = Writer::default();
    arguments.u32(program);
    arguments.u32(version);
    let port = if host.is_ipv4() {
        arguments.u32(transport.protocol());
        arguments.u32(0);
        let results = call(rpcbind, GET_PORT, arguments.bytes())?;
        u16::try_from(Reader::new(&results).u32()?).unwrap_or(0)
    } else {
        [transport.netid(host), "", ""].iter().for_each(|text| arguments.opaque(text.as_bytes()));
        let results = call(rpcbind, GET_ADDRESS, arguments.bytes())?;
        let text = Reader::new(&results).opaque(UNIVERSAL_BYTES_MAX)?.to_vec();
        std::str::from_utf8(&text).ok().and_then(universal_port).unwrap_or(0)
    };
    if port == 0 { Err(CallError::NotRegistered { program }) } else { Ok((host, port).into()) }
}

/// Tells this machine's rpcbind where a program is; false if another has registered it.
///
/// # Errors
/// [`CallError`].
pub fn set(
    socket: &Path,
    program: u32,
    version: u32,
    transport: Transport,
    address: SocketAddr,
) -> Result<bool, CallError> {
    change(socket, SET, program, version, transport.netid(address.ip()), &Universal(address))
}

/// Takes a program of one transport (`netid`), or of all if that is empty, from this machine's
/// rpcbind; false if it was not there.
///
/// # Errors
/// [`CallError`].
pub fn unset(socket: &Path, program: u32, version: u32, netid: &str) -> Result<bool, CallError> {
    change(socket, UNSET, program, version, netid, &"")
}

fn change(
    socket: &Path,
    procedure: Procedure,
    program: u32,
    version: u32,
    netid: &str,
    address: &dyn fmt::Display,
) -> Result<bool, CallError> {
    let mut arguments = Writer::default();
    arguments.u32(program);
    arguments.u32(version);
    arguments.opaque(netid.as_bytes());
    arguments.opaque(address.to_string().as_bytes());
    arguments.opaque(b"superuser");
    let results = call_local(socket, procedure, arguments.bytes())?;
    Ok(Reader::new(&results).bool()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_addresses_end_with_the_port() {
        for (address, text) in [
            ("10.0.0.1:2049", "10.0.0.1.8.1"),
            ("[::]:2049", "::.8.1"),
            ("[fd00::5]:80", "fd00::5.0.80"),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(Universal(address).to_string(), text);
            assert_eq!(universal_port(text), Some(address.port()));
        }
        for wrong in ["", "1", "10.0.0.1.300.1", ".."] {
            assert_eq!(universal_port(wrong), None, "{wrong}");
        }
    }
}

//! Who is where, and what is attacked.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Who has a rule, and attacks.
pub(crate) const KNOWN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Who has none.
pub(crate) const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
/// Who has a rule, and looks.
pub(crate) const WITNESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 4));
/// The honest client.
pub(crate) const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The server as attacks see it.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// The root of the volume.
    pub(crate) root: Vec<u8>,
    /// A directory with thousands of long names.
    pub(crate) directory: Vec<u8>,
    /// A file of a megabyte.
    pub(crate) file: Vec<u8>,
}

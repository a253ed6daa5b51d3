//! A machine that locks: an address, and the name that it gives itself.
//!
//! Two that share an address (behind a router, or guests of one machine) are two.
//!
//! Fails: what is no name makes no machine.

use std::net::IpAddr;
use std::sync::Arc;

/// Longest name that is taken.
const NAME_BYTES_MAX: usize = 255;

/// See the module.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Host {
    pub(crate) address: IpAddr,
    pub(crate) name: Arc<str>,
}

impl Host {
    /// The machine at `address` that calls itself `name`, unless that is no name.
    pub(crate) fn new(address: IpAddr, name: &[u8]) -> Option<Self> {
        let plain = |byte: &u8| byte.is_ascii_graphic();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.iter().all(plain) {
            return None;
        }
        Some(Self { address, name: std::str::from_utf8(name).ok()?.into() })
    }

    /// Before all machines of an address, in order.
    pub(super) fn first_of(address: IpAddr) -> Self {
        Self { address, name: "".into() }
    }
}

/// Whether two names of a machine mean the same: without a difference of case, and one of them may
/// lack the domain.
pub(super) fn same_name(one: &[u8], other: &[u8]) -> bool {
    let host = |name: &'_ [u8]| name.split(|byte| *byte == b'.').next().unwrap_or(name).to_vec();
    let short = !one.contains(&b'.') || !other.contains(&b'.');
    one.eq_ignore_ascii_case(other) || (short && host(one).eq_ignore_ascii_case(&host(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_lack_their_domain() {
        assert!(same_name(b"Client", b"client"));
        assert!(same_name(b"client", b"client.example.org"));
        assert!(!same_name(b"client.example.com", b"client.example.org"));
        assert!(!same_name(b"client", b"client2"));
        assert!(Host::new(IpAddr::from([10, 0, 0, 1]), b"two words").is_none());
        assert!(Host::new(IpAddr::from([10, 0, 0, 1]), b"").is_none());
    }
}

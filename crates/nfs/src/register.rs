//! Registering our programs at this machine's rpcbind, where Linux clients look for NLM and NSM.
//!
//! Invariants: what another server has registered and serves is left alone, and is an error; what
//! one has left behind that is no more (we after a crash, say) is replaced. What was registered is
//! taken back when this is dropped.
//!
//! Fails: [`RegisterError`], naming what to do.

use crate::{acl, mount, nlm, procedures};
use onc_rpc::CallError;
use onc_rpc::client::{Procedure, call_datagram, call_stream};
use onc_rpc::rpcbind::{self, Transport};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Programs with their versions, names, and whether they are served over UDP too.
const PROGRAMS: [(u32, u32, &str, bool); 5] = [
    (procedures::PROGRAM, procedures::VERSION, "NFS", false),
    (acl::PROGRAM, acl::VERSION, "NFSACL", false),
    (mount::PROGRAM, mount::VERSION, "MOUNT", true),
    (nlm::procedures::PROGRAM, nlm::procedures::VERSION, "NLM", false),
    (nlm::nsm::PROGRAM, nlm::nsm::VERSION, "NSM", true),
];

/// Why the programs cannot be registered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Nobody answers.
    #[error(
        "rpcbind does not answer on {}: {source}; start it (systemctl start rpcbind), or leave out \
         rpcbind = true and have clients mount with nolock", path.display()
    )]
    Absent {
        /// Its socket.
        path: PathBuf,
        /// Why not.
        source: CallError,
    },
    /// Somebody else serves the program.
    #[error(
        "another server of this machine has registered {name} ({program} version {version}, \
         {netid}); stop it (nfs-server, rpc-statd, or an NFS mount with locks), see rpcinfo -p"
    )]
    Taken {
        /// The program's name.
        name: &'static str,
        /// The program.
        program: u32,
        /// Its version.
        version: u32,
        /// The transport.
        netid: &'static str,
    },
}

/// What is registered; taken back when dropped.
pub(crate) struct Registration {
    socket: PathBuf,
    held: Vec<(u32, u32, &'static str)>,
}

impl Registration {
    /// Registers what is served at `address` over TCP and, if `datagrams`, over UDP.
    pub(crate) fn start(address: SocketAddr, datagrams: bool) -> Result<Self, RegisterError> {
        let known = rpcbind::SOCKETS.iter().map(PathBuf::from);
        let socket = known.clone().find(|path| path.exists()).or_else(|| known.clone().next());
        let Some(socket) = socket else { unreachable!("there are places to look at") };
        let mut registration = Self { socket, held: Vec::new() };
        for (program, version, name, both) in PROGRAMS {
            let transports = if both && datagrams {
                &[Transport::Tcp, Transport::Udp][..]
            } else {
                &[Transport::Tcp]
            };
            for transport in transports {
                for address in families(address) {
                    registration.set((program, version, name), *transport, address)?;
                }
            }
        }
        registration.take_back_datagrams(address);
        tracing::info!(socket = %registration.socket.display(), "registered at rpcbind");
        Ok(registration)
    }

    /// Builds before this one served NLM over UDP. If one of them was killed, rpcbind still sends
    /// clients to our port, where nobody answers them.
    fn take_back_datagrams(&self, address: SocketAddr) {
        let (program, version) = (nlm::procedures::PROGRAM, nlm::procedures::VERSION);
        for address in families(address) {
            let found = rpcbind::find(local_rpcbind(address), program, version, Transport::Udp);
            if found.is_ok_and(|found| found.port() == address.port()) {
                let netid = Transport::Udp.netid(address.ip());
                if let Err(error) = unset(&self.socket, program, version, netid) {
                    tracing::warn!(program, %error, "cannot unregister the program from rpcbind");
                }
            }
        }
    }

    fn set(
        &mut self,
        (program, version, name): (u32, u32, &'static str),
        transport: Transport,
        address: SocketAddr,
    ) -> Result<(), RegisterError> {
        let netid = transport.netid(address.ip());
        let absent = |source| RegisterError::Absent { path: self.socket.clone(), source };
        let set = || rpcbind::set(&self.socket, program, version, transport, address);
        let mut done = set().map_err(absent)?;
        if !done && !is_served(program, version, transport, address) {
            rpcbind::unset(&self.socket, program, version, netid).map_err(absent)?;
            done = set().map_err(absent)?;
        }
        if !done {
            return Err(RegisterError::Taken { name, program, version, netid });
        }
        self.held.push((program, version, netid));
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        for (program, version, netid) in &self.held {
            if let Err(error) = unset(&self.socket, *program, *version, netid) {
                tracing::warn!(program, %error, "cannot unregister the program from rpcbind");
                return;
            }
        }
    }
}

fn unset(socket: &Path, program: u32, version: u32, netid: &str) -> Result<(), CallError> {
    rpcbind::unset(socket, program, version, netid).map(|_| ())
}

/// The addresses to register: one that stands for all of IPv6 serves IPv4, too.
fn families(address: SocketAddr) -> Vec<SocketAddr> {
    let all = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let v4 = all.then(|| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()));
    std::iter::once(address).chain(v4).collect()
}

/// This machine's rpcbind, in the family of an address.
fn local_rpcbind(ours: SocketAddr) -> SocketAddr {
    let local: IpAddr = match ours {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    (local, rpcbind::PORT).into()
}

/// Whether another server answers where the program is registered now.
fn is_served(program: u32, version: u32, transport: Transport, ours: SocketAddr) -> bool {
    let Ok(found) = rpcbind::find(local_rpcbind(ours), program, version, transport) else {
        return false;
    };
    let null = Procedure { program, version, procedure: 0 };
    let answer = match transport {
        // We have this port now, so whoever registered it has gone.
        _ if found.port() == ours.port() => return false,
        Transport::Tcp => call_stream(found, null, &[]),
        Transport::Udp => call_datagram(found, null, &[]),
    };
    !matches!(answer, Err(CallError::Io(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_both_families_is_registered_twice() {
        let text = |address: &str| -> Vec<String> {
            let address: SocketAddr = address.parse().unwrap();
            families(address).iter().map(ToString::to_string).collect()
        };
        assert_eq!(text("[::]:2049"), ["[::]:2049", "0.0.0.0:2049"]);
        assert_eq!(text("0.0.0.0:2049"), ["0.0.0.0:2049"]);
        assert_eq!(text("[::1]:2049"), ["[::1]:2049"]);
    }
}

//! Tells the service manager how the server is (sd_notify(3)): a datagram to `NOTIFY_SOCKET`.
//!
//! Fails: never in a way that matters; without a service manager nothing is sent.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state`, such as `READY=1`, to the service manager, if there is one.
pub(crate) fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else {
        return;
    };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, "cannot notify the service manager of the state {state}");
    }
}

fn send(socket: &OsString, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_arrives_at_paths_and_abstract_names() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let abstract_name = format!("stroop-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let named = UnixDatagram::bind(&path).unwrap();
        let unnamed = UnixDatagram::bind_addr(&address).unwrap();
        send(&path.into_os_string(), "READY=1").unwrap();
        send(&format!("@{abstract_name}").into(), "STOPPING=1").unwrap();
        let mut bytes = [0; 32];
        let length = named.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"READY=1");
        let length = unnamed.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"STOPPING=1");
    }
}

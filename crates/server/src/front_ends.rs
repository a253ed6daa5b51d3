//! The front ends of a node: the NFS server, the FUSE mounts and the export rules in memory.
//!
//! They see the engine as a `FileService` only, so this works over any.
//!
//! Invariants: front ends start after the engine and stop before it, so that the last consistency
//! point holds all that they answered.
//!
//! Fails: by `AdminError`, naming address, volume or mountpoint.

mod exports;
mod mounts;

pub(crate) use exports::ExportTable;
pub(crate) use mounts::Mounts;

use admin_api::{AdminError, Code, Listener};
use file_service::FileService;
use platform::Clock;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Serves NFS on `address`. `config` is named in the error.
///
/// # Errors
/// `Conflict` if the port is in use, `Denied` if it takes privileges.
pub(crate) fn start_nfs(
    address: SocketAddr,
    config: &Path,
    service: Arc<dyn FileService>,
    exports: Arc<ExportTable>,
    clock: Arc<dyn Clock>,
) -> Result<nfs::Server, AdminError> {
    let configuration = nfs::Configuration { address, clock };
    nfs::Server::start(&configuration, service, exports).map_err(|error| {
        let code = match &error {
            nfs::RpcError::Listen { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => Code::Conflict,
                io::ErrorKind::PermissionDenied => Code::Denied,
                _ => Code::Failed,
            },
            _ => Code::Failed,
        };
        AdminError::new(code, "cannot serve NFS on", address.to_string())
            .because(error.to_string())
            .try_next(format!("another [listen] nfs in {}", config.display()))
    })
}

/// How a running server is listed by `status`.
pub(crate) fn listener(server: &nfs::Server) -> Listener {
    Listener { protocol: "nfs".to_owned(), address: server.local_address().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use file_service::memory::MemoryFileSystem;
    use platform::linux::SystemClock;

    #[test]
    fn a_port_in_use_is_named() {
        let service: Arc<dyn FileService> = Arc::new(MemoryFileSystem::new(Arc::new(SystemClock)));
        let start = |address: SocketAddr| {
            let exports = Arc::new(ExportTable::default());
            let clock = Arc::new(SystemClock);
            start_nfs(address, Path::new("stroop.toml"), Arc::clone(&service), exports, clock)
        };
        let first = start(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let taken = first.local_address();
        assert_eq!(listener(&first).address, taken.to_string());
        let error = start(taken).err().unwrap();
        assert_eq!(error.code, Code::Conflict);
        assert_eq!(error.object, taken.to_string());
        assert_eq!(error.next.as_deref(), Some("another [listen] nfs in stroop.toml"));
    }
}

//! The NFS server: both programs behind one listener.
//!
//! Fails: [`RpcError`] from [`Server::start`], naming the address.

use crate::export::ExportPolicy;
use crate::mount::{self, Mounts};
use crate::procedures;
use crate::reply_cache::ReplyCache;
use crate::request::{Context, Session};
use file_service::FileService;
use onc_rpc::{Call, Replier, ReplyError, RpcError, Service};
use platform::Clock;
use std::net::SocketAddr;
use std::sync::Arc;

/// Bytes of a WRITE call beside its data: the RPC header with the largest credential and verifier,
/// handle, offset, count, stability, length.
const CALL_OVERHEAD_BYTES: usize = 4096;
/// Largest call though the backend transfers less at once: a client that does not ask FSINFO may
/// write this much, and gets a short write.
const RECORD_BYTES_MIN: usize = 1 << 20;

/// What a server listens on, and what it has of the world.
#[derive(Clone)]
pub struct Configuration {
    /// The address; port 0 lets the system choose. `[::]:2049` serves IPv4 and IPv6.
    pub address: SocketAddr,
    /// Time, for how long answers are kept.
    pub clock: Arc<dyn Clock>,
}

/// Both programs, as a service of [`onc_rpc`].
pub struct Programs {
    context: Arc<Context>,
    mounts: Arc<Mounts>,
    record_bytes_max: usize,
}

impl Programs {
    /// The programs over `service`, for whom `policy` lets in; answers are kept by `clock`.
    #[must_use]
    pub fn new(
        service: Arc<dyn FileService>,
        policy: Arc<dyn ExportPolicy>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let limits = service.limits();
        let transfer = (limits.transfer_bytes_max as usize).max(RECORD_BYTES_MIN);
        let replies = ReplyCache::new();
        let context = Arc::new(Context { service, policy, limits, replies, clock });
        let record_bytes_max = transfer + CALL_OVERHEAD_BYTES;
        Self { context, mounts: Arc::default(), record_bytes_max }
    }

    /// The largest call that makes sense.
    #[must_use]
    pub const fn record_bytes_max(&self) -> usize {
        self.record_bytes_max
    }
}

impl Service for Programs {
    type Session = Session;

    fn open(&self, peer: SocketAddr) -> Session {
        Session::new(peer)
    }

    fn dispatch(&self, session: &mut Session, call: Call<'_>, replier: Replier) {
        match (call.header.program, call.header.version) {
            (procedures::PROGRAM, procedures::VERSION) => {
                procedures::dispatch(&self.context, session, call, replier);
            }
            (mount::PROGRAM, mount::VERSION) => {
                mount::dispatch(&self.context, &self.mounts, session, call, replier);
            }
            (procedures::PROGRAM | mount::PROGRAM, _) => {
                replier.fail(ReplyError::ProgramMismatch { low: 3, high: 3 });
            }
            _ => replier.fail(ReplyError::ProgramUnavailable),
        }
    }
}

/// A running NFS server; stops when dropped.
pub struct Server {
    rpc: onc_rpc::Server<Programs>,
}

impl Server {
    /// Listens and serves `service` to whom `policy` lets in.
    ///
    /// # Errors
    /// [`RpcError`].
    pub fn start(
        configuration: &Configuration,
        service: Arc<dyn FileService>,
        policy: Arc<dyn ExportPolicy>,
    ) -> Result<Self, RpcError> {
        let programs = Programs::new(service, policy, Arc::clone(&configuration.clock));
        let rpc = onc_rpc::Configuration {
            address: configuration.address,
            record_bytes_max: programs.record_bytes_max(),
        };
        Ok(Self { rpc: onc_rpc::Server::start(&rpc, programs)? })
    }

    /// The address that is listened on, with the port that the system chose.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.rpc.local_address()
    }

    /// Closes the listener and all connections, and waits for the server's threads. Calls that the
    /// backend has not answered yet are answered into the void; their clients ask again.
    pub fn stop(&mut self) {
        self.rpc.stop();
    }
}

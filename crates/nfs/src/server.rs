//! The NFS server: all programs behind one port.
//!
//! Over TCP they are all there, NLM and NSM if locks are served. If they are, MOUNT and NSM are
//! there over UDP too, on the port of the same number, because that is how their clients call them
//! by custom.
//!
//! Fails: [`StartError`] from [`Server::start`], naming the address.

use crate::acl;
use crate::connections::Connections;
use crate::export::ExportPolicy;
use crate::mount::{self, Mounts};
use crate::nlm::callbacks::THREADS;
use crate::nlm::{self, LedgerTrouble, LockService, Locking};
use crate::procedures;
use crate::refusals::Refusals;
use crate::register::{RegisterError, Registration};
use crate::reply_cache::{ReplyCache, ReplyLimits};
use crate::request::{Context, Session};
use file_service::FileService;
use onc_rpc::{
    Call, CallHeader, DatagramServer, REPLY_BYTES_USUAL, Reader, Replier, ReplyError, RpcError,
    Service, Standing,
};
use platform::Clock;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use thiserror::Error;

/// Bytes of a WRITE call beside its data: the RPC header with the largest credential and verifier,
/// handle, offset, count, stability, length.
const CALL_OVERHEAD_BYTES: usize = 4096;
/// Largest call though the backend transfers less at once: a client that does not ask FSINFO may
/// write this much, and gets a short write.
const RECORD_BYTES_MIN: usize = 1 << 20;

/// What the answers to NLM and NSM take: a cookie and an owner of a kilobyte each.
const OTHER_REPLY_BYTES_MAX: usize = 4 << 10;

/// What a server listens on, and what it has of the world.
#[derive(Clone)]
pub struct Configuration {
    /// The address; port 0 lets the system choose. `[::]:2049` serves IPv4 and IPv6.
    pub address: SocketAddr,
    /// Time, for how long answers are kept and connections may be idle.
    pub clock: Arc<dyn Clock>,
    /// For NLM and NSM, which are not served without.
    pub locking: Option<Locking>,
    /// What connections, calls and replies may take in all.
    pub in_flight_bytes_max: usize,
}

/// Why a server could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// It cannot listen.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// There is no room for a thread.
    #[error("cannot serve locks: {0}")]
    Locks(#[from] io::Error),
    /// The programs cannot be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// All programs, as a service of [`onc_rpc`].
pub struct Programs {
    context: Arc<Context>,
    mounts: Arc<Mounts>,
    locks: Option<Arc<LockService>>,
    record_bytes_max: usize,
}

impl Programs {
    /// NFS and MOUNT over `service`, for whom `policy` lets in; answers are kept by `clock`.
    #[must_use]
    pub fn new(
        service: Arc<dyn FileService>,
        policy: Arc<dyn ExportPolicy>,
        clock: Arc<dyn Clock>,
        reply_limits: ReplyLimits,
    ) -> Self {
        let limits = service.limits();
        let transfer = (limits.transfer_bytes_max as usize).max(RECORD_BYTES_MIN);
        let connections = Arc::new(Connections::default());
        let replies = ReplyCache::new(reply_limits, Arc::clone(&connections));
        let refusals = Refusals::new(Arc::clone(&clock));
        let context = Context { service, policy, limits, replies, clock, connections, refusals };
        let context = Arc::new(context);
        let record_bytes_max = transfer + CALL_OVERHEAD_BYTES;
        Self { context, mounts: Arc::default(), locks: None, record_bytes_max }
    }

    /// NLM and NSM too. The grace period, if there is one, begins with this.
    fn with_locks(self, locking: &Locking) -> io::Result<Self> {
        self.with_lock_service(locking, THREADS)
    }

    /// The same for whoever drives the programs without a network: calls to clients are queued and
    /// not made.
    ///
    /// # Errors
    /// If there is no room for a thread.
    pub fn with_silent_locks(self, locking: &Locking) -> io::Result<Self> {
        self.with_lock_service(locking, 0)
    }

    fn with_lock_service(mut self, locking: &Locking, threads: usize) -> io::Result<Self> {
        self.locks = Some(Arc::new(LockService::start(&self.context, locking, threads)?));
        Ok(self)
    }

    #[cfg(test)]
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    #[cfg(test)]
    pub(crate) fn locks(&self) -> &LockService {
        self.locks.as_deref().expect("locks are served")
    }

    /// Whom the export rules refused.
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        &self.context.refusals
    }

    /// What is wrong with the ledger of clients with locks, if something is.
    #[must_use]
    pub fn ledger_trouble(&self) -> Option<LedgerTrouble> {
        self.locks.as_ref().and_then(|service| service.hosts.trouble())
    }

    /// Connections that clients have open.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.context.connections.count()
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
        Session::new(peer, &self.context.connections)
    }

    fn standing(&self, address: IpAddr) -> Standing {
        match self.context.policy.knows(address) {
            true => Standing::Known,
            false => Standing::Stranger,
        }
    }

    fn reply_bytes(&self, header: &CallHeader, arguments: Reader<'_>) -> usize {
        REPLY_BYTES_USUAL
            + match header.program {
                procedures::PROGRAM => {
                    procedures::reply_bytes(&self.context.limits, header.procedure, arguments)
                }
                acl::PROGRAM => acl::reply_bytes(header.procedure).unwrap_or(OTHER_REPLY_BYTES_MAX),
                mount::PROGRAM => mount::reply_bytes(header.procedure),
                _ => OTHER_REPLY_BYTES_MAX,
            }
    }

    fn open_datagram(&self, peer: SocketAddr) -> Session {
        Session::of_datagram(peer, &self.context.connections)
    }

    fn dispatch(&self, session: &mut Session, call: Call<'_>, replier: Replier) {
        let mismatch = |low, high| ReplyError::ProgramMismatch { low, high };
        match (call.header.program, call.header.version, &self.locks) {
            // Whose sender may be anybody.
            (procedures::PROGRAM | acl::PROGRAM | nlm::procedures::PROGRAM, ..)
                if session.datagram =>
            {
                replier.fail(ReplyError::ProgramUnavailable);
            }
            (procedures::PROGRAM, procedures::VERSION, _) => {
                procedures::dispatch(&self.context, session, call, replier);
            }
            (acl::PROGRAM, acl::VERSION, _) => acl::dispatch(&self.context, session, call, replier),
            (mount::PROGRAM, mount::VERSION, _) => {
                mount::dispatch(&self.context, &self.mounts, session, call, replier);
            }
            (procedures::PROGRAM | acl::PROGRAM | mount::PROGRAM, ..) => {
                replier.fail(mismatch(3, 3))
            }
            (nlm::procedures::PROGRAM, nlm::procedures::VERSION, Some(locks)) => {
                nlm::procedures::dispatch(locks, session, call, replier);
            }
            (nlm::procedures::PROGRAM, _, Some(_)) => replier.fail(mismatch(4, 4)),
            (nlm::nsm::PROGRAM, nlm::nsm::VERSION, Some(locks)) => {
                nlm::nsm::dispatch(locks, session, call, replier);
            }
            (nlm::nsm::PROGRAM, _, Some(_)) => replier.fail(mismatch(1, 1)),
            _ => replier.fail(ReplyError::ProgramUnavailable),
        }
    }
}

/// A running NFS server; stops when dropped.
pub struct Server {
    // In the order of their ends: first nobody finds us any more.
    registration: Option<Registration>,
    rpc: onc_rpc::Server<Arc<Programs>>,
    datagrams: Option<DatagramServer>,
    locks: Option<Arc<LockService>>,
    programs: Arc<Programs>,
}

impl Server {
    /// Listens and serves `service` to whom `policy` lets in.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        configuration: &Configuration,
        service: Arc<dyn FileService>,
        policy: Arc<dyn ExportPolicy>,
    ) -> Result<Self, StartError> {
        let clock = Arc::clone(&configuration.clock);
        let programs = Programs::new(service, policy, clock, ReplyLimits::default());
        let locking = configuration.locking.as_ref();
        let programs = match locking {
            Some(locking) => programs.with_locks(locking)?,
            None => programs,
        };
        let locks = programs.locks.clone();
        let rpc = onc_rpc::Configuration {
            address: configuration.address,
            record_bytes_max: programs.record_bytes_max(),
            in_flight_bytes_max: configuration.in_flight_bytes_max,
            clock: Arc::clone(&configuration.clock),
        };
        let programs = Arc::new(programs);
        let rpc = match onc_rpc::Server::start(&rpc, Arc::clone(&programs)) {
            Ok(rpc) => rpc,
            Err(error) => {
                locks.iter().for_each(|locks| locks.stop());
                return Err(error.into());
            }
        };
        let mut server = Self {
            registration: None,
            rpc,
            datagrams: None,
            locks,
            programs: Arc::clone(&programs),
        };
        if let Some(locking) = locking {
            server.listen_for_datagrams(programs);
            if locking.rpcbind {
                let datagrams = server.datagrams.is_some();
                server.registration = Some(Registration::start(server.local_address(), datagrams)?);
            }
        }
        Ok(server)
    }

    /// Without UDP nothing is lost but notices of clients that were started anew and use it, and
    /// mounts that ask over it.
    fn listen_for_datagrams(&mut self, programs: Arc<Programs>) {
        match DatagramServer::start(self.local_address(), programs) {
            Ok(datagrams) => self.datagrams = Some(datagrams),
            Err(error) => tracing::warn!(%error, "MOUNT and NSM are not served over UDP"),
        }
    }

    /// The address that is listened on, with the port that the system chose.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.rpc.local_address()
    }

    /// The programs, for whoever wants to know what they counted.
    #[must_use]
    pub fn programs(&self) -> Arc<Programs> {
        Arc::clone(&self.programs)
    }

    /// What calls and replies take now.
    #[must_use]
    pub fn in_flight_bytes(&self) -> usize {
        self.rpc.in_flight_bytes()
    }

    /// Closes the listener and all connections, and waits for the server's threads. Calls that the
    /// backend has not answered yet are answered into the void; their clients ask again.
    pub fn stop(&mut self) {
        self.registration = None;
        self.rpc.stop();
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.stop();
        }
        if let Some(locks) = &self.locks {
            locks.stop();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

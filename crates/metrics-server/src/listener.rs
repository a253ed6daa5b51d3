//! The port, its thread and its connections.
//!
//! Invariants: one thread serves all connections; another looks at the source. Both end at the
//! stop, which waits for no client, and not long for a look that hangs. Whoever comes is let in
//! (`room`).

use crate::Source;
use crate::answers::{Shared, Stage};
use crate::limits::{HEADERS_MAX, Limits, REQUEST_BYTES_MAX};
use crate::looks::Looks;
use crate::room::{Place, Room};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use platform::Clock;
use platform::sync::Mutex;
use platform::thread::{JoinHandle, spawn};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StandardListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How long nothing is accepted after it failed: out of descriptors, say.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the stop waits for a look that is under way.
const STOP_MAX: Duration = Duration::from_secs(1);

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum MetricsServerError {
    /// It cannot listen.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// There is no room for its thread.
    #[error("cannot start a thread for metrics: {0}")]
    Thread(io::Error),
}

/// A running server; stops when dropped.
pub struct MetricsServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Changed to end it.
    ending: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens, and says that the server is starting.
    ///
    /// # Errors
    /// [`MetricsServerError`].
    pub fn start(
        address: SocketAddr,
        clock: Arc<dyn Clock>,
        limits: Limits,
    ) -> Result<Self, MetricsServerError> {
        let listen = |source| MetricsServerError::Listen { address, source };
        let listener = StandardListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let local_address = listener.local_addr().map_err(listen)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .map_err(MetricsServerError::Thread)?;
        let room = Arc::new(Room::new(limits.connections_max, Arc::clone(&clock)));
        let looks = Arc::new(Looks::new(clock, limits));
        let shared = Arc::new(Shared { stage: Mutex::new(Stage::Starting), looks });
        let (ending, ended) = watch::channel(false);
        let same = Arc::clone(&shared);
        let body = move || serve(runtime, listener, &same, &room, limits, ended);
        let thread = spawn("metrics", body).map_err(MetricsServerError::Thread)?;
        Ok(Self { address: local_address, shared, ending, thread: Some(thread) })
    }

    /// The address that is listened on, with the port that the system chose.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Clients are served from now on, and `source` says how it goes.
    pub fn ready(&self, source: Arc<dyn Source>) {
        *self.shared.stage.lock() = Stage::Serving(source);
    }

    /// The server stops: the source is not asked any more.
    pub fn stopping(&self) {
        *self.shared.stage.lock() = Stage::Stopping;
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.ending.send_replace(true);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that serves metrics panicked");
        }
    }
}

fn serve(
    runtime: Runtime,
    listener: StandardListener,
    shared: &Arc<Shared>,
    room: &Arc<Room>,
    limits: Limits,
    ended: watch::Receiver<bool>,
) {
    runtime.block_on(async {
        match TcpListener::from_std(listener) {
            Ok(listener) => accept_all(&listener, shared, room, limits, ended).await,
            Err(error) => tracing::error!(%error, "metrics cannot be served"),
        }
    });
    runtime.shutdown_timeout(STOP_MAX);
}

async fn accept_all(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    room: &Arc<Room>,
    limits: Limits,
    mut ended: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            _ = ended.changed() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => room.enter(|place| {
                tokio::spawn(converse(stream, place, Arc::clone(shared), limits)).abort_handle()
            }),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for metrics");
                tokio::select! {
                    _ = ended.changed() => return,
                    () = sleep(PAUSE) => {}
                }
            }
        }
    }
}

/// One connection, of one request.
async fn converse(stream: TcpStream, place: Place, shared: Arc<Shared>, limits: Limits) {
    let answer = service_fn(|request| {
        place.note_request();
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.answer(&request).await) }
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_max)
        .max_buf_size(REQUEST_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false);
    let connection = server.serve_connection(TokioIo::new(stream), answer);
    match timeout(limits.connection_max, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection for metrics failed"),
        Err(_) => tracing::debug!("a connection for metrics took too long"),
    }
}

#[cfg(test)]
mod tests;

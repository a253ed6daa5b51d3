//! `stroop serve`: a node from start to stop.
//!
//! Order of the start: configuration, log, state directory, lock, signals, the file of what threads
//! do (if it is asked for), metrics (which say that the server is starting), node (which mounts the
//! aggregates and replays their logs), admin socket, READY. The stop goes the other way, and ends
//! with the node's last consistency points.
//!
//! Invariants: nothing is touched before the lock is held; root serves no state directory of
//! another user; what was started is stopped, in reverse order, whatever fails.

use crate::directory::{DirectoryOwner, make_directory};
use crate::init::SERVICE_UNIT;
use crate::lock::StateLock;
use crate::node::{Node, Watcher};
use crate::notify::notify;
use crate::shutdown::Shutdown;
use crate::{activity, logging, node};
use admin_api::{AdminError, Code};
use admin_server::{AdminServer, AdminServerError};
use cli::ServeArguments;
use metrics_server::limits::Limits;
use metrics_server::{MetricsServer, MetricsServerError};
use platform::linux::SystemClock;
use rustix::fs::Mode;
use server::config::{Config, Journal, STATE_DIRECTORY};
use std::io;
use std::path::Path;
use std::sync::Arc;
use units::shell_word;

/// Runs a node until it is asked to stop.
///
/// # Errors
/// If it cannot be started, or its last consistency point fails.
pub(crate) fn serve(arguments: &ServeArguments, config_path: &Path) -> Result<(), AdminError> {
    let mut config = Config::load(config_path)?;
    config.nfs_rpcbind |= arguments.rpcbind;
    logging::start(arguments.log_format, &arguments.log)?;
    // Objects, and the server's own files: nobody else reads them, whatever shell started it.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    refuse_root_for_another(&config)?;
    make_directory(&config.state_directory)?;
    let _lock = StateLock::take(&config.state_directory)?;
    let shutdown = Shutdown::default();
    shutdown.on_signals().map_err(|error| {
        AdminError::new(Code::Failed, "cannot handle signals", "").because(error.to_string())
    })?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        node = config.name,
        config = %config.path.display(),
        memory = %config.memory,
        workers = config.workers,
        "starting"
    );
    let activity = arguments.activity.as_deref().map(activity::start).transpose()?;
    let served = serve_node(&config, &shutdown);
    activity.into_iter().for_each(Watcher::stop);
    served?;
    tracing::info!("stopped");
    Ok(())
}

/// From the metrics to the node's last consistency points.
fn serve_node(config: &Config, shutdown: &Shutdown) -> Result<(), AdminError> {
    let metrics = serve_metrics(config)?;
    let node = node::start(config, shutdown)?;
    if let Some(metrics) = &metrics {
        let address = metrics.local_address();
        tracing::info!(%address, "metrics are shown over HTTP");
        metrics.ready(Arc::new(node.metrics(address)));
    }
    let served = serve_until_asked_to_stop(config, &node, shutdown);
    if let Some(metrics) = &metrics {
        metrics.stopping();
    }
    let stopped = node.stop();
    drop(metrics);
    served.and(stopped)
}

/// Root's server makes files that the service's user could not open: with one start by root the
/// service would never start again.
fn refuse_root_for_another(config: &Config) -> Result<(), AdminError> {
    let state = &config.state_directory;
    let Some(owner) = DirectoryOwner::other_than_root(state) else { return Ok(()) };
    let shown = state.display().to_string();
    let user = owner.user();
    let is_of_service = state == Path::new(STATE_DIRECTORY) && Path::new(SERVICE_UNIT).exists();
    let next = match is_of_service {
        true => "sudo systemctl start stroop".to_owned(),
        false => format!("sudo -u '#{user}' stroop serve"),
    };
    Err(AdminError::new(Code::Denied, "root starts no server on", shown)
        .because(format!("it belongs to user {user}, who could not open what root makes in it"))
        .try_next(next))
}

fn serve_until_asked_to_stop(
    config: &Config,
    node: &Node,
    shutdown: &Shutdown,
) -> Result<(), AdminError> {
    let admin = AdminServer::start(&config.admin_socket, node.served())
        .map_err(|error| socket_error(config, &error))?;
    if let Some(size) = config.journal_on_disks {
        tracing::info!(%size, "journals are on the disks of their aggregates, where there is room");
    }
    for journal in &config.journals {
        match journal {
            Journal::Directory { path, size } => {
                tracing::info!(path = %path.display(), %size, "journals are files in a directory");
            }
            Journal::Device { path } => {
                tracing::info!(path = %path.display(), "journal is a device");
            }
        }
    }
    let config_path = shell_word(&config.path.to_string_lossy());
    let next = format!("stroop --config {config_path} status");
    tracing::info!(socket = %admin.socket().display(), next, "ready");
    notify("READY=1");
    let reason = shutdown.wait();
    tracing::info!(reason, "stopping");
    notify("STOPPING=1");
    admin.stop();
    Ok(())
}

/// Shows metrics over HTTP, if the configuration says where.
fn serve_metrics(config: &Config) -> Result<Option<MetricsServer>, AdminError> {
    let Some(address) = config.metrics else { return Ok(None) };
    let started = MetricsServer::start(address, Arc::new(SystemClock), Limits::default());
    started.map(Some).map_err(|error| {
        let code = match &error {
            MetricsServerError::Listen { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => Code::Conflict,
                io::ErrorKind::PermissionDenied => Code::Denied,
                _ => Code::Failed,
            },
            MetricsServerError::Thread(_) => Code::Failed,
        };
        AdminError::new(code, "cannot show metrics on", address.to_string())
            .because(error.to_string())
            .try_next(format!("another [listen] metrics in {}", config.path.display()))
    })
}

fn socket_error(config: &Config, error: &AdminServerError) -> AdminError {
    let code = match error {
        AdminServerError::InUse { .. } | AdminServerError::NotASocket { .. } => Code::Conflict,
        AdminServerError::PathTooLong { .. } => Code::Usage,
        AdminServerError::Io { .. } => Code::Failed,
    };
    let socket = config.admin_socket.display().to_string();
    let error = AdminError::new(code, "cannot listen on", socket).because(error.to_string());
    error.try_next(format!("another [listen] admin_socket in {}", config.path.display()))
}

//! The log: to standard error, a line an event, as text or JSON.
//!
//! Invariants: standard output is never logged to; a panic is logged and ends the process, because
//! a thread that died half way through a change leaves a state that nobody has checked: the log is
//! replayed by the next start instead (crash rather than corrupt).

use admin_api::AdminError;
use cli::LogFormat;
use std::backtrace::Backtrace;
use std::io::{self, IsTerminal as _};
use tracing_subscriber::EnvFilter;

/// Starts logging. `filter` is of the form `info,nfs=debug`.
///
/// # Errors
/// `Usage` if the filter makes no sense.
pub(crate) fn start(format: LogFormat, filter: &str) -> Result<(), AdminError> {
    let filter = EnvFilter::builder().parse(filter).map_err(|error| {
        AdminError::usage("cannot use the log filter", filter).because(error.to_string())
    })?;
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && !plain);
    match format {
        LogFormat::Text => builder.with_target(false).init(),
        LogFormat::Json => builder.json().init(),
    }
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::force_capture();
        tracing::error!(%panic, %backtrace, "a thread panicked; the server ends at once");
        std::process::abort();
    }));
    Ok(())
}

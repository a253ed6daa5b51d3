//! How this program was called: which configuration, which node, and what to type again; and what
//! it says of its version.
//!
//! Fails: `Unreachable` if nothing says which node is meant.

use admin_api::frame::PROTOCOL_VERSION;
use admin_api::{AdminError, Code};
use clap::{CommandFactory as _, FromArgMatches as _};
use cli::arguments::CONFIG_PATH;
use cli::{Cli, Options};
use management::{FORMAT_VERSION, FORMAT_VERSION_MIN};
use server::config::{self, Config};
use std::path::{Path, PathBuf};
use units::shell_word;

/// The command line of this process. A wrong one ends the process, with help or an error.
pub(crate) fn parse() -> Cli {
    let matches = command().get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The grammar, with the version of this build: what it writes on disks and speaks on its socket is
/// what must fit when a binary is replaced.
pub(crate) fn command() -> clap::Command {
    let build = env!("CARGO_PKG_VERSION");
    let reads = match FORMAT_VERSION_MIN {
        FORMAT_VERSION => FORMAT_VERSION.to_string(),
        oldest => format!("{oldest} to {FORMAT_VERSION}"),
    };
    let long = format!(
        "{build}\nformat on disk: writes version {FORMAT_VERSION}, reads version {reads} (stroop \
         upgrade check lists features)\nadmin socket: version {PROTOCOL_VERSION} of the protocol"
    );
    let short = format!("{build} (format {FORMAT_VERSION})");
    // Asked for once in a process.
    Cli::command().version(&*short.leak()).long_version(&*long.leak())
}

/// The configuration's file.
pub(crate) fn config_path(options: &Options) -> &Path {
    options.config.as_deref().unwrap_or(Path::new(CONFIG_PATH))
}

/// The socket of the node to ask: the one given, or the one that the configuration names.
pub(crate) fn socket(options: &Options) -> Result<PathBuf, AdminError> {
    if let Some(socket) = &options.socket {
        return Ok(socket.clone());
    }
    let path = config_path(options);
    match Config::load(path) {
        Ok(config) => Ok(config.admin_socket),
        Err(config::ConfigError::Read { error, .. })
            if error.kind() == std::io::ErrorKind::NotFound && options.config.is_none() =>
        {
            Err(AdminError::new(Code::Unreachable, "cannot tell which server to ask", "")
                .because(format!("there is no configuration at {}", path.display()))
                .try_next("stroop init, or say --config FILE or --socket PATH"))
        }
        Err(error) => Err(error.into()),
    }
}

/// This program as it was called, with what must be said again for the next command to reach the
/// same node. What the environment says need not be said again.
pub(crate) fn program(options: &Options) -> String {
    let called = std::env::args_os().next().unwrap_or_else(|| "stroop".into());
    let mut words = vec![shell_word(&called.to_string_lossy())];
    let said = |flag: &str, value: &Option<PathBuf>, variable: &str| {
        let path = value.as_ref()?;
        let known = std::env::var_os(variable).is_some_and(|known| known == path.as_os_str());
        (!known).then(|| format!("{flag} {}", shell_word(&path.to_string_lossy())))
    };
    words.extend(said("--config", &options.config, "STROOP_CONFIG"));
    words.extend(said("--socket", &options.socket, "STROOP_SOCKET"));
    words.join(" ")
}

//! How this program was called: which configuration, which node, and what to type again.
//!
//! Fails: `Unreachable` if nothing says which node is meant.

use admin_api::{AdminError, Code};
use cli::Options;
use cli::arguments::CONFIG_PATH;
use server::config::{self, Config};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

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
    let mut words = vec![quoted(&called)];
    let said = |flag: &str, value: &Option<PathBuf>, variable: &str| {
        let path = value.as_ref()?;
        let known = std::env::var_os(variable).is_some_and(|known| known == path.as_os_str());
        (!known).then(|| format!("{flag} {}", quoted(path.as_os_str())))
    };
    words.extend(said("--config", &options.config, "STROOP_CONFIG"));
    words.extend(said("--socket", &options.socket, "STROOP_SOCKET"));
    words.join(" ")
}

/// `text` as a shell takes it for one word.
fn quoted(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@".contains(c);
    if text.chars().all(plain) && !text.is_empty() {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

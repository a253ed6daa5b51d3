//! The binary `stroop`: server and command line in one.
//!
//! `init` writes a configuration, `serve` runs a node in the foreground, `check` reads disks with
//! or without a running node, every other command is sent to a running node over its admin socket.
//!
//! Architecture invariant: this is the only production crate that names a concrete platform
//! (`platform::linux`) and that knows all front ends; [`node`] is where they meet the engine.
//!
//! Fails: every command ends with an exit status of `admin_api::Code`.

#![forbid(unsafe_code)]

mod bench_command;
mod check_command;
mod disks;
mod front_ends;
mod init;
mod lock;
mod logging;
mod memory;
mod node;
mod notify;
mod serve;
mod shutdown;

use admin_api::{AdminError, Code, Remote};
use clap::Parser as _;
use cli::arguments::CONFIG_PATH;
use cli::output::{Output, print_error};
use cli::{Cli, Command, Options, SocketTransport, Terminal};
use server::config::{self, Config};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let program = program(&cli.options);
    let status = cli::terminal::with_standard_streams(program, |terminal| run(&cli, terminal));
    ExitCode::from(status)
}

fn run(cli: &Cli, terminal: &mut Terminal<'_>) -> u8 {
    let options = &cli.options;
    let result = match &cli.command {
        Command::Init(arguments) => {
            init::init(arguments, options).and_then(|output| print(&output, options, terminal))
        }
        Command::Bench(command) => {
            bench_command::run(command).and_then(|output| print(&output, options, terminal))
        }
        Command::Check(command) => match check_command::run(command, options, terminal) {
            Ok(output) => match print(&output, options, terminal) {
                Ok(()) => return output.status,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        },
        Command::Serve(arguments) => serve::serve(arguments, config_path(options)),
        Command::Client(command) => match socket(options) {
            Ok(socket) => {
                let node = Remote(SocketTransport::new(&socket, options.wait));
                return cli::run(command, options, &node, terminal);
            }
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(()) => 0,
        Err(error) => print_error(&error, options, terminal),
    }
}

fn print(
    output: &Output,
    options: &Options,
    terminal: &mut Terminal<'_>,
) -> Result<(), AdminError> {
    output.print(options, terminal).map_err(|error| {
        AdminError::new(Code::Failed, "cannot print the answer", "").because(error.to_string())
    })
}

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
fn program(options: &Options) -> String {
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

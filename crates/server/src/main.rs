//! The binary `stroop`: server and command line in one.
//!
//! `init` writes a configuration, `serve` runs a node in the foreground, `check` reads disks with
//! or without a running node, every other command is sent to a running node over its admin socket.
//! Called as `mount.stroop` it is what mount(8) calls ([`mount_helper`]).
//!
//! Architecture invariant: this is the only production crate that names a concrete platform
//! (`platform::linux`) and that knows all front ends; [`node`] is where they meet the engine.
//!
//! Fails: every command ends with an exit status of `admin_api::Code`.

#![forbid(unsafe_code)]

mod activity;
mod audit;
mod bench_command;
mod check_command;
mod description;
mod directory;
mod disks;
mod front_ends;
mod init;
mod invocation;
mod lock;
mod logging;
mod memory;
mod metrics;
mod mount_helper;
mod node;
mod notify;
mod serve;
mod shutdown;
mod state_file;

use admin_api::{AdminError, Code, Remote};
use cli::output::{Output, print_error};
use cli::{Cli, Command, Options, SocketTransport, Terminal};
use invocation::{config_path, program, socket};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let called = words.next().filter(|program| mount_helper::is_called_as(program));
    if let Some(program) = called {
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let program = program.to_string_lossy().into_owned();
        let status = cli::terminal::with_standard_streams(program, |terminal| {
            mount_helper::run(&words, terminal)
        });
        return ExitCode::from(status);
    }
    let cli = invocation::parse();
    let program = program(&cli.options);
    let status = cli::terminal::with_standard_streams(program, |terminal| run(&cli, terminal));
    ExitCode::from(status)
}

fn run(cli: &Cli, terminal: &mut Terminal<'_>) -> u8 {
    let options = &cli.options;
    if let Err(error) = options.check() {
        return print_error(&error, options, terminal);
    }
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
        Command::Completion(arguments) => {
            let text = description::completion(arguments.shell);
            terminal.out.write_all(&text).map_err(|error| cannot_print(&error))
        }
        Command::Manual(arguments) => description::write_manual(&arguments.directory)
            .and_then(|output| print(&output, options, terminal)),
        Command::Serve(arguments) => serve::serve(arguments, config_path(options)),
        Command::Client(command) => match socket(options) {
            Ok(socket) => {
                let node = Remote(SocketTransport::new(&socket, options.answer_wait()));
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
    let output = output.clone().select(&options.selection())?;
    output.print(options, terminal).map_err(|error| cannot_print(&error))
}

fn cannot_print(error: &std::io::Error) -> AdminError {
    AdminError::new(Code::Failed, "cannot print the answer", "").because(error.to_string())
}

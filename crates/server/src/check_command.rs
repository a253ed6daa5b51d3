//! `stroop check aggr`: everything of an aggregate is read by the independent reader (crate
//! `inspect`), in this process. So the memory of a check is never the server's, and a defect of the
//! reader cannot end the server.
//!
//! Without a server the disks are opened here, for nobody else ([`offline`]). With one, the disks
//! are read beside it ([`beside`]): the server holds the image of a consistency point back from
//! being overwritten, or leaves an aggregate alone that is out of service.
//!
//! Invariants: nothing is written to a disk. Beside a server findings are told only if the server
//! says at the end that what was read was kept. Progress goes to standard error, and only to a
//! terminal.
//!
//! Fails: by `AdminError` when it cannot be checked. What is wrong on the disks is no error but an
//! answer, with the exit status of `Code::Unhealthy`.

mod beat;
mod beside;
mod memory;
mod offline;
mod remote_disk;
mod subject;
mod words;

use admin_api::{AdminError, Administration, Code, Named, Remote, duration};
use cli::output::Output;
use cli::{CheckCommand, Options, SocketTransport, Terminal};
use inspect::{InspectError, Inspector, Progress, Scope};
use platform::Clock as _;
use platform::linux::SystemClock;
use server::config::Config;
use std::cell::RefCell;
use std::io::{IsTerminal as _, Write};
use std::sync::Arc;
use subject::{Checked, MESSAGE, Subject};
use units::{BLOCK_SIZE_U64, ByteSize};

/// Whoever waits so long wants to know how long it will go on.
const QUIET_NANOSECONDS: u64 = 1_000_000_000;
/// How often the progress is drawn.
const DRAW_NANOSECONDS: u64 = 200_000_000;

/// Runs a check.
///
/// # Errors
/// If it cannot be checked.
pub(crate) fn run(
    command: &CheckCommand,
    options: &Options,
    terminal: &mut Terminal<'_>,
) -> Result<Output, AdminError> {
    let CheckCommand::Aggr { name, memory } = command;
    admin_api::Validate::validate(&Named { name: name.clone() })?;
    let socket = crate::invocation::socket(options)?;
    let node: Arc<dyn Administration> =
        Arc::new(Remote(SocketTransport::new(&socket, options.answer_wait())));
    match beside::begin(&node, &socket, options.answer_wait(), name) {
        Ok(begun) => {
            let (subject, held) = begun.open()?;
            let checked = check(&subject, *memory, terminal);
            // Findings of what was overwritten meanwhile mean nothing.
            let ended = held.end();
            let checked = checked.or_else(|error| ended.clone().and(Err(error)))?;
            ended?;
            words::output(&subject, &checked)
        }
        Err(error) if error.code == Code::Unreachable => {
            let config = Config::load(crate::invocation::config_path(options))?;
            let subject = offline::open(name, &config)?;
            words::output(&subject, &check(&subject, *memory, terminal)?)
        }
        Err(error) => Err(error),
    }
}

fn check(
    subject: &Subject,
    memory: Option<ByteSize>,
    terminal: &mut Terminal<'_>,
) -> Result<Checked, AdminError> {
    let failed = |error: InspectError| refused(subject, &error);
    let began = SystemClock.monotonic_nanoseconds();
    let mut inspector = Inspector::open_blocking(subject.disks.clone()).map_err(failed)?;
    if let Some(superblock) = &subject.superblock {
        inspector.pin(superblock).map_err(failed)?;
    }
    memory::allow(&subject.name, inspector.used_blocks(), memory)?;
    let superblock = inspector.superblock();
    let (cp, is_clean) = (superblock.cp().get(), superblock.clean.get() == 1);
    let scope = subject.mode.scope(is_clean);
    let is_shown = std::io::stderr().is_terminal();
    let bar = RefCell::new(Bar { err: &mut *terminal.err, is_shown, began, drawn: 0, width: 0 });
    let outcome = {
        // The watch lives as long as the inspector, which borrows nothing.
        let watch = Box::new(|progress: &Progress| {
            bar.borrow_mut().draw(subject, progress, &scope);
            !subject.beat.is_lost()
        });
        inspector.check_scope(scope, Some(watch))
    };
    let missing_disks = inspector.missing_disks();
    drop(inspector);
    bar.into_inner().clear();
    let report = outcome.map_err(failed)?;
    let nanoseconds = SystemClock.monotonic_nanoseconds().saturating_sub(began);
    Ok(Checked { report, scope, cp, is_clean, missing_disks, nanoseconds })
}

fn refused(subject: &Subject, error: &InspectError) -> AdminError {
    let code = match error {
        InspectError::NoDisks => Code::NotFound,
        _ => Code::Failed,
    };
    let refusal = AdminError::new(code, MESSAGE, &subject.name).because(error.to_string());
    subject.left_out.iter().fold(refusal, |refusal, cause| refusal.because(cause.clone()))
}

/// A line on the terminal that says how far the check is.
struct Bar<'a> {
    err: &'a mut dyn Write,
    is_shown: bool,
    began: u64,
    drawn: u64,
    width: usize,
}

impl Bar<'_> {
    fn draw(&mut self, subject: &Subject, progress: &Progress, scope: &Scope) {
        let now = SystemClock.monotonic_nanoseconds();
        let spent = now.saturating_sub(self.began);
        if !self.is_shown || spent < QUIET_NANOSECONDS || now - self.drawn < DRAW_NANOSECONDS {
            return;
        }
        self.drawn = now;
        let percent = progress.percent(scope);
        let left = spent.saturating_mul(100 - percent).checked_div(percent);
        let left = left.map_or(String::new(), |left| format!(", {} left", duration::format(left)));
        let line = format!(
            "checking {}: {percent}%, {} of {}{left}",
            subject.name,
            ByteSize(progress.blocks.min(progress.blocks_total) * BLOCK_SIZE_U64),
            ByteSize(progress.blocks_total * BLOCK_SIZE_U64),
        );
        let width = std::mem::replace(&mut self.width, line.len());
        // A terminal that is gone is no reason to stop.
        let _ = write!(self.err, "\r{line:width$}");
        let _ = self.err.flush();
    }

    fn clear(self) {
        if self.width > 0 {
            let _ = write!(self.err, "\r{:1$}\r", "", self.width);
            let _ = self.err.flush();
        }
    }
}

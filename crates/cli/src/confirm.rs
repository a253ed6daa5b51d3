//! The question before a destructive act.
//!
//! Invariant: [`confirm`] returns `Ok` only if `--yes` was given or the very name was typed back
//! after the summary was shown.
//!
//! Fails: `Usage` if nobody can be asked, naming the flag; `Failed` if another name was typed.

use crate::Options;
use crate::terminal::Terminal;
use admin_api::{AdminError, Code, Removal};
use std::io::{BufRead as _, Read as _};
use units::ByteSize;

/// Longest line read as an answer.
const ANSWER_BYTES_MAX: u64 = 1024;

/// Shows what would go and asks for `removal.object` typed back. `action` is a verb: "delete".
///
/// # Errors
/// If the act must not go on.
pub fn confirm(
    terminal: &mut Terminal<'_>,
    options: &Options,
    action: &str,
    removal: &Removal,
) -> Result<(), AdminError> {
    if options.yes {
        return Ok(());
    }
    let object = &removal.object;
    let error = |code| AdminError::new(code, format!("cannot {action}"), object);
    let io = |failure: std::io::Error| error(Code::Failed).because(failure.to_string());
    let Some(input) = terminal.input.as_mut() else {
        return Err(error(Code::Usage)
            .because("this needs a confirmation, and there is no terminal to ask on")
            .because(summary(action, removal).trim_end())
            .try_next("the same command with --yes, if that is what you want"));
    };
    write!(terminal.err, "{}type '{object}' to go on: ", summary(action, removal)).map_err(io)?;
    terminal.err.flush().map_err(io)?;
    let mut answer = String::new();
    input.take(ANSWER_BYTES_MAX).read_line(&mut answer).map_err(io)?;
    if answer.trim() == object {
        return Ok(());
    }
    Err(error(Code::Failed).because("another name was typed; nothing was changed"))
}

/// What goes, in prose.
#[must_use]
pub fn summary(action: &str, removal: &Removal) -> String {
    let mut text = format!("{action} '{}':\n", removal.object);
    for line in &removal.consequences {
        text.push_str(&format!("  {line}\n"));
    }
    if removal.freed_bytes > 0 {
        text.push_str(&format!("  frees {}\n", ByteSize(removal.freed_bytes)));
    }
    text
}

//! The log: to standard error, a line an event, as text or JSON.
//!
//! Invariants: standard output is never logged to; an event is one line whatever is told of it,
//! because names and paths come from clients, and nobody shall forge a line of the log; a panic is
//! logged and ends the process, because a thread that died half way through a change leaves a state
//! that nobody has checked: the log is replayed by the next start instead (crash rather than
//! corrupt).

use admin_api::AdminError;
use cli::LogFormat;
use std::backtrace::Backtrace;
use std::io::{self, IsTerminal as _, Write};
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
    let has_colours = io::stderr().is_terminal() && !plain;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || OneLine { inner: io::stderr(), has_colours })
        .with_ansi(has_colours);
    match format {
        LogFormat::Text => builder.with_target(false).init(),
        LogFormat::Json => builder.json().init(),
    }
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "a thread panicked; the server ends at once");
        for line in Backtrace::force_capture().to_string().lines() {
            tracing::error!("{line}");
        }
        std::process::abort();
    }));
    Ok(())
}

/// Writes events, of which each is one call: what would begin another line, or steer a terminal, is
/// escaped, but for colours on a terminal.
struct OneLine<W> {
    inner: W,
    has_colours: bool,
}

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(event.strip_suffix(b"\n").unwrap_or(event));
        let mut escaped = String::with_capacity(event.len());
        for (at, char) in line.char_indices() {
            if is_steering(char) && !(self.has_colours && is_colour(&line[at..])) {
                escaped.extend(char.escape_default());
            } else {
                escaped.push(char);
            }
        }
        escaped.push('\n');
        self.inner.write_all(escaped.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Control characters, ends of lines and paragraphs, and what turns the direction of writing.
fn is_steering(char: char) -> bool {
    char.is_control() || matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether text begins with a sequence that sets a colour and nothing else.
fn is_colour(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("\x1b[") else { return false };
    rest.trim_start_matches(|char: char| char.is_ascii_digit() || char == ';').starts_with('m')
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::sync::Mutex;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_name_from_outside_begins_no_line_and_steers_no_terminal() {
        let written = Written::default();
        let own = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || OneLine { inner: own.clone(), has_colours: false })
            .with_ansi(false)
            .finish();
        let forged = "a\n2026-01-01T00:00:00Z ERROR forged\r\x1b[2J\u{202e}\u{9b}\u{2028}end";
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(path = forged, name = %forged, "{forged}");
            tracing::info!(name = ?forged, "second");
        });
        let text = String::from_utf8(written.0.lock().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        let plain = text.replace('\n', "");
        assert!(plain.chars().all(|char| !is_steering(char)), "{text:?}");
        assert!(text.contains("end") && text.contains("forged"), "{text}");
    }

    #[test]
    fn a_terminal_has_colours_and_is_not_steered() {
        let written = Written::default();
        let mut log = OneLine { inner: written.clone(), has_colours: true };
        log.write_all(b"\x1b[1;31mERROR\x1b[0m \x1b[2J\x1b]0;title\x07\n").unwrap();
        let text = String::from_utf8(written.0.lock().clone()).unwrap();
        assert_eq!(text, "\x1b[1;31mERROR\x1b[0m \\u{1b}[2J\\u{1b}]0;title\\u{7}\n");
    }
}

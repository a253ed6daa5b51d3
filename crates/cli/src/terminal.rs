//! Where a command reads and writes.
//!
//! Invariants: questions are asked only if standard input and standard error are terminals; colour
//! is used only if standard output is one and `NO_COLOR` is not set. A width limits what is printed
//! only if standard output is a terminal that tells it. No command in a line is broken: whoever
//! pastes half of it runs that half.

use std::io::{self, BufRead, IsTerminal as _, Write};

/// The three streams, and what is known of them.
pub struct Terminal<'a> {
    /// The answer.
    pub out: &'a mut dyn Write,
    /// Errors, questions and summaries.
    pub err: &'a mut dyn Write,
    /// Where answers to questions come from; `None` if nobody can be asked.
    pub input: Option<&'a mut dyn BufRead>,
    /// Whether the answer may be coloured.
    pub colour: bool,
    /// How wide the answer may be; `None` if nothing limits it.
    pub columns: Option<usize>,
    /// Whether the answer goes to a terminal, where lines can be written over.
    pub is_screen: bool,
    /// How this program is called here, with its options: what hints begin with.
    pub program: String,
}

/// Runs `body` with this process' streams.
pub fn with_standard_streams<T>(program: String, body: impl FnOnce(&mut Terminal<'_>) -> T) -> T {
    let (mut out, mut err, mut input) = (io::stdout().lock(), io::stderr(), io::stdin().lock());
    let asks = io::stdin().is_terminal() && io::stderr().is_terminal();
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_screen = io::stdout().is_terminal();
    let colour = is_screen && !no_colour;
    body(&mut Terminal {
        out: &mut out,
        err: &mut err,
        input: if asks { Some(&mut input) } else { None },
        colour,
        columns: columns(),
        is_screen,
        program,
    })
}

/// The width of the terminal that standard output is, if it is one.
fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then(|| size.ws_col.into())
}

/// A line as several that are no wider than `room`, if that is given; the further ones begin with
/// `indent` spaces. A word or a command that is wider stays whole.
pub(crate) fn wrapped(line: &str, room: Option<usize>, indent: usize) -> Vec<String> {
    let Some(room) = room else { return vec![line.to_owned()] };
    let columns = |text: &str| text.chars().count();
    let mut lines = Vec::new();
    let mut current = String::new();
    for piece in pieces(line) {
        let width = columns(&current) + columns(piece.trim_end());
        if width > room && !current.trim().is_empty() {
            lines.push(current.trim_end().to_owned());
            current = format!("{:indent$}{}", "", piece.trim_start());
        } else {
            current.push_str(&piece);
        }
    }
    lines.push(current.trim_end().to_owned());
    lines
}

/// How a command in a sentence ends.
enum Command {
    /// With `:`, `;`, `,` or the line.
    Plain,
    /// With a quote.
    Quoted,
}

/// The words of a line, each with the spaces after it; a command is one piece.
fn pieces(line: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut command = None;
    for word in line.split_inclusive(' ') {
        let text = word.trim_end();
        let is_open =
            |last: &&mut String| command.is_some() || text.is_empty() || last.trim().is_empty();
        match pieces.last_mut().filter(is_open) {
            Some(last) => last.push_str(word),
            None => pieces.push(word.to_owned()),
        }
        let is_over = match command {
            None => true,
            Some(Command::Plain) => text.ends_with([':', ';', ',']),
            Some(Command::Quoted) => text.trim_end_matches([':', ';', ',', '.']).ends_with('\''),
        };
        if is_over {
            command = match text {
                "stroop" => Some(Command::Plain),
                "'stroop" => Some(Command::Quoted),
                _ => None,
            };
        }
    }
    pieces
}

impl Terminal<'_> {
    /// A hint as it must be typed here: `stroop` becomes the program with its options, but not in a
    /// name that is quoted for the shell.
    #[must_use]
    pub fn hint(&self, text: &str) -> String {
        let mut is_quoted = false;
        let shown = |word: &str| {
            let shown = match word {
                "stroop" if !is_quoted => self.program.clone(),
                // A command in a sentence.
                "'stroop" if !is_quoted => format!("'{}", self.program),
                other => other.to_owned(),
            };
            if is_quoted || word.starts_with('\'') {
                let quotes = word.matches('\'').count() - word.matches("\\'").count();
                is_quoted ^= quotes % 2 == 1;
            }
            shown
        };
        text.split(' ').map(shown).collect::<Vec<String>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hint_names_the_program_as_it_was_called_and_leaves_quoted_names_alone() {
        let program = "sudo ./stroop --config a.toml".to_owned();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let terminal = Terminal {
            out: &mut out,
            err: &mut err,
            input: None,
            colour: false,
            columns: None,
            is_screen: false,
            program,
        };
        for (text, expected) in [
            ("stroop status; or stroop job list", "P status; or P job list"),
            (
                "see 'stroop status' and the server's log: stroop job list",
                "see 'P status' and the server's log: P job list",
            ),
            (
                "stroop unmount '/mnt/my stroop disk' and stroop status",
                "P unmount '/mnt/my stroop disk' and P status",
            ),
            ("stroop unmount '/mnt/it'\\''s stroop here'", "P unmount '/mnt/it'\\''s stroop here'"),
        ] {
            assert_eq!(terminal.hint(text), expected.replace('P', &terminal.program));
        }
    }

    #[test]
    fn lines_are_wrapped_at_words_and_never_in_a_command() {
        let line = "      action: take it out; 'stroop disk spare add DISK' for the next; then: \
                    stroop disk clear /dev/sdb, and wait";
        assert_eq!(wrapped(line, None, 9), [line]);
        assert_eq!(wrapped(line, Some(line.len()), 9), [line]);
        let narrow = [
            "      action: take it out;",
            "         'stroop disk spare add DISK'",
            "         for the next; then:",
            "         stroop disk clear /dev/sdb,",
            "         and wait",
        ];
        assert_eq!(wrapped(line, Some(38), 9), narrow);
        assert_eq!(wrapped("stroop disk list", Some(4), 2), ["stroop disk list"]);
        assert_eq!(wrapped("", Some(4), 2), [""]);
    }

    proptest! {
        #[test]
        fn a_wrapped_line_keeps_its_words(
            line in "(stroop [a-z]{1,9}|[a-z]{1,30}|'stroop [a-z]{1,9} [a-z/]{1,9}'|[ :;,]){0,20}",
            room in 0..100_usize,
            indent in 0..12_usize,
        ) {
            let lines = wrapped(&line, Some(room), indent);
            let words = |text: &str| {
                text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
            };
            prop_assert_eq!(words(&lines.join(" ")), words(&line));
            for line in &lines {
                let is_fit = line.len() <= room.max(indent);
                prop_assert!(is_fit || pieces(line.trim()).len() <= 1, "{line}");
            }
        }
    }
}

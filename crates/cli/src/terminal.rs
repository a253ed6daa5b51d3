//! Where a command reads and writes.
//!
//! Invariants: questions are asked only if standard input and standard error are terminals; colour
//! is used only if standard output is one and `NO_COLOR` is not set.

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
    /// How this program is called here, with its options: what hints begin with.
    pub program: String,
}

/// Runs `body` with this process' streams.
pub fn with_standard_streams<T>(program: String, body: impl FnOnce(&mut Terminal<'_>) -> T) -> T {
    let (mut out, mut err, mut input) = (io::stdout().lock(), io::stderr(), io::stdin().lock());
    let asks = io::stdin().is_terminal() && io::stderr().is_terminal();
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = io::stdout().is_terminal() && !no_colour;
    body(&mut Terminal {
        out: &mut out,
        err: &mut err,
        input: if asks { Some(&mut input) } else { None },
        colour,
        program,
    })
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

    #[test]
    fn a_hint_names_the_program_as_it_was_called_and_leaves_quoted_names_alone() {
        let program = "sudo ./stroop --config a.toml".to_owned();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let terminal =
            Terminal { out: &mut out, err: &mut err, input: None, colour: false, program };
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
}

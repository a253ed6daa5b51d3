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
    /// A hint as it must be typed here: `stroop` becomes the program with its options.
    #[must_use]
    pub fn hint(&self, text: &str) -> String {
        let words = text.split(' ').map(|word| if word == "stroop" { &self.program } else { word });
        words.collect::<Vec<&str>>().join(" ")
    }
}

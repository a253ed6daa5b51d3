//! The answer of a command, in all the forms that it can be shown.
//!
//! Invariants: the JSON is that of the admin API, unchanged; a list is
//! `{"records": [...], "num_records": n}`, so that fields can be added beside it.

use crate::Options;
use crate::arguments::Format;
use crate::table::Table;
use crate::terminal::Terminal;
use admin_api::{AdminError, Code};
use serde::Serialize;
use serde_json::{Value, json};
use std::io;

/// What a command has to say.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Output {
    /// For `-o json`.
    pub json: Value,
    /// For `-o name`.
    pub names: Vec<String>,
    /// Lines before the table.
    pub head: Vec<String>,
    /// The table.
    pub table: Option<Table>,
    /// Lines after it: what was done.
    pub lines: Vec<String>,
    /// The command to type next.
    pub next: Option<String>,
    /// The exit status.
    pub status: u8,
}

impl Output {
    /// An answer about one object.
    ///
    /// # Errors
    /// `Failed` if it cannot be written as JSON.
    pub fn of<T: Serialize>(name: &str, value: &T) -> Result<Self, AdminError> {
        Ok(Self { json: to_json(value)?, names: vec![name.to_owned()], ..Self::default() })
    }

    /// An answer that is a list.
    ///
    /// # Errors
    /// `Failed` if it cannot be written as JSON.
    pub fn list<T: Serialize>(
        records: &[T],
        name: impl Fn(&T) -> String,
        table: Table,
    ) -> Result<Self, AdminError> {
        let json = json!({ "records": to_json(&records)?, "num_records": records.len() });
        let names = records.iter().map(name).collect();
        Ok(Self { json, names, table: Some(table), ..Self::default() })
    }

    /// Adds a field to the JSON of one object.
    ///
    /// # Errors
    /// `Failed` if it cannot be written as JSON.
    pub fn field<T: Serialize>(mut self, name: &str, value: &T) -> Result<Self, AdminError> {
        if let Value::Object(fields) = &mut self.json {
            fields.insert(name.to_owned(), to_json(value)?);
        }
        Ok(self)
    }

    /// Says that all of it is a plan, in JSON too.
    #[must_use]
    pub fn planned(mut self) -> Self {
        if let Value::Object(fields) = &mut self.json {
            fields.insert("dry_run".to_owned(), Value::Bool(true));
        }
        self.line("nothing was changed (--dry-run)")
    }

    /// Adds a line.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Says what to type next.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Prints it as asked.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub fn print(&self, options: &Options, terminal: &mut Terminal<'_>) -> io::Result<()> {
        match options.output {
            Format::Json => {
                writeln!(terminal.out, "{:#}", self.json)?;
            }
            Format::Name => {
                for name in &self.names {
                    writeln!(terminal.out, "{name}")?;
                }
            }
            Format::Table => self.print_table(options, terminal)?,
        }
        terminal.out.flush()
    }

    fn print_table(&self, options: &Options, terminal: &mut Terminal<'_>) -> io::Result<()> {
        for line in &self.head {
            writeln!(terminal.out, "{line}")?;
        }
        if let Some(table) = self.table.as_ref().filter(|table| !table.is_empty()) {
            write!(terminal.out, "{}", table.render(!options.no_header, terminal.columns))?;
        }
        for line in &self.lines {
            writeln!(terminal.out, "{line}")?;
        }
        if let Some(next) = &self.next {
            let hint = terminal.hint(next);
            writeln!(terminal.out, "next: {hint}")?;
        }
        Ok(())
    }
}

fn to_json<T: Serialize>(value: &T) -> Result<Value, AdminError> {
    serde_json::to_value(value).map_err(|error| {
        AdminError::new(Code::Failed, "cannot print the answer", "").because(error.to_string())
    })
}

/// Prints an error as asked and returns its exit status.
pub fn print_error(error: &AdminError, options: &Options, terminal: &mut Terminal<'_>) -> u8 {
    let mut error = error.clone();
    error.next = error.next.map(|next| terminal.hint(&next));
    let text = match options.output {
        Format::Json => format!("{:#}", json!({ "error": error })),
        Format::Table | Format::Name => error.render(),
    };
    // If standard error is gone, the status is all that is left to say it.
    let _ = writeln!(terminal.err, "{text}");
    error.code.exit_status()
}

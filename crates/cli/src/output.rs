//! The answer of a command, in all the forms that it can be shown.
//!
//! Invariants: the JSON is that of the admin API, unchanged; a list is
//! `{"records": [...], "num_records": n}`, so that fields can be added beside it.

use crate::Options;
use crate::arguments::Format;
use crate::selection::{self, Selection};
use crate::table::Table;
use crate::terminal::Terminal;
use admin_api::{AdminError, Code};
use serde::Serialize;
use serde_json::{Value, json};
use std::io;

/// What a command has to say.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Output {
    /// For `-o json`, and what is made of it.
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

    /// The part of it that is to be shown.
    ///
    /// # Errors
    /// As [`crate::selection`] says.
    pub fn select(mut self, selection: &Selection) -> Result<Self, AdminError> {
        if selection.is_all() {
            return Ok(self);
        }
        let Some(records) = self.json.get("records").and_then(Value::as_array) else {
            if let Some(field) = selection.of_list() {
                return Err(selection::unusable(field, "the answer is no list"));
            }
            let whole = std::slice::from_ref(&self.json);
            let (mut records, table) = selection.narrow(whole, whole)?;
            return Ok(self.bare(records.pop().unwrap_or_default(), table));
        };
        let chosen = selection.chosen(records)?;
        let picked = chosen.iter().filter_map(|place| records.get(*place).cloned());
        let (all, mut picked) = (records.len(), picked.collect::<Vec<Value>>());
        if self.names.len() == all {
            let name = |place: &usize| self.names.get(*place).cloned();
            self.names = chosen.iter().filter_map(name).collect();
        }
        if selection.fields.is_empty() {
            // A table has a row for each record; one that has not is about something else.
            if let Some(table) = self.table.as_mut().filter(|table| table.rows() == all) {
                table.keep(&chosen);
            }
        } else {
            let (narrowed, table) = selection.narrow(&picked, records)?;
            picked = narrowed;
            let json = std::mem::take(&mut self.json);
            self = self.bare(json, table);
        }
        if let Value::Object(list) = &mut self.json {
            list.insert("num_records".to_owned(), picked.len().into());
            list.insert("records".to_owned(), picked.into());
        }
        Ok(self)
    }

    /// Without what is said beside it.
    fn bare(self, json: Value, table: Table) -> Self {
        let (head, lines, next) = (Vec::new(), Vec::new(), None);
        Self { json, table: Some(table), head, lines, next, ..self }
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
            Format::Yaml => {
                let text = serde_saphyr::to_string(&self.json).map_err(io::Error::other)?;
                writeln!(terminal.out, "{}", text.trim_end())?;
            }
            Format::Csv => self.print_csv(options, terminal)?,
            Format::Table => self.print_table(options, terminal, terminal.columns)?,
            Format::Wide => self.print_table(options, terminal, None)?,
        }
        terminal.out.flush()
    }

    fn print_csv(&self, options: &Options, terminal: &mut Terminal<'_>) -> io::Result<()> {
        let (names, rows) = selection::csv(&self.json, &options.fields);
        let mut writer = csv::Writer::from_writer(&mut *terminal.out);
        if !options.no_header {
            writer.write_record(names)?;
        }
        for row in rows {
            writer.write_record(row)?;
        }
        writer.flush()
    }

    fn print_table(
        &self,
        options: &Options,
        terminal: &mut Terminal<'_>,
        room: Option<usize>,
    ) -> io::Result<()> {
        for line in &self.head {
            writeln!(terminal.out, "{line}")?;
        }
        if let Some(table) = self.table.as_ref().filter(|table| !table.is_empty()) {
            write!(terminal.out, "{}", table.render(!options.no_header, room))?;
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
        Format::Table | Format::Wide | Format::Name | Format::Csv | Format::Yaml => error.render(),
    };
    // If standard error is gone, the status is all that is left to say it.
    let _ = writeln!(terminal.err, "{text}");
    error.code.exit_status()
}

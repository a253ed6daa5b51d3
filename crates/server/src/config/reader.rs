//! TOML with lines: sections, typed values, and unknown keys as errors.
//!
//! Invariant: every error knows the line that it is about.

use super::ConfigError;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A parsed file.
pub(super) struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    root: Spanned<DeTable<'a>>,
}

/// One section of it, empty if the file has none of that name.
pub(super) struct Section<'a> {
    reader: &'a Reader<'a>,
    name: &'static str,
    table: Option<&'a DeTable<'a>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(path: &'a Path, text: &'a str) -> Result<Self, ConfigError> {
        let root = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            line: line_of(text, error.span().as_ref()),
            message: error.message().to_owned(),
        })?;
        Ok(Self { path, text, root })
    }

    pub(super) fn known(&self, keys: &[&'static str]) -> Result<(), ConfigError> {
        self.check_keys(self.root.get_ref(), "", keys)
    }

    pub(super) fn section(&'a self, name: &'static str) -> Result<Section<'a>, ConfigError> {
        let table = match self.root.get_ref().get(name).map(|value| (value, value.get_ref())) {
            None => None,
            Some((_, DeValue::Table(table))) => Some(table),
            Some((value, _)) => {
                let message = format!("this is a section; write [{name}]");
                return Err(self.wrong(value.span(), name.to_owned(), &message));
            }
        };
        Ok(Section { reader: self, name, table })
    }

    fn check_keys(
        &self,
        table: &DeTable<'_>,
        prefix: &str,
        known: &[&'static str],
    ) -> Result<(), ConfigError> {
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                return Err(ConfigError::UnknownKey {
                    path: self.path.to_owned(),
                    line: line_of(self.text, Some(&key.span())),
                    key: format!("{prefix}{name}"),
                    nearest: nearest(name, known),
                });
            }
        }
        Ok(())
    }

    fn wrong(&self, span: Range<usize>, key: String, message: &str) -> ConfigError {
        ConfigError::Value {
            path: self.path.to_owned(),
            line: line_of(self.text, Some(&span)),
            key,
            message: message.to_owned(),
        }
    }
}

impl<'a> Section<'a> {
    pub(super) fn known(&self, keys: &[&'static str]) -> Result<(), ConfigError> {
        let prefix = format!("{}.", self.name);
        self.table.map_or(Ok(()), |table| self.reader.check_keys(table, &prefix, keys))
    }

    fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table?.get(key)
    }

    /// An error about the value of `key`.
    pub(super) fn wrong(&self, key: &str, message: &str) -> ConfigError {
        let span = self.get(key).map_or(0..0, Spanned::span);
        self.reader.wrong(span, format!("{}.{key}", self.name), message)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        match self.get(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::String(text)) => Ok(Some(text.as_ref())),
            Some(_) => Err(self.wrong(key, "a text in quotes is expected")),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<&'a str>, ConfigError> {
        let expected = || self.wrong(key, "a list of texts in quotes is expected: [\"a\", \"b\"]");
        match self.get(key).map(Spanned::get_ref) {
            None => Ok(Vec::new()),
            Some(DeValue::Array(values)) => values
                .iter()
                .map(|value| match value.get_ref() {
                    DeValue::String(text) => Ok(text.as_ref()),
                    _ => Err(expected()),
                })
                .collect(),
            Some(_) => Err(expected()),
        }
    }

    /// One text, or a list of texts; empty if the key is not there.
    pub(super) fn text_or_texts(&self, key: &str) -> Result<Vec<&'a str>, ConfigError> {
        match self.get(key).map(Spanned::get_ref) {
            Some(DeValue::String(text)) => Ok(vec![text.as_ref()]),
            _ => self.texts(key),
        }
    }

    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        match self.get(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::Boolean(value)) => Ok(Some(*value)),
            Some(_) => Err(self.wrong(key, "true or false is expected")),
        }
    }

    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>, ConfigError> {
        let expected = || self.wrong(key, "a whole number is expected");
        match self.get(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::Integer(number)) => {
                let digits = number.as_str();
                i64::from_str_radix(digits, number.radix()).map(Some).map_err(|_| expected())
            }
            Some(_) => Err(expected()),
        }
    }
}

fn line_of(text: &str, span: Option<&Range<usize>>) -> usize {
    let before = text.as_bytes().get(..span.map_or(0, |span| span.start));
    1 + before.unwrap_or_default().iter().filter(|byte| **byte == b'\n').count()
}

/// The known key that differs from `name` in the fewest letters, if that is at most a third of
/// them: further off it would be a guess.
fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let scored = known.iter().map(|candidate| (distance(name, candidate), *candidate));
    let (distance, candidate) = scored.min()?;
    (distance * 3 <= name.chars().count().max(candidate.len())).then_some(candidate)
}

/// Letters to insert, delete or replace to turn one text into the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut left = index + 1;
        let mut next = vec![left];
        for ((above, other), above_left) in row.iter().skip(1).zip(&to).zip(&row) {
            left = (above + 1).min(left + 1).min(above_left + usize::from(letter != *other));
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_letters() {
        for (from, to, expected) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("a", "b", 1),
        ] {
            assert_eq!(distance(from, to), expected, "{from} {to}");
            assert_eq!(distance(to, from), expected, "{to} {from}");
        }
    }

    #[test]
    fn only_what_is_like_a_key_is_suggested() {
        let known = ["memory", "journal", "disks"];
        assert_eq!(nearest("memroy", &known), Some("memory"));
        assert_eq!(nearest("disk", &known), Some("disks"));
        assert_eq!(nearest("colour", &known), None);
    }
}

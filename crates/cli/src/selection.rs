//! `--fields`, `--where` and `--sort`: which part of an answer is shown, and in which order.
//!
//! They speak of the fields of the JSON, by the names that they have there;
//! `protection.disk_failures` is a field within a field. `--where` and `--sort` are for lists.
//!
//! Invariants: they change what is shown and nothing else. A field is known if any record has it.
//!
//! Fails: with `Usage` where the answer has no such field, or is no list. The command was carried
//! out all the same, and the error says so.

use crate::table::{Column, Table};
use admin_api::AdminError;
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::str::FromStr;
use units::ByteSize;

/// How a condition compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
    /// A part of the text, or one of a list.
    Contains,
}

/// As they are written; what begins with another one comes first.
const OPERATORS: [(&str, Operator); 8] = [
    ("!=", Operator::NotEqual),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("==", Operator::Equal),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("~", Operator::Contains),
];

impl Operator {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal | Self::Contains => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

/// `--where`: `used_bytes>10G`, `state!=online`, `name~web`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    field: String,
    operator: Operator,
    value: String,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = text.find(|c| "!<>=~".contains(c));
        let (field, rest) = at.and_then(|at| text.split_at_checked(at)).unwrap_or((text, ""));
        let operator = OPERATORS.iter().find(|(written, _)| rest.starts_with(written));
        let Some((written, operator)) = operator.filter(|_| !field.trim().is_empty()) else {
            return Err("a condition is FIELD, one of = != < <= > >= ~, and a value".to_owned());
        };
        let value = rest.strip_prefix(written).unwrap_or_default().trim();
        Ok(Self { field: field.trim().to_owned(), operator: *operator, value: value.to_owned() })
    }
}

impl Condition {
    fn fits(&self, record: &Value) -> Result<bool, AdminError> {
        let value = at(record, &self.field).filter(|value| !value.is_null());
        let is_unequal = self.operator == Operator::NotEqual;
        if self.value == "null" && (is_unequal || self.operator == Operator::Equal) {
            return Ok(value.is_some() == is_unequal);
        }
        // What is not there is neither less nor more, and unlike anything.
        let Some(value) = value else { return Ok(is_unequal) };
        Ok(match value {
            Value::Number(number) => {
                let wanted = self.number()?;
                // A size beyond 2^53 bytes may be rounded, as it is when people write it.
                number
                    .as_f64()
                    .and_then(|number| number.partial_cmp(&wanted))
                    .is_some_and(|order| self.operator.holds(order))
            }
            Value::String(text) if self.operator == Operator::Contains => {
                text.contains(&self.value)
            }
            Value::String(text) => self.operator.holds(text.as_str().cmp(&self.value)),
            Value::Bool(is_so) => self.operator.holds(is_so.to_string().as_str().cmp(&self.value)),
            Value::Array(values) => {
                let has = values.iter().any(|value| plain(value) == self.value);
                has != is_unequal
            }
            Value::Object(_) | Value::Null => {
                let cause = "it has fields of its own: name one of them, with a dot between";
                return Err(unusable(&self.field, cause));
            }
        })
    }

    /// The value as a number: plain, a size, a duration, or a share in percent.
    fn number(&self) -> Result<f64, AdminError> {
        let text = &self.value;
        let percent = || text.strip_suffix('%')?.parse().ok().map(|share: f64| share / 100.0);
        let size = || text.parse::<ByteSize>().ok().map(|size| size.0 as f64);
        let duration = || admin_api::duration::parse(text).ok().map(|time| time.as_nanos() as f64);
        // `15m` is a size and a duration.
        let number = text.parse().ok().or_else(percent);
        let number = match is_duration(&self.field) {
            true => number.or_else(duration),
            false => number.or_else(size).or_else(duration),
        };
        number.ok_or_else(|| {
            unusable(
                &self.field,
                &format!("it is a number, and '{text}' is none: 10, 10G, 80%, 15m"),
            )
        })
    }
}

/// What is shown of an answer, and in which order.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Selection {
    /// These fields, in this order; all if there are none.
    pub fields: Vec<String>,
    /// What fits all of these.
    pub conditions: Vec<Condition>,
    /// By this field; the other way round with a `-` before it.
    pub sort: Option<String>,
}

impl Selection {
    /// Whether all is shown.
    pub(crate) fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// A field that only a list can be asked by.
    pub(crate) fn of_list(&self) -> Option<&str> {
        let sort = self.sort.as_deref().map(|sort| sort.trim_start_matches('-'));
        self.conditions.first().map(|condition| condition.field.as_str()).or(sort)
    }

    /// The chosen fields of records, as JSON and as columns. They are some of `all` records.
    ///
    /// # Errors
    /// If none of all records has one of the fields.
    pub(crate) fn narrow(
        &self,
        records: &[Value],
        all: &[Value],
    ) -> Result<(Vec<Value>, Table), AdminError> {
        self.fields.iter().try_for_each(|field| known(field, all))?;
        let records: Vec<Value> = records.iter().map(|record| self.fields_of(record)).collect();
        let table = self.table(&records);
        Ok((records, table))
    }

    /// The places of the records that fit, in the order that was asked for.
    pub(crate) fn chosen(&self, records: &[Value]) -> Result<Vec<usize>, AdminError> {
        let mut chosen: Vec<usize> = (0..records.len()).collect();
        for condition in &self.conditions {
            known(&condition.field, records)?;
            let mut fitting = Vec::new();
            for index in chosen {
                if condition.fits(records.get(index).unwrap_or(&Value::Null))? {
                    fitting.push(index);
                }
            }
            chosen = fitting;
        }
        if let Some(sort) = &self.sort {
            let (field, is_reverse) =
                sort.strip_prefix('-').map_or((sort.as_str(), false), |field| (field, true));
            known(field, records)?;
            let value = |index: &usize| records.get(*index).and_then(|record| at(record, field));
            chosen.sort_by(|one, other| {
                let order = compare(value(one), value(other));
                if is_reverse { order.reverse() } else { order }
            });
        }
        Ok(chosen)
    }

    fn fields_of(&self, record: &Value) -> Value {
        let field =
            |name: &String| (name.clone(), at(record, name).cloned().unwrap_or(Value::Null));
        Value::Object(self.fields.iter().map(field).collect())
    }

    /// The fields as columns. `records` have them by their whole names.
    fn table(&self, records: &[Value]) -> Table {
        let titles: Vec<String> = self.fields.iter().map(|field| field.to_uppercase()).collect();
        let columns = titles.into_iter().zip(&self.fields).map(|(title, field)| {
            let mut values = records.iter().filter_map(|record| record.get(field));
            let is_number = values.all(|value| value.is_number() || value.is_null());
            (title, if is_number { Column::Number } else { Column::Text })
        });
        let mut table = Table::of(columns.collect());
        for record in records {
            let cell = |field: &String| people(field, record.get(field).unwrap_or(&Value::Null));
            table.row(self.fields.iter().map(cell).collect::<Vec<_>>());
        }
        table
    }
}

/// An answer as comma-separated values: a line of names, then one for each record.
pub(crate) fn csv(json: &Value, fields: &[String]) -> (Vec<String>, Vec<Vec<String>>) {
    let listed = json.get("records").and_then(Value::as_array);
    let records = listed.map_or(std::slice::from_ref(json), Vec::as_slice);
    let names: Vec<String> = match fields {
        [] => {
            let all = records.iter().filter_map(Value::as_object).flat_map(Map::keys);
            all.collect::<BTreeSet<_>>().into_iter().cloned().collect()
        }
        fields => fields.to_vec(),
    };
    let row = |record: &Value| {
        let cell = |name: &String| record.get(name).map_or_else(String::new, plain);
        names.iter().map(cell).collect()
    };
    let rows = records.iter().map(row).collect();
    (names, rows)
}

/// The value of a field of a record, or of a field within a field.
fn at<'a>(record: &'a Value, field: &str) -> Option<&'a Value> {
    field.split('.').try_fold(record, |value, name| value.get(name))
}

fn known(field: &str, records: &[Value]) -> Result<(), AdminError> {
    if records.is_empty() || records.iter().any(|record| at(record, field).is_some()) {
        return Ok(());
    }
    let names = records.iter().filter_map(Value::as_object).flat_map(Map::keys);
    let names: Vec<&str> = names.map(String::as_str).collect::<BTreeSet<_>>().into_iter().collect();
    Err(unusable(field, &format!("the answer has {}", names.join(", "))))
}

pub(crate) fn unusable(field: &str, cause: &str) -> AdminError {
    AdminError::usage("cannot show the answer by field", field)
        .because(format!("{cause}; the command itself was carried out"))
}

/// Numbers by size, texts by their letters; what is not there comes first.
fn compare(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    let number = |value: Option<&Value>| value.and_then(Value::as_f64);
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        _ => one.map(plain).cmp(&other.map(plain)),
    }
}

/// A value as a script wants it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Whether a field is a duration, by its unit.
fn is_duration(field: &str) -> bool {
    field.ends_with("_ns")
}

/// A value as people want it.
fn people(field: &str, value: &Value) -> String {
    match (value, value.as_u64()) {
        (Value::Null, _) => "-".to_owned(),
        (_, Some(bytes)) if field.ends_with("bytes") => ByteSize(bytes).to_string(),
        (_, Some(time)) if is_duration(field) => admin_api::duration::format(time),
        _ => plain(value),
    }
}

#[cfg(test)]
mod tests;

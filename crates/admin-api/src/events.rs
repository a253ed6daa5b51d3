//! Events: what happened to a node's disks, aggregates and work, in order, with numbers that
//! outlive restarts.
//!
//! Invariants: a number is given once, in ascending order; a gap in the numbers is events that the
//! node has dropped, for it keeps so many only. Codes are an interface: scripts match on them, so
//! one is added, never renamed.
//!
//! Fails: never; what is too old is not listed.

use crate::error::AdminError;
use crate::replies::Severity;
use crate::requests::Validate;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;
use units::Timestamp;

/// Events that a node keeps at most.
pub const EVENTS_MAX: usize = 1000;

/// How bad it is that something happened.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum EventSeverity {
    /// Nothing is to be done.
    #[default]
    Info,
    /// Worth attention.
    Warning,
    /// Service or data at risk.
    Error,
}

impl EventSeverity {
    /// All severities.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Error];
}

impl From<Severity> for EventSeverity {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Warning => Self::Warning,
            Severity::Error => Self::Error,
        }
    }
}

impl fmt::Display for EventSeverity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Its number.
    pub sequence: u64,
    /// When the node saw it.
    pub time: Time,
    /// What happened, as a word that stays the same: `DISK_MISSING`.
    pub code: String,
    /// How bad it is.
    pub severity: EventSeverity,
    /// The disk, aggregate or volume.
    pub object: String,
    /// What happened, and why.
    pub cause: String,
    /// What to do or to type, if anything.
    pub next: Option<String>,
}

/// Asks for events, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventList {
    /// Those with a larger number.
    #[serde(default)]
    pub after: Option<u64>,
    /// Those of this time and later.
    #[serde(default)]
    pub since: Option<Time>,
    /// Those of the last so many nanoseconds.
    #[serde(default)]
    pub within_ns: Option<u64>,
    /// Those that are at least so bad.
    #[serde(default)]
    pub severity: Option<EventSeverity>,
    /// The last so many of them.
    #[serde(default)]
    pub most: Option<u64>,
}

impl EventList {
    /// The events that are asked for, of all, oldest first.
    pub fn choose<'a>(&self, now: Time, events: impl Iterator<Item = &'a Event>) -> Vec<Event> {
        let within = self.within_ns.map(|within| i64::try_from(within).unwrap_or(i64::MAX));
        let within = within.map(|within| Time(Timestamp(now.0.get().saturating_sub(within))));
        let is_wanted = |event: &&Event| {
            self.after.is_none_or(|after| event.sequence > after)
                && self.since.max(within).is_none_or(|since| event.time >= since)
                && self.severity.is_none_or(|severity| event.severity >= severity)
        };
        let mut wanted: Vec<Event> = events.filter(is_wanted).cloned().collect();
        let most = self.most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
        wanted.drain(..wanted.len().saturating_sub(most));
        wanted
    }
}

impl Validate for EventList {
    fn validate(&self) -> Result<(), AdminError> {
        match self.most {
            Some(0) => Err(AdminError::usage("cannot list events", "0")
                .because("at least one event must be asked for")
                .try_next("stroop event list")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(sequence: u64, severity: EventSeverity) -> Event {
        Event {
            sequence,
            time: Time(Timestamp::from_parts(sequence as i64, 0)),
            code: "DISK_MISSING".to_owned(),
            severity,
            object: "d1".to_owned(),
            cause: "it is gone".to_owned(),
            next: None,
        }
    }

    #[test]
    fn events_are_chosen_by_number_time_severity_and_count() {
        use EventSeverity::{Error, Info, Warning};
        let events = [event(3, Info), event(4, Warning), event(7, Error), event(8, Info)];
        let now = Time(Timestamp::from_parts(10, 0));
        let chosen = |list: EventList| -> Vec<u64> {
            list.choose(now, events.iter()).iter().map(|event| event.sequence).collect()
        };
        let all = EventList::default();
        assert_eq!(chosen(all), [3, 4, 7, 8]);
        assert_eq!(chosen(EventList { after: Some(4), ..all }), [7, 8]);
        assert_eq!(chosen(EventList { after: Some(9), ..all }), [] as [u64; 0]);
        assert_eq!(chosen(EventList { since: Some(events[1].time), ..all }), [4, 7, 8]);
        assert_eq!(chosen(EventList { within_ns: Some(3_000_000_000), ..all }), [7, 8]);
        assert_eq!(chosen(EventList { within_ns: Some(u64::MAX), ..all }), [3, 4, 7, 8]);
        assert_eq!(chosen(EventList { severity: Some(Warning), ..all }), [4, 7]);
        assert_eq!(chosen(EventList { severity: Some(Info), most: Some(2), ..all }), [7, 8]);
        assert_eq!(chosen(EventList { most: Some(9), ..all }), [3, 4, 7, 8]);
        assert!(EventList { most: Some(0), ..all }.validate().is_err());
        assert!(all.validate().is_ok());
    }

    #[test]
    fn the_word_on_the_wire_is_the_word_that_people_read() {
        for severity in EventSeverity::ALL {
            assert_eq!(serde_json::to_string(&severity).unwrap(), format!("\"{severity}\""));
        }
        assert!(EventSeverity::from(Severity::Error) > Severity::Warning.into());
    }
}

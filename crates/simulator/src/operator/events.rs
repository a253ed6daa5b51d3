//! The events that an operator has seen: they stay what they were, through every end of the node.
//!
//! Invariants: numbers ascend; an event that was listed is listed again, unchanged, until the ring
//! drops it with all before it; a number is given once; a start says whether the end before it was
//! a stop.
//!
//! Fails: [`Finding::Operator`].

use super::calls::wrong;
use super::desk::Asked;
use super::life::OperatorLife;
use super::views::Checked;
use crate::seed::finding::Finding;
use admin_api::{Event, EventList, EventSeverity, Reply, Request};
use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub(super) struct EventBook(BTreeMap<u64, Event>);

impl EventBook {
    /// Takes in a list of all events.
    fn take_in(&mut self, list: &[Event]) -> Checked {
        if !list.is_sorted_by(|one, next| one.sequence < next.sequence) {
            return Err(format!("numbers do not ascend: {list:?}"));
        }
        let first = list.first().map_or(u64::MAX, |event| event.sequence);
        let last_seen = self.0.keys().next_back().copied().unwrap_or(0);
        for event in list {
            match self.0.get(&event.sequence) {
                Some(seen) if seen != event => {
                    return Err(format!("{event:?} was {seen:?} before"));
                }
                None if event.sequence <= last_seen => {
                    return Err(format!("{event:?} was not there before {last_seen}"));
                }
                _ => {}
            }
        }
        let is_listed = |sequence: &u64| list.iter().any(|event| event.sequence == *sequence);
        if let Some(lost) = self.0.keys().find(|seen| **seen >= first && !is_listed(seen)) {
            return Err(format!("event {lost} is not listed any more"));
        }
        if list.is_empty() && last_seen > 0 {
            return Err("no event is listed any more".to_owned());
        }
        self.0 = list.iter().map(|event| (event.sequence, event.clone())).collect();
        Ok(())
    }

    /// Whether the last start says how the node ended before.
    fn check_start(&self, was_stopped: bool) -> Checked {
        let started = self.0.values().rfind(|event| event.code == "SERVER_STARTED");
        let severity = started.map(|event| event.severity);
        let expected = match was_stopped {
            true => EventSeverity::Info,
            false => EventSeverity::Warning,
        };
        match severity == Some(expected) {
            true => Ok(()),
            false => Err(format!("the node was stopped: {was_stopped}; told: {started:?}")),
        }
    }
}

impl OperatorLife<'_> {
    /// Looks at all events.
    pub(super) fn check_events(&mut self) -> Result<(), Finding> {
        let request = Request::EventList(EventList::default());
        let Reply::EventList(list) = self.read(request.clone())? else { return Ok(()) };
        for event in &list {
            match event.code.as_str() {
                "DISK_MISSING" => self.machine.trace.meet("operator: a disk that left is told"),
                "DISK_RETURNED" => {
                    self.machine.trace.meet("operator: a disk that returned is told")
                }
                "DISK_REPLACED" => self.machine.trace.meet("operator: a replaced disk is told"),
                "AGGR_OFFLINE" => self.machine.trace.meet("operator: an outage is told"),
                _ => {}
            }
        }
        let asked = Asked::Request(Box::new(request));
        self.events_seen.take_in(&list).map_err(|text| wrong(&asked, &text))
    }

    /// The same after a start, which says how the node ended before.
    pub(super) fn check_events_of_start(&mut self, was_stopped: bool) -> Result<(), Finding> {
        self.check_events()?;
        let checked = self.events_seen.check_start(was_stopped);
        checked.map_err(|text| wrong(&Asked::Open, &text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin_api::Time;

    fn event(sequence: u64, code: &str) -> Event {
        Event {
            sequence,
            time: Time::default(),
            code: code.to_owned(),
            severity: EventSeverity::Info,
            object: "a1".to_owned(),
            cause: "it did".to_owned(),
            next: None,
        }
    }

    #[test]
    fn events_that_change_vanish_or_come_late_are_found() {
        let list = |sequences: &[u64]| -> Vec<Event> {
            sequences.iter().map(|sequence| event(*sequence, "AGGR_OPENED")).collect()
        };
        let seen = || {
            let mut book = EventBook::default();
            book.take_in(&list(&[3, 4, 6])).unwrap();
            book
        };
        assert!(seen().take_in(&list(&[4, 6, 9])).is_ok(), "the oldest are dropped");
        for wrong in [&[3, 6][..], &[3, 4, 5, 6], &[4, 3, 6], &[3, 4], &[]] {
            assert!(seen().take_in(&list(wrong)).is_err(), "{wrong:?}");
        }
        let mut changed = list(&[3, 4, 6]);
        changed[1] = event(4, "AGGR_FULL");
        assert!(seen().take_in(&changed).is_err());
        let mut book = seen();
        assert!(book.check_start(true).is_err());
        book.take_in(&[list(&[3, 4, 6]), vec![event(7, "SERVER_STARTED")]].concat()).unwrap();
        assert!(book.check_start(true).is_ok() && book.check_start(false).is_err());
    }
}

//! The last events.
//!
//! Invariants: numbers ascend, and none is given twice; the ring holds at most [`EVENTS_MAX`]
//! events and [`RING_BYTES_MAX`] bytes, the oldest go first; no text is longer than its limit.
//!
//! Fails: never; a text that is too long loses its end.

use admin_api::{EVENTS_MAX, Event, EventSeverity, Time};
use std::collections::VecDeque;
use units::Timestamp;

/// Bytes of an object's name at most: a path, mostly.
pub(crate) const OBJECT_BYTES_MAX: usize = 256;
/// Bytes of a cause at most. The status has all of a health check.
pub(crate) const CAUSE_BYTES_MAX: usize = 1000;
/// Bytes of a next step at most.
pub(crate) const NEXT_BYTES_MAX: usize = 600;
/// Bytes of all texts at most, as they are escaped in the file at worst: half of a state file.
pub(crate) const RING_BYTES_MAX: usize = 2 << 20;
/// What an event takes in the file beside its texts.
const EVENT_BYTES: usize = 160;
/// A byte of a text takes so many in the file at worst.
const ESCAPED_BYTES: usize = 3;
const CUT: &str = "...";

const _: () = {
    let texts = OBJECT_BYTES_MAX + CAUSE_BYTES_MAX + NEXT_BYTES_MAX;
    // A screen of events is kept however long their texts are.
    assert!(RING_BYTES_MAX / (EVENT_BYTES + ESCAPED_BYTES * texts) > 100);
};

/// Something that happened, before it has a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Happening {
    pub code: String,
    pub severity: EventSeverity,
    pub object: String,
    pub cause: String,
    pub next: Option<String>,
}

impl Happening {
    /// Something about which nothing is to be done.
    pub(crate) fn new(
        severity: EventSeverity,
        code: impl Into<String>,
        object: impl Into<String>,
        cause: impl Into<String>,
    ) -> Self {
        let (code, object, cause) = (code.into(), object.into(), cause.into());
        Self { code, severity, object, cause, next: None }
    }

    /// Says what to do or to type.
    pub(crate) fn next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Ring {
    events: VecDeque<Event>,
    next: u64,
    bytes: usize,
}

impl Ring {
    /// These events, in ascending order; the next has the number `next` or a larger one.
    pub(crate) fn new(events: Vec<Event>, next: u64) -> Self {
        let mut ring = Self { events: VecDeque::new(), next, bytes: 0 };
        events.into_iter().for_each(|event| ring.keep(event));
        ring
    }

    /// Something happened.
    pub(crate) fn push(&mut self, now: Timestamp, happening: Happening) -> Event {
        let Happening { code, severity, object, cause, next } = happening;
        let event = Event {
            sequence: self.next,
            time: Time(now),
            code,
            severity,
            object: cut(object, OBJECT_BYTES_MAX),
            cause: cut(cause, CAUSE_BYTES_MAX),
            next: next.map(|next| cut(next, NEXT_BYTES_MAX)),
        };
        self.keep(event.clone());
        event
    }

    fn keep(&mut self, event: Event) {
        self.next = self.next.max(event.sequence.saturating_add(1));
        self.bytes += bytes_of(&event);
        self.events.push_back(event);
        while self.events.len() > EVENTS_MAX || self.bytes > RING_BYTES_MAX {
            let Some(oldest) = self.events.pop_front() else { return };
            self.bytes -= bytes_of(&oldest);
        }
    }

    /// Oldest first.
    pub(crate) fn events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.iter()
    }

    /// The number of the next event.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }
}

fn bytes_of(event: &Event) -> usize {
    let next = event.next.as_ref().map_or(0, String::len);
    EVENT_BYTES + ESCAPED_BYTES * (event.object.len() + event.cause.len() + next)
}

/// A text of at most so many bytes.
fn cut(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let end = text.floor_char_boundary(bytes_max - CUT.len());
    format!("{}{CUT}", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happening(cause: &str) -> Happening {
        Happening::new(EventSeverity::Info, "AGGR_OPENED", "a1", cause)
    }

    #[test]
    fn the_oldest_events_go_first_and_numbers_go_on() {
        let mut ring = Ring::new(Vec::new(), 5);
        for number in 0..EVENTS_MAX as i64 + 3 {
            let event = ring.push(Timestamp(number), happening("opened"));
            assert_eq!(event.sequence, 5 + number as u64);
        }
        let sequences: Vec<u64> = ring.events().map(|event| event.sequence).collect();
        assert_eq!((sequences.len(), sequences[0]), (EVENTS_MAX, 8));
        assert_eq!(ring.next(), 5 + EVENTS_MAX as u64 + 3);
        let again = Ring::new(ring.events().cloned().collect(), 1);
        assert_eq!(again.next(), ring.next(), "numbers that were given are not given again");
    }

    #[test]
    fn long_texts_are_cut_and_many_of_them_push_others_out() {
        let mut ring = Ring::new(Vec::new(), 1);
        let long = "\u{e9}".repeat(CAUSE_BYTES_MAX);
        for _ in 0..EVENTS_MAX {
            let event = ring.push(Timestamp(0), happening(&long).next(long.as_str()));
            assert!(event.cause.len() <= CAUSE_BYTES_MAX && event.cause.ends_with("\u{e9}..."));
            assert!(event.next.is_some_and(|next| next.len() <= NEXT_BYTES_MAX));
        }
        let count = ring.events().count();
        assert!((100..EVENTS_MAX).contains(&count), "{count}");
        assert!(ring.bytes <= RING_BYTES_MAX);
        (0..EVENTS_MAX).for_each(|_| drop(ring.push(Timestamp(0), happening("short"))));
        assert_eq!(ring.events().count(), EVENTS_MAX);
        assert_eq!(ring.bytes, EVENTS_MAX * bytes_of(ring.events.back().unwrap()));
    }
}

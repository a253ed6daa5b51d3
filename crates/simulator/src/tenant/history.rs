//! What happened to a volume since it was last known to be durable, in an order in which it may be
//! told to [`Journal`].
//!
//! The order is that of the answers, but for what promises durability and is answered later than it
//! is applied (COMMIT and stable writes of a caller who is else answered at once): that stands
//! where it was asked for, because it promises nothing for operations that were applied in the
//! meantime. A consistency point stands where it was asked for as well, and a snapshot that is made
//! or restored: nothing is in flight then, and what begins before the answer comes after the
//! freeze.
//!
//! Invariants: moments ascend and none is given out twice; operations in flight at one time touch
//! different files, so moving one past another changes no answer.

use file_service::Stability;
use model_fs::crash::{CrashViolation, Journal, Verdict};
use model_fs::{Image, ImageError, Model, Observation, Operation, Runner};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A moment of a history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

enum Event {
    /// With the moment of the answer.
    Answered(Box<(Operation, Observation)>, Moment),
    /// The directory at this path became a quota tree, while nothing was under way.
    Tree(Vec<u8>),
    /// A consistency point.
    Durable,
}

/// See the module.
pub struct History {
    base: Journal,
    is_logged: bool,
    next: u64,
    events: BTreeMap<Moment, Event>,
}

impl History {
    /// Begins at the model's state, which is durable. `is_logged`: changes are answered when their
    /// records are durable.
    pub fn new(model: &Runner<Model>, is_logged: bool) -> Result<Self, ImageError> {
        let base = Journal::new(model)?;
        Ok(Self { base, is_logged, next: 0, events: BTreeMap::new() })
    }

    /// Now.
    pub const fn now(&mut self) -> Moment {
        self.next += 1;
        Moment(self.next)
    }

    /// An operation that was asked for at `asked` is answered.
    pub fn answered(&mut self, asked: Moment, operation: Operation, seen: Observation) {
        let promises = match &seen {
            Observation::Wrote { stability, .. } => *stability != Stability::Unstable,
            _ => matches!(operation, Operation::Commit { .. } | Operation::Snapshot(_)),
        };
        let now = self.now();
        let at = if promises { asked } else { now };
        self.events.insert(at, Event::Answered(Box::new((operation, seen)), now));
    }

    /// The directory at a path has become a quota tree.
    pub fn tree(&mut self, path: Vec<u8>) {
        let now = self.now();
        self.events.insert(now, Event::Tree(path));
    }

    /// A consistency point that was asked for at `asked` has committed.
    pub fn durable(&mut self, asked: Moment) {
        self.events.insert(asked, Event::Durable);
    }

    /// Whether what was found after a crash is allowed, given what was in flight, and whether the
    /// log may have lost what it had acknowledged. The history ends with it.
    pub fn check(
        &mut self,
        in_flight: Vec<(Moment, Operation)>,
        found: &Image,
        is_log_suspect: bool,
    ) -> Result<Verdict, CrashViolation> {
        let events = self.in_order(is_log_suspect);
        let moments: Vec<Moment> = events.iter().map(|(at, _)| *at).collect();
        for (_, event) in events {
            match event {
                Event::Answered(answered, _) => {
                    let (operation, seen) = *answered;
                    self.base.answered(operation, seen, self.is_logged);
                }
                Event::Tree(path) => self.base.tree(path),
                Event::Durable => self.base.barrier(),
            }
        }
        for (asked, operation) in in_flight {
            let started_after = moments.partition_point(|moment| *moment < asked);
            self.base.in_flight(operation, started_after);
        }
        if is_log_suspect {
            self.base.forget_promises();
        }
        self.base.check(found)
    }

    /// The events in their order, with the moments at which they stand.
    ///
    /// A write that promises durability stands where it was asked for. If it was answered after a
    /// consistency point was asked for it may have been applied after the freeze. Where the log may
    /// have lost it nothing made it durable, so it stands behind the consistency point.
    fn in_order(&mut self, is_log_suspect: bool) -> Vec<(Moment, Event)> {
        let events = std::mem::take(&mut self.events);
        let later = |asked: Moment, answered: Moment| {
            if !is_log_suspect || asked >= answered {
                return None;
            }
            let mut meanwhile = events.range((Bound::Excluded(asked), Bound::Excluded(answered)));
            meanwhile.rfind(|(_, event)| matches!(event, Event::Durable)).map(|(at, _)| *at)
        };
        let stands: Vec<Moment> = events
            .iter()
            .map(|(at, event)| match event {
                Event::Durable | Event::Tree(_) => *at,
                Event::Answered(of, answered)
                    if matches!(of.0, Operation::Write { .. } | Operation::Append { .. }) =>
                {
                    later(*at, *answered).unwrap_or(*at)
                }
                Event::Answered(..) => *at,
            })
            .collect();
        let mut ordered: Vec<(Moment, Event)> =
            stands.into_iter().zip(events.into_values()).collect();
        // At one moment the consistency point comes first.
        ordered.sort_by_key(|(at, event)| (*at, matches!(event, Event::Answered(..))));
        ordered
    }
}

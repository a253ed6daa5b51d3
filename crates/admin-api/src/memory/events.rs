//! The events of the node in memory: disks that fail and are replaced, scrubs.

use crate::events::{EVENTS_MAX, Event, EventList, EventSeverity};
use crate::scrub::ScrubAction;
use crate::time::Time;
use units::Timestamp;

/// The last events, oldest first.
#[derive(Default)]
pub(crate) struct Events {
    kept: Vec<Event>,
    last: u64,
}

impl Events {
    /// Something happened; its time is as many seconds as its number.
    pub(crate) fn note(&mut self, severity: EventSeverity, code: &str, object: &str, cause: &str) {
        self.last += 1;
        if self.kept.len() == EVENTS_MAX {
            self.kept.remove(0);
        }
        let next = (severity > EventSeverity::Info).then(|| "stroop status".to_owned());
        self.kept.push(Event {
            sequence: self.last,
            time: Time(Timestamp::from_parts(i64::try_from(self.last).unwrap_or(i64::MAX), 0)),
            code: code.to_owned(),
            severity,
            object: object.to_owned(),
            cause: cause.to_owned(),
            next,
        });
    }

    /// A scrub was begun or changed.
    pub(crate) fn note_scrub(&mut self, aggregate: &str, action: ScrubAction) {
        let code = match action {
            ScrubAction::Start => "SCRUB_STARTED",
            ScrubAction::Stop => "SCRUB_CANCELLED",
            ScrubAction::Pause | ScrubAction::Resume => return,
        };
        self.note(EventSeverity::Info, code, aggregate, "as an administrator asked for");
    }

    pub(crate) fn list(&self, request: &EventList) -> Vec<Event> {
        let now = self.kept.last().map_or_else(Time::default, |event| event.time);
        request.choose(now, self.kept.iter())
    }
}

//! The events of a node, and what it knew at its last look, as a text that outlives restarts.
//!
//! A line says what the text is; each other line is an entry, its fields apart by blanks
//! ([`crate::fields`]), the last of which is the CRC32C of the line before it:
//!
//! ```text
//! stroop-events 1
//! next 58 1c291ca3
//! open AGGR_DEGRADED a1 a1 5d0e3c11
//! disk 0101..01 a1 0 1 0202..02 /dev/sdb missing well 0 0 0 9b1de5f0
//! disk 0101..01 a1 spare - 0404..04 /dev/sdd whole well 0 0 0 1d6c0a77
//! event 57 1732541528000000000 warning DISK_MISSING /dev/sdb it%20left - 71b20f43
//! ```
//!
//! `next` is the number of the next event, `open` a health check that did not pass, `disk` a disk
//! as it was, `event` an event.
//!
//! Invariants: what is printed is parsed to the same; an entry whose bytes are not what was
//! written is left out, and no other; numbers go on above all that were given, whatever is damaged.
//!
//! Fails: never; what cannot be read is counted.

use crate::events::conditions::{CONDITIONS_MAX, Condition, Conditions};
use crate::events::disks::{DISKS_MAX, Disks, KnownDisk, Place, Presence};
use crate::events::ring::Ring;
use crate::fields::{NOTHING, escape, parse_identity, print_identity, unescape};
use admin_api::{Event, EventSeverity, Time};
use ondisk::identity::crc32c_of_bytes;
use raid::ErrorCounts;
use units::{AggregateUuid, DiskUuid, Timestamp};

/// The first line: what the file is, and the version of its form.
const TITLE: &str = "stroop-events 1";
const PRESENCES: [(Presence, &str); 4] = [
    (Presence::Whole, "whole"),
    (Presence::Filling, "filling"),
    (Presence::Missing, "missing"),
    (Presence::Failed, "failed"),
];
const SICK: [(bool, &str); 2] = [(true, "sick"), (false, "well")];

/// What is kept.
#[derive(Debug)]
pub(crate) struct Record {
    pub ring: Ring,
    pub conditions: Conditions,
    pub disks: Disks,
}

impl Record {
    /// Nothing has happened yet.
    pub(crate) fn empty(next: u64) -> Self {
        let (conditions, disks) = (Conditions::default(), Disks::default());
        Self { ring: Ring::new(Vec::new(), next), conditions, disks }
    }
}

/// The text of all of it.
pub(crate) fn print(record: &Record) -> String {
    let mut text = format!("{TITLE}\n");
    let mut entry = |entry: String| {
        let crc = crc32c_of_bytes(entry.as_bytes());
        text.push_str(&format!("{entry} {crc:08x}\n"));
    };
    entry(format!("next {}", record.ring.next()));
    record.conditions.0.iter().for_each(|condition| entry(print_condition(condition)));
    record.disks.0.iter().for_each(|disk| entry(print_disk(disk)));
    record.ring.events().for_each(|event| entry(print_event(event)));
    text
}

/// What a text says, and how many of its lines cannot be read. Numbers are at least `next_min` if
/// it cannot be told which were given.
pub(crate) fn parse(text: &str, next_min: u64) -> (Record, usize) {
    let mut lines = text.lines();
    if lines.next() != Some(TITLE) {
        return (Record::empty(next_min), text.lines().count());
    }
    let (mut conditions, mut disks) = (Conditions::default(), Disks::default());
    let (mut events, mut next, mut damaged): (Vec<Event>, _, _) = (Vec::new(), None, 0);
    for line in lines {
        let entry = checked(line).and_then(parse_entry);
        let last = events.last().map_or(0, |event| event.sequence);
        match entry {
            Some(Entry::Next(number)) if next.is_none() => next = Some(number),
            Some(Entry::Condition(one)) if conditions.0.len() < CONDITIONS_MAX => {
                conditions.0.push(one);
            }
            Some(Entry::Disk(one)) if disks.0.len() < DISKS_MAX => disks.0.push(one),
            Some(Entry::Event(event)) if event.sequence > last => events.push(event),
            _ => damaged += 1,
        }
    }
    // A text that was cut off lacks its last events, of which `next` knows.
    let is_whole = next.is_some_and(|next| events.last().is_none_or(|one| one.sequence < next));
    let next = if is_whole { next.unwrap_or(next_min) } else { next_min.max(next.unwrap_or(0)) };
    (Record { ring: Ring::new(events, next), conditions, disks }, damaged)
}

enum Entry {
    Next(u64),
    Condition(Condition),
    Disk(KnownDisk),
    Event(Event),
}

/// What a line says, if its bytes are those that were written.
fn checked(line: &str) -> Option<&str> {
    let (entry, crc) = line.rsplit_once(' ')?;
    let is_it = crc.len() == 8 && format!("{:08x}", crc32c_of_bytes(entry.as_bytes())) == crc;
    is_it.then_some(entry)
}

fn parse_entry(entry: &str) -> Option<Entry> {
    let mut fields = entry.split(' ');
    let parsed = match fields.next()? {
        "next" => Entry::Next(fields.next()?.parse().ok()?),
        "open" => Entry::Condition(parse_condition(&mut fields)?),
        "disk" => Entry::Disk(parse_disk(&mut fields)?),
        "event" => Entry::Event(parse_event(&mut fields)?),
        _ => return None,
    };
    fields.next().is_none().then_some(parsed)
}

type Fields<'a> = std::str::Split<'a, char>;

fn print_condition(condition: &Condition) -> String {
    let Condition { code, object, aggregate, .. } = condition;
    let aggregate = escape(aggregate.as_deref());
    format!("open {} {} {aggregate}", escape(Some(code)), escape(Some(object)))
}

fn parse_condition(fields: &mut Fields<'_>) -> Option<Condition> {
    Some(Condition {
        code: text(fields)?,
        object: text(fields)?,
        aggregate: unescape(fields.next()?)?,
        passes_since: None,
    })
}

fn print_disk(known: &KnownDisk) -> String {
    let place = match known.place {
        Place::Member { group, member } => format!("{group} {member}"),
        Place::Spare => format!("spare {NOTHING}"),
    };
    let ErrorCounts { read_errors, write_errors, checksum_errors } = known.told;
    format!(
        "disk {} {} {place} {} {} {} {} {read_errors} {write_errors} {checksum_errors}",
        print_identity(Some(known.aggregate.0)),
        escape(Some(&known.owner)),
        print_identity(Some(known.identity.0)),
        escape(Some(&known.disk)),
        word(&PRESENCES, known.presence),
        word(&SICK, known.is_sick),
    )
}

fn parse_disk(fields: &mut Fields<'_>) -> Option<KnownDisk> {
    let mut next = || fields.next();
    let aggregate = AggregateUuid(parse_identity(next()?)??);
    let owner = unescape(next()?)??;
    let place = match (next()?, next()?) {
        ("spare", NOTHING) => Place::Spare,
        (group, member) => {
            Place::Member { group: group.parse().ok()?, member: member.parse().ok()? }
        }
    };
    let identity = DiskUuid(parse_identity(next()?)??);
    let disk = unescape(next()?)??;
    let (presence, is_sick) = (meaning(&PRESENCES, next()?)?, meaning(&SICK, next()?)?);
    let mut count = || next()?.parse().ok();
    let (read_errors, write_errors, checksum_errors) = (count()?, count()?, count()?);
    let told = ErrorCounts { read_errors, write_errors, checksum_errors };
    let told_nanoseconds = None;
    Some(KnownDisk {
        aggregate,
        owner,
        place,
        identity,
        disk,
        presence,
        is_sick,
        told,
        told_nanoseconds,
    })
}

fn print_event(event: &Event) -> String {
    format!(
        "event {} {} {} {} {} {} {}",
        event.sequence,
        event.time.0.get(),
        event.severity,
        escape(Some(&event.code)),
        escape(Some(&event.object)),
        escape(Some(&event.cause)),
        escape(event.next.as_deref()),
    )
}

fn parse_event(fields: &mut Fields<'_>) -> Option<Event> {
    let sequence = fields.next()?.parse().ok()?;
    let time = Time(Timestamp(fields.next()?.parse().ok()?));
    let severity = fields.next()?;
    Some(Event {
        sequence,
        time,
        severity: EventSeverity::ALL.into_iter().find(|known| known.to_string() == severity)?,
        code: text(fields)?,
        object: text(fields)?,
        cause: text(fields)?,
        next: unescape(fields.next()?)?,
    })
}

/// A text that may be empty.
fn text(fields: &mut Fields<'_>) -> Option<String> {
    unescape(fields.next()?).map(Option::unwrap_or_default)
}

fn word<T: PartialEq + Copy>(words: &[(T, &'static str)], meant: T) -> &'static str {
    let found = words.iter().find(|(meaning, _)| *meaning == meant);
    found.map_or(NOTHING, |(_, word)| word)
}

fn meaning<T: Copy>(words: &[(T, &str)], read: &str) -> Option<T> {
    words.iter().find(|(_, word)| *word == read).map(|(meaning, _)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::ring::Happening;
    use proptest::prelude::*;

    fn disk_strategy() -> impl Strategy<Value = KnownDisk> {
        let place = prop_oneof![
            Just(Place::Spare),
            any::<(u32, u32)>().prop_map(|(group, member)| Place::Member { group, member }),
        ];
        let presence = prop::sample::select(PRESENCES.to_vec());
        let told = any::<(u32, u32, u32)>();
        let names = (".{1,20}", ".{1,20}");
        (place, presence, any::<([u8; 16], [u8; 16], bool)>(), names, told).prop_map(
            |(place, presence, (aggregate, identity, is_sick), (owner, disk), told)| KnownDisk {
                aggregate: AggregateUuid(aggregate),
                owner,
                place,
                identity: DiskUuid(identity),
                disk,
                presence: presence.0,
                is_sick,
                told: ErrorCounts {
                    read_errors: told.0,
                    write_errors: told.1,
                    checksum_errors: told.2,
                },
                told_nanoseconds: None,
            },
        )
    }

    fn record_strategy() -> impl Strategy<Value = Record> {
        let severity = prop::sample::select(EventSeverity::ALL.to_vec());
        let texts = ("[A-Z_]{1,12}", ".{0,20}", ".{0,30}", prop::option::of(".{1,20}"));
        let event = (any::<i64>(), severity, texts);
        let condition = ("[A-Z_]{1,12}", ".{1,20}", prop::option::of(".{1,20}"));
        let condition = condition.prop_map(|(code, object, aggregate)| Condition {
            code,
            object,
            aggregate,
            passes_since: None,
        });
        let disks = prop::collection::vec(disk_strategy(), 0..4);
        let conditions = prop::collection::vec(condition, 0..4);
        (prop::collection::vec(event, 0..6), conditions, disks, 1_u64..1 << 40).prop_map(
            |(events, conditions, disks, first)| {
                let mut record = Record::empty(first);
                for (at, severity, (code, object, cause, next)) in events {
                    let happening = Happening { code, severity, object, cause, next };
                    record.ring.push(Timestamp(at), happening);
                }
                Record { conditions: Conditions(conditions), disks: Disks(disks), ..record }
            },
        )
    }

    fn same(record: &Record, other: &Record) -> bool {
        format!("{record:?}") == format!("{other:?}")
    }

    proptest! {
        #[test]
        fn what_is_printed_is_parsed_to_the_same(record in record_strategy()) {
            let text = print(&record);
            let (parsed, damaged) = parse(&text, 1);
            prop_assert!(same(&parsed, &record) && damaged == 0, "{text}\n{parsed:?}");
            prop_assert!(text.is_ascii());
        }

        /// A byte that rots costs its entry, an end that is cut off the entries there; the numbers
        /// go on above all that were given.
        #[test]
        fn damage_costs_what_is_damaged(
            record in record_strategy(),
            (at, bit, is_cut) in (any::<prop::sample::Index>(), 0_u8..7, any::<bool>()),
        ) {
            let text = print(&record);
            let at = at.index(text.len());
            let mut bytes = text.clone().into_bytes();
            match is_cut {
                true => bytes.truncate(at),
                false => bytes[at] ^= 1_u8 << bit,
            }
            let (parsed, damaged) = parse(&String::from_utf8_lossy(&bytes), 1 << 50);
            prop_assert!(parsed.ring.next() >= record.ring.next());
            let title = at < TITLE.len() + 1;
            let whole: Vec<&Event> = record.ring.events().collect();
            let left: Vec<&Event> = parsed.ring.events().collect();
            prop_assert!(left.iter().all(|event| whole.contains(event)), "nothing is made up");
            let entries = |record: &Record| {
                record.ring.events().count() + record.conditions.0.len() + record.disks.0.len()
            };
            if !is_cut && !title {
                // A line end that rots joins two entries.
                prop_assert!(entries(&record) - entries(&parsed) <= 2 && damaged <= 2);
            }
        }

        #[test]
        fn any_text_is_parsed(text in "(stroop-events 1\n)?(.|\n){0,80}") {
            let _ = parse(&text, 1);
        }
    }

    #[test]
    fn a_text_of_another_version_is_left_out_and_numbers_go_on() {
        let (record, damaged) = parse("stroop-events 2\nnext 5\n", 1000);
        assert_eq!((record.ring.next(), damaged), (1000, 2));
        let (record, damaged) = parse("", 1);
        assert_eq!((record.ring.next(), damaged), (1, 0));
    }
}

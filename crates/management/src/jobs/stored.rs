//! The jobs of a node as a text that outlives restarts: a line that says what it is, one with the
//! next number, and one for each job, its fields apart by blanks. The last three are the identities
//! of aggregate and disk, of 32 hexadecimal digits (left out here), and the rate. The first version
//! lacked identities, the second rates.
//!
//! ```text
//! stroop-jobs 3
//! next 8
//! 7 rebuild running 0 1732541528000000000 - 0 268435456 a1 disk /dev/sdb - - - 10485760
//! ```
//!
//! Where no job has a rate the text is of the second version, which older builds read.
//!
//! A field that may hold anything is escaped ([`crate::fields`]).
//!
//! Invariants: what is printed is parsed to the same; how far a job is counts only until the engine
//! is asked.
//!
//! Fails: with a sentence that says which line cannot be read; nothing of such a text is used.

use crate::fields::{NOTHING, beginning_of, escape, parse_identity, print_identity, unescape};
use crate::jobs::job::{Identities, Job, Key, Subject};
use crate::jobs::table::Table;
use crate::pace::Recent;
use admin_api::{JobKind, JobState};
use units::{AggregateUuid, DiskUuid, Timestamp};

/// The first line: what the file is, and the version of its form.
const TITLE: &str = "stroop-jobs 3";
/// The version without rates.
const TITLE_WITHOUT_RATES: &str = "stroop-jobs 2";
/// The version without rates and identities.
const FIRST_TITLE: &str = "stroop-jobs 1";

/// The text of all jobs.
pub(crate) fn print(table: &Table) -> String {
    let has_rates = table.jobs().iter().any(|job| job.rate.is_some());
    let title = if has_rates { TITLE } else { TITLE_WITHOUT_RATES };
    let mut text = format!("{title}\nnext {}\n", table.next_number());
    for job in table.jobs() {
        text.push_str(&line(job));
        if has_rates {
            text.push(' ');
            text.push_str(&job.rate.map_or_else(|| NOTHING.to_owned(), |rate| rate.to_string()));
        }
        text.push('\n');
    }
    text
}

/// The jobs of a text.
///
/// # Errors
/// What cannot be read of it.
pub(crate) fn parse(text: &str) -> Result<Table, String> {
    let mut lines = (1..).zip(text.lines());
    let has_rates = match lines.next() {
        Some((_, TITLE)) => true,
        Some((_, TITLE_WITHOUT_RATES | FIRST_TITLE)) => false,
        Some((_, other)) => {
            return Err(format!("it begins with '{}', not with '{TITLE}'", beginning_of(other)));
        }
        None => return Err("it is empty".to_owned()),
    };
    let next = lines.next().and_then(|(_, line)| line.strip_prefix("next ")?.parse::<u64>().ok());
    let Some(next) = next else { return Err("line 2 does not say the next number".to_owned()) };
    let mut jobs: Vec<Job> = Vec::new();
    for (number, line) in lines {
        let job = job(line, has_rates).ok_or_else(|| format!("line {number} is no job"))?;
        if job.number >= next || jobs.last().is_some_and(|before| before.number >= job.number) {
            return Err(format!("line {number} is out of order"));
        }
        jobs.push(job);
    }
    Ok(Table::new(jobs, next))
}

fn line(job: &Job) -> String {
    let Key { kind, aggregate, subject, birth, identities } = &job.key;
    let subject = match subject {
        Subject::Aggregate => format!("all {NOTHING}"),
        Subject::Disk(name) => format!("disk {}", escape(Some(name))),
        Subject::Group(group) => format!("group {group}"),
        Subject::Volume(name) => format!("volume {}", escape(Some(name))),
    };
    format!(
        "{} {kind} {} {birth} {} {} {} {} {} {subject} {} {} {}",
        job.number,
        job.state,
        job.began.get(),
        job.ended.map_or_else(|| NOTHING.to_owned(), |ended| ended.get().to_string()),
        job.done_bytes,
        job.size_bytes,
        escape(aggregate.as_deref()),
        escape(job.reason.as_deref()),
        print_identity(identities.aggregate.map(|identity| identity.0)),
        print_identity(identities.disk.map(|identity| identity.0)),
    )
}

fn job(line: &str, has_rates: bool) -> Option<Job> {
    let mut fields = line.split(' ');
    let mut next = || fields.next();
    let number = next()?.parse().ok()?;
    let kind = next()?;
    let kind = JobKind::ALL.into_iter().find(|known| known.to_string() == kind)?;
    let state = next()?;
    let state = JobState::ALL.into_iter().find(|known| known.to_string() == state)?;
    let birth = next()?.parse().ok()?;
    let began = Timestamp(next()?.parse().ok()?);
    let ended = match next()? {
        NOTHING => None,
        ended => Some(Timestamp(ended.parse().ok()?)),
    };
    let (done_bytes, size_bytes) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let aggregate = unescape(next()?)?;
    let subject = match (next()?, next()?) {
        ("all", NOTHING) => Subject::Aggregate,
        ("disk", name) => Subject::Disk(unescape(name)??),
        ("group", group) => Subject::Group(group.parse().ok()?),
        ("volume", name) => Subject::Volume(unescape(name)??),
        _ => return None,
    };
    let reason = unescape(next()?)?;
    let mut identity = || next().map_or(Some(None), parse_identity);
    let identities =
        Identities { aggregate: identity()?.map(AggregateUuid), disk: identity()?.map(DiskUuid) };
    let rate = match has_rates {
        true => match next()? {
            NOTHING => None,
            rate => Some(rate.parse().ok().filter(|rate| *rate > 0)?),
        },
        false => None,
    };
    if next().is_some() || state.is_over() != ended.is_some() {
        return None;
    }
    let key = Key { kind, aggregate, subject, birth, identities };
    let recent = Recent::default();
    let is_given_up = false;
    Some(Job {
        number,
        key,
        state,
        began,
        ended,
        done_bytes,
        size_bytes,
        reason,
        rate,
        is_given_up,
        recent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn job_strategy() -> impl Strategy<Value = Job> {
        let subject = prop_oneof![
            Just(Subject::Aggregate),
            ".{1,20}".prop_map(Subject::Disk),
            any::<u32>().prop_map(Subject::Group),
            ".{1,20}".prop_map(Subject::Volume),
        ];
        let kind = prop::sample::select(JobKind::ALL.to_vec());
        let state = prop::sample::select(JobState::ALL.to_vec());
        let texts = prop::option::of(".{1,20}");
        let numbers = (any::<i64>(), any::<i64>(), any::<i64>(), any::<u64>(), any::<u64>());
        let rate = prop::option::of(1_u64..);
        let identities = (any::<Option<[u8; 16]>>(), any::<Option<[u8; 16]>>());
        let identities = identities.prop_map(|(aggregate, disk)| Identities {
            aggregate: aggregate.map(AggregateUuid),
            disk: disk.map(DiskUuid),
        });
        (subject, (kind, state, rate), identities, (texts.clone(), texts), numbers).prop_map(
            |(subject, of, identities, (aggregate, reason), (birth, began, ended, done, size))| {
                let key = Key { kind: of.0, aggregate, subject, birth, identities };
                Job {
                    state: of.1,
                    ended: of.1.is_over().then_some(Timestamp(ended)),
                    done_bytes: done,
                    size_bytes: size,
                    reason,
                    rate: of.2,
                    ..Job::new(0, key, Timestamp(began))
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_printed_is_parsed_to_the_same(
            jobs in prop::collection::vec(job_strategy(), 0..5),
            first in 1_u64..1 << 40,
        ) {
            let numbered = |(number, job)| Job { number, ..job };
            let jobs: Vec<Job> = (first..).zip(jobs).map(numbered).collect();
            let table = Table::new(jobs.clone(), first + jobs.len() as u64);
            let text = print(&table);
            let parsed = parse(&text).unwrap();
            prop_assert_eq!(parsed.next_number(), table.next_number());
            prop_assert_eq!(format!("{:?}", parsed.jobs()), format!("{jobs:?}"));
            prop_assert!(text.is_ascii());
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "(stroop-jobs [23]\nnext 9\n)?(.|\n){0,80}") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn a_text_that_cannot_be_read_is_refused_with_the_line() {
        let whole = "stroop-jobs 1\nnext 8\n\
                     7 rebuild running 0 5 - 0 9 a1 disk /dev/a%20b -\n";
        let parsed = parse(whole).unwrap();
        assert_eq!(parsed.jobs()[0].key.subject, Subject::Disk("/dev/a b".to_owned()));
        for (from, to, cause) in [
            ("jobs 1", "jobs 4", "it begins with 'stroop-jobs 4', not with 'stroop-jobs 3'"),
            // The version says that there is a rate.
            ("jobs 1", "jobs 3", "line 3 is no job"),
            ("next 8", "next x", "line 2 does not say the next number"),
            ("next 8", "next 7", "line 3 is out of order"),
            ("rebuild", "mend", "line 3 is no job"),
            ("running", "failed", "line 3 is no job"),
            ("%20", "%+f", "line 3 is no job"),
            (" -\n", " - - - -\n", "line 3 is no job"),
            (" -\n", " - 00\n", "line 3 is no job"),
        ] {
            assert_eq!(parse(&whole.replacen(from, to, 1)).unwrap_err(), cause);
        }
        assert_eq!(parse("").unwrap_err(), "it is empty");
    }

    /// An older build reads the text as long as there is no rate, and refuses it as a whole when
    /// there is one: without it work would go at another rate than was asked for.
    #[test]
    fn a_rate_is_kept_and_older_texts_have_none() {
        let line = "7 rebuild running 0 5 - 0 9 a1 disk d4 - - -";
        let second = format!("stroop-jobs 2\nnext 9\n{line}\n");
        let table = parse(&second).unwrap();
        assert_eq!(table.jobs()[0].rate, None);
        assert_eq!(print(&table), second);
        let other = "8 scrub running 0 5 - 0 9 a1 all - - - -";
        let third = format!("stroop-jobs 3\nnext 9\n{line} 1048576\n{other} -\n");
        let table = parse(&third).unwrap();
        assert_eq!(
            table.jobs().iter().map(|job| job.rate).collect::<Vec<_>>(),
            [Some(1 << 20), None]
        );
        assert_eq!(print(&table), third);
        for wrong in ["", " x", " 0", " -1", " 1048576 7"] {
            let text = format!("stroop-jobs 3\nnext 9\n{line}{wrong}\n");
            assert_eq!(parse(&text).unwrap_err(), "line 3 is no job", "{wrong}");
        }
        let text = format!("stroop-jobs 2\nnext 9\n{line} 1048576\n");
        assert_eq!(parse(&text).unwrap_err(), "line 3 is no job");
    }
}

//! What is said of jobs that begin and end.

use crate::events::ring::Happening;
use crate::jobs::{Job, Subject};
use admin_api::{EventSeverity, JobKind, JobState, duration};
use dblade::AggregateSummary;
use raid::ScrubStatus;

/// What happened when a job was as it is; nothing if it neither began nor ended.
pub(crate) fn turn_of(job: &Job, summaries: &[AggregateSummary]) -> Option<Happening> {
    let (what, severity) = match job.state {
        JobState::Running => ("STARTED", EventSeverity::Info),
        JobState::Succeeded => ("ENDED", EventSeverity::Info),
        JobState::Failed => ("FAILED", EventSeverity::Warning),
        JobState::Cancelled => ("CANCELLED", EventSeverity::Info),
        JobState::Queued | JobState::Paused => return None,
    };
    let (kind, aggregate) = (job.key.kind, job.key.aggregate.as_deref());
    let code = format!("{}_{what}", kind.to_string().to_uppercase());
    let object = match (&job.key.subject, aggregate) {
        (Subject::Aggregate, Some(aggregate)) => aggregate.to_owned(),
        (subject @ Subject::Group(_), Some(aggregate)) => format!("{aggregate} {subject}"),
        (subject, _) => subject.to_string(),
    };
    let mut cause = format!("job {}: {kind} of {}", job.number, job.key.subject);
    if let Some(aggregate) = aggregate {
        cause.push_str(&format!(" in {aggregate}"));
    }
    if let Some(ended) = job.ended {
        let nanoseconds = u64::try_from(ended.get().saturating_sub(job.began.get())).unwrap_or(0);
        cause.push_str(&format!(", after {}", duration::format(nanoseconds)));
    }
    if let Some(reason) = &job.reason {
        cause.push_str(&format!(": {reason}"));
    }
    let show = format!("stroop job show {}", job.number);
    let happening = Happening::new(severity, code, object, cause);
    Some(match job.state {
        JobState::Succeeded if kind == JobKind::Scrub => {
            let is_its = |one: &&AggregateSummary| job.key.is_of_aggregate(one.identity, &one.name);
            match summaries.iter().find(is_its) {
                Some(summary) => with_findings(happening, &summary.status.scrub, &summary.name),
                None => happening,
            }
        }
        JobState::Running | JobState::Failed => happening.next(show),
        _ => happening,
    })
}

/// Says, too, what a scrub has found.
fn with_findings(happening: Happening, scrub: &ScrubStatus, aggregate: &str) -> Happening {
    let ScrubStatus { repaired_data, repaired_checksums, repaired_parity, damaged, .. } = scrub;
    let repaired = repaired_data + repaired_checksums + repaired_parity;
    let found = format!(
        "{}; repaired {repaired_data} data, {repaired_checksums} checksum and {repaired_parity} \
         parity blocks; {damaged} could not be repaired",
        happening.cause
    );
    let severity = match (damaged, repaired) {
        (0, 0) => EventSeverity::Info,
        (0, _) => EventSeverity::Warning,
        _ => EventSeverity::Error,
    };
    let told = Happening { severity, cause: found, ..happening };
    match severity {
        EventSeverity::Info => told,
        _ => told.next(format!("stroop scrub status {aggregate}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::Identities;
    use crate::jobs::Key;
    use units::{AggregateUuid, Timestamp};

    const AGGREGATE: AggregateUuid = AggregateUuid([1; 16]);

    fn job(kind: JobKind, state: JobState, reason: Option<&str>) -> Job {
        let subject = match kind {
            JobKind::Scrub => Subject::Aggregate,
            JobKind::Evacuation => Subject::Group(1),
            JobKind::Deletion | JobKind::Split => Subject::Volume("home".to_owned()),
            _ => Subject::Disk("d4".to_owned()),
        };
        let aggregate = (kind != JobKind::Zeroing).then(|| "a1".to_owned());
        let identities = Identities { aggregate: Some(AGGREGATE), disk: None };
        let key = Key { kind, aggregate, subject, birth: 0, identities };
        let ended = state.is_over().then_some(Timestamp::from_parts(12, 0));
        let reason = reason.map(str::to_owned);
        Job { state, ended, reason, ..Job::new(7, key, Timestamp(0)) }
    }

    #[test]
    fn every_kind_of_job_has_its_codes() {
        let told = |kind, state, reason| {
            let told = turn_of(&job(kind, state, reason), &[]).unwrap();
            format!("{} {} {}: {}", told.severity, told.code, told.object, told.cause)
        };
        for (kind, state, reason, expected) in [
            (
                JobKind::Rebuild,
                JobState::Running,
                None,
                "info REBUILD_STARTED d4: job 7: rebuild of d4 in a1",
            ),
            (
                JobKind::Rebuild,
                JobState::Failed,
                Some("the disk has gone"),
                "warning REBUILD_FAILED d4: job 7: rebuild of d4 in a1, after 12.0s: the disk has \
                 gone",
            ),
            (
                JobKind::Evacuation,
                JobState::Cancelled,
                None,
                "info EVACUATION_CANCELLED a1 group 1: job 7: evacuation of group 1 in a1, after \
                 12.0s",
            ),
            (
                JobKind::Zeroing,
                JobState::Succeeded,
                None,
                "info ZEROING_ENDED d4: job 7: zeroing of d4, after 12.0s",
            ),
            (
                JobKind::Deletion,
                JobState::Succeeded,
                None,
                "info DELETION_ENDED home: job 7: deletion of home in a1, after 12.0s",
            ),
        ] {
            assert_eq!(told(kind, state, reason), expected);
        }
        for kind in JobKind::ALL {
            assert!(told(kind, JobState::Running, None).contains("_STARTED "));
            assert_eq!(turn_of(&job(kind, JobState::Paused, None), &[]), None);
        }
    }

    #[test]
    fn the_end_of_a_scrub_says_what_it_found() {
        let mut summary = crate::events::disks::tests::summary("a1", AGGREGATE);
        let scrub = job(JobKind::Scrub, JobState::Succeeded, None);
        let mut told = |repaired, damaged| {
            summary.status.scrub.repaired_parity = repaired;
            summary.status.scrub.damaged = damaged;
            turn_of(&scrub, std::slice::from_ref(&summary)).unwrap()
        };
        let sound = told(0, 0);
        assert_eq!((sound.severity, &sound.next), (EventSeverity::Info, &None));
        let repaired = told(3, 0);
        assert_eq!(repaired.severity, EventSeverity::Warning);
        assert!(repaired.cause.contains("3 parity blocks; 0 could not"), "{}", repaired.cause);
        let damaged = told(3, 2);
        assert_eq!(
            (damaged.code.as_str(), damaged.severity),
            ("SCRUB_ENDED", EventSeverity::Error)
        );
        assert_eq!(damaged.next.as_deref(), Some("stroop scrub status a1"));
    }
}

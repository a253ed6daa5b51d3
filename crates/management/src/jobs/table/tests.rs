//! The table against a naive model, and its bounds.

use super::*;
use crate::jobs::job::{Identities, Subject};
use admin_api::JobKind;
use proptest::prelude::*;
use units::{AggregateUuid, DiskUuid};

fn now(seconds: u64) -> Now {
    let nanoseconds = seconds * 1_000_000_000;
    Now { wall: Timestamp(nanoseconds as i64), monotonic_nanoseconds: nanoseconds }
}

fn work(disk: u8, going: Going) -> Work {
    let subject = Subject::Disk(format!("d{disk}"));
    let (kind, aggregate) = (JobKind::Rebuild, Some("a1".to_owned()));
    let key = Key { kind, aggregate, subject, birth: 0, identities: Identities::default() };
    let limit = Limit { rate: None, is_kept: false };
    Work { key, going, limit, began: None, done_bytes: Some(1 << 20), size_bytes: 4 << 20 }
}

/// Marks a job as paused or running; the state that it had.
fn mark(table: &mut Table, number: u64, state: JobState) -> Option<JobState> {
    let rate = table.job(number).and_then(|job| job.rate);
    table.set(number, Setting { state, rate }).map(|before| before.state)
}

/// What the engine does with a disk, as one look finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Running,
    Held,
    Unheld,
    Succeeded,
    Failed,
    Away,
}

fn seen() -> impl Strategy<Value = Seen> {
    use Seen::{Away, Failed, Held, Running, Succeeded, Unheld};
    prop::sample::select(vec![Running, Unheld, Held, Succeeded, Failed, Away])
}

/// A look at disks: what goes on is told, what ended is asked for.
fn observe(table: &mut Table, seconds: u64, seen: &[Seen]) -> Observed {
    let going = |(disk, seen): (u8, &Seen)| match seen {
        Seen::Running => Some(work(disk, Going::Running)),
        Seen::Held => Some(work(disk, Going::Held)),
        Seen::Unheld => Some(work(disk, Going::Unheld)),
        Seen::Succeeded | Seen::Failed | Seen::Away => None,
    };
    let works: Vec<Work> = (0..).zip(seen).filter_map(going).collect();
    table.observe(now(seconds), &works, &|key| {
        let its = (0_u8..).zip(seen).find(|(disk, _)| work(*disk, Going::Running).key == *key);
        match its.map(|(_, seen)| seen) {
            Some(Seen::Succeeded) => Fate::Ended(Outcome::succeeded()),
            Some(Seen::Failed) => Fate::Ended(Outcome::failed("it broke")),
            _ => Fate::Away,
        }
    })
}

/// The naive model: every job that there ever was, as disk and state, number by number.
#[derive(Default)]
struct Model(Vec<(u8, JobState)>);

impl Model {
    fn observe(&mut self, seen: &[Seen]) {
        for (disk, seen) in (0_u8..).zip(seen) {
            let open = self.0.iter_mut().find(|(of, state)| *of == disk && !state.is_over());
            match (open, seen) {
                (Some((_, JobState::Paused)), Seen::Unheld) => {}
                (Some((_, state)), Seen::Running | Seen::Unheld) => *state = JobState::Running,
                (Some((_, state)), Seen::Held) => *state = JobState::Paused,
                (Some((_, state)), Seen::Succeeded) => *state = JobState::Succeeded,
                (Some((_, state)), Seen::Failed) => *state = JobState::Failed,
                (Some((_, state)), Seen::Away) => {
                    if *state == JobState::Running {
                        *state = JobState::Queued;
                    }
                }
                (None, Seen::Running | Seen::Unheld) => self.0.push((disk, JobState::Running)),
                (None, Seen::Held) => self.0.push((disk, JobState::Paused)),
                (None, _) => {}
            }
        }
    }
}

proptest! {
    #[test]
    fn the_table_does_what_a_naive_one_does(
        looks in prop::collection::vec(prop::collection::vec(seen(), 4), 1..60),
    ) {
        let (mut table, mut model) = (Table::new(Vec::new(), 1), Model::default());
        for (seconds, look) in (0..).zip(&looks) {
            let before = format!("{:?}", model.0);
            model.observe(look);
            let observed = observe(&mut table, seconds, look);
            prop_assert_eq!(observed.has_changed, before != format!("{:?}", model.0));
            // What the engine does though the job is paused, and nothing else, is to be held.
            let is_to_hold = |(disk, seen): &(u8, &Seen)| {
                **seen == Seen::Unheld && model.0.contains(&(*disk, JobState::Paused))
            };
            let to_hold = (0_u8..).zip(look).filter(is_to_hold);
            let to_hold: Vec<Key> =
                to_hold.map(|(disk, _)| work(disk, Going::Running).key).collect();
            prop_assert_eq!(observed.to_hold, to_hold);
            for job in table.jobs() {
                let (disk, state) = model.0[job.number as usize - 1];
                prop_assert_eq!(&job.key, &work(disk, Going::Running).key);
                prop_assert_eq!((job.state, job.ended.is_some()), (state, state.is_over()));
            }
            // None is missing but old ones.
            let open = |(_, state): &&(u8, JobState)| !state.is_over();
            let kept = model.0.iter().filter(open).count()
                + model.0.iter().filter(|one| !open(one)).count().min(ENDED_MAX);
            prop_assert_eq!(table.jobs().len(), kept);
            prop_assert_eq!(table.next_number(), model.0.len() as u64 + 1);
        }
    }
}

#[test]
fn of_jobs_that_are_over_the_last_are_kept_and_numbers_go_on() {
    let mut table = Table::new(Vec::new(), 1);
    for seconds in 0..250 {
        observe(&mut table, 2 * seconds, &[Seen::Running]);
        observe(&mut table, 2 * seconds + 1, &[Seen::Succeeded]);
    }
    let numbers: Vec<u64> = table.jobs().iter().map(|job| job.number).collect();
    assert_eq!(numbers, (151..=250).collect::<Vec<u64>>());
    assert_eq!(table.next_number(), 251);
    let last = table.job(250).unwrap();
    assert_eq!((last.state, last.done_bytes), (JobState::Succeeded, last.size_bytes));
    assert!(table.job(150).is_none());
}

#[test]
fn what_the_engine_still_tells_of_is_not_forgotten_and_not_new() {
    let mut table = Table::new(Vec::new(), 1);
    let over = |disk| work(disk, Going::Over(Outcome::cancelled(), Timestamp(7)));
    let fate = |_: &Key| Fate::Ended(Outcome::succeeded());
    assert!(table.observe(now(1), &[over(0)], &fate).has_changed);
    for seconds in 2..250 {
        let others = [over(0), work(1, Going::Running)];
        table.observe(now(seconds), if seconds % 2 == 0 { &others } else { &others[..1] }, &fate);
    }
    let first = table.job(1).unwrap();
    assert_eq!((first.state, first.ended), (JobState::Cancelled, Some(Timestamp(7))));
    assert_eq!(table.jobs().len(), ENDED_MAX + 1);
    assert!(!table.observe(now(300), &[over(0)], &fate).has_changed);
}

#[test]
fn work_beyond_the_limit_gets_no_job() {
    let mut table = Table::new(Vec::new(), 1);
    let works: Vec<Work> = (0..=OPEN_MAX as u32)
        .map(|group| {
            let mut one = work(0, Going::Running);
            one.key.subject = Subject::Group(group);
            one
        })
        .collect();
    assert!(table.observe(now(1), &works, &|_| Fate::Away).has_changed);
    assert_eq!(table.jobs().len(), OPEN_MAX);
    assert!(!table.observe(now(2), &works, &|_| Fate::Away).has_changed);
}

#[test]
fn the_pace_is_told_of_jobs_that_run() {
    let mut table = Table::new(Vec::new(), 1);
    for seconds in 0..3 {
        let done_bytes = Some((seconds + 1) << 20);
        let one = Work { done_bytes, ..work(0, Going::Running) };
        table.observe(now(seconds), &[one], &|_| Fate::Away);
    }
    let info = table.job(1).unwrap().info();
    assert_eq!((info.bytes_per_second, info.left_ns), (Some(1 << 20), Some(1_000_000_000)));
    assert_eq!((info.percent_done(), info.began), (75, admin_api::Time(Timestamp(0))));
    table.observe(now(4), &[work(0, Going::Held)], &|_| Fate::Away);
    assert_eq!(table.job(1).unwrap().info().bytes_per_second, None);
    // Work whose aggregate is not in service waits; paused work stays paused.
    table.observe(now(5), &[], &|_| Fate::Away);
    assert_eq!(table.job(1).unwrap().state, JobState::Paused);
    table.observe(now(6), &[work(0, Going::Running)], &|_| Fate::Away);
    assert!(!table.observe(now(7), &[], &|_| Fate::Ending).has_changed);
    table.observe(now(8), &[], &|_| Fate::Away);
    let info = table.job(1).unwrap().info();
    assert_eq!(info.state, JobState::Queued);
    assert!(info.reason.unwrap().contains("not in service"));
}

/// A mark is set before the engine is asked: a look in between does not take it for another state.
#[test]
fn a_mark_stays_until_the_engine_follows() {
    let mut table = Table::new(Vec::new(), 1);
    let observe = |table: &mut Table, going: Going| {
        table.observe(now(1), &[work(0, going)], &|_| Fate::Away).to_hold.len()
    };
    assert_eq!(observe(&mut table, Going::Unheld), 0);
    assert_eq!(mark(&mut table, 1, JobState::Paused), Some(JobState::Running));
    assert_eq!(observe(&mut table, Going::Unheld), 1);
    assert_eq!(observe(&mut table, Going::Held), 0);
    assert_eq!(table.job(1).unwrap().state, JobState::Paused);
    assert_eq!(mark(&mut table, 1, JobState::Running), Some(JobState::Paused));
    assert_eq!(observe(&mut table, Going::Unheld), 0);
    assert_eq!(table.job(1).unwrap().state, JobState::Running);
    table.observe(now(2), &[], &|_| Fate::Ended(Outcome::succeeded()));
    assert_eq!(mark(&mut table, 1, JobState::Paused), None);
}

#[test]
fn a_job_that_is_given_up_and_ends_early_was_cancelled() {
    for (outcome, state) in [
        (Outcome::failed("stopped"), JobState::Cancelled),
        (Outcome::succeeded(), JobState::Succeeded),
    ] {
        let mut table = Table::new(Vec::new(), 1);
        table.observe(now(1), &[work(0, Going::Running), work(1, Going::Running)], &|_| Fate::Away);
        table.give_up(JobKind::Rebuild, &["d0".to_owned()]);
        table.observe(now(2), &[work(1, Going::Running)], &|_| Fate::Ended(outcome.clone()));
        assert_eq!((table.job(1).unwrap().state, &table.job(1).unwrap().reason), (state, &None));
        table.observe(now(3), &[], &|_| Fate::Ended(Outcome::failed("stopped")));
        assert_eq!(table.job(2).unwrap().state, JobState::Failed);
    }
}

/// Names may be swapped by a boot, and be given again: identities tell who is who.
#[test]
fn regression_work_is_told_by_the_identities_of_aggregate_and_disk() {
    let of = |name: u8, aggregate: u8, disk: u8| {
        let mut one = work(name, Going::Unheld);
        one.key.identities = Identities {
            aggregate: Some(AggregateUuid([aggregate; 16])),
            disk: Some(DiskUuid([disk; 16])),
        };
        one
    };
    // As a file of the first version told it, without identities.
    let mut table = Table::new(Vec::new(), 1);
    table.observe(now(1), &[work(1, Going::Unheld)], &|_| Fate::Away);
    mark(&mut table, 1, JobState::Paused);
    assert!(table.observe(now(2), &[of(1, 7, 8)], &|_| Fate::Away).has_changed);
    assert_eq!(table.job(1).unwrap().key, of(1, 7, 8).key);
    // Another disk has its name, and it has that of another: it stays paused.
    let observed = table.observe(now(3), &[of(2, 7, 8), of(1, 7, 9)], &|_| Fate::Away);
    assert_eq!(observed.to_hold, [of(2, 7, 8).key]);
    let states: Vec<JobState> = table.jobs().iter().map(|job| job.state).collect();
    assert_eq!(states, [JobState::Paused, JobState::Running]);
    // Another aggregate has its name.
    table.observe(now(4), &[of(2, 6, 8)], &|_| Fate::Away);
    assert_eq!(table.jobs().len(), 3);
}

/// A job whose aggregate never comes back could not be ended.
#[test]
fn regression_a_job_that_waits_for_its_aggregate_can_be_given_up() {
    let mut table = Table::new(Vec::new(), 1);
    table.observe(now(1), &[work(1, Going::Running)], &|_| Fate::Away);
    table.observe(now(2), &[], &|_| Fate::Away);
    assert!(table.abandon(1, Timestamp(3)) && !table.abandon(1, Timestamp(4)));
    let job = table.job(1).unwrap();
    assert_eq!((job.state, job.ended), (JobState::Cancelled, Some(Timestamp(3))));
    assert!(job.reason.as_deref().unwrap().contains("not in service"));
    table.observe(now(5), &[work(1, Going::Running)], &|_| Fate::Away);
    assert_eq!(table.job(2).unwrap().state, JobState::Running);
}

/// Of a deletion the engine knows what is left, and nothing else: not after a restart either.
#[test]
fn what_is_done_follows_from_what_is_left() {
    let mut table = Table::new(Vec::new(), 1);
    let mut progress = |seconds: u64, left_bytes: u64| {
        let one = Work { done_bytes: None, size_bytes: left_bytes, ..work(0, Going::Running) };
        table.observe(now(seconds), &[one], &|_| Fate::Away);
        let job = table.job(1).unwrap();
        (job.done_bytes, job.size_bytes)
    };
    assert_eq!(progress(1, 400), (0, 400));
    assert_eq!(progress(2, 300), (100, 400));
    assert_eq!(progress(3, 0), (400, 400));
}

/// Whoever tells of jobs is told of each begin and each end, once.
#[test]
fn jobs_that_begin_and_end_are_handed_over_once() {
    let mut table = Table::new(Vec::new(), 1);
    let turns = |table: &mut Table| -> Vec<JobState> {
        table.take_turns().into_iter().map(|job| job.state).collect()
    };
    observe(&mut table, 1, &[Seen::Running, Seen::Running]);
    assert_eq!(turns(&mut table), [JobState::Running, JobState::Running]);
    observe(&mut table, 2, &[Seen::Held, Seen::Running]);
    assert_eq!(turns(&mut table), []);
    observe(&mut table, 3, &[Seen::Failed, Seen::Succeeded]);
    let mut ended = turns(&mut table);
    ended.sort_by_key(ToString::to_string);
    assert_eq!(ended, [JobState::Failed, JobState::Succeeded]);
    observe(&mut table, 4, &[Seen::Failed, Seen::Succeeded]);
    assert_eq!(turns(&mut table), []);
}

/// The engine forgets at a restart how fast disks are filled; the job does not, and is believed.
#[test]
fn a_rate_is_of_the_job_where_the_engine_forgets_it() {
    let mut table = Table::new(Vec::new(), 1);
    let look = |table: &mut Table, rate: Option<u64>| {
        let limit = Limit { rate, is_kept: false };
        let works = [Work { limit, ..work(0, Going::Unheld) }];
        let observed = table.observe(now(1), &works, &|_| Fate::Away);
        (observed.has_changed, observed.to_limit.into_iter().map(|(_, rate)| rate).collect())
    };
    let as_it_is = |has_changed: bool| -> (bool, Vec<Option<u64>>) { (has_changed, Vec::new()) };
    assert_eq!(look(&mut table, Some(7)), as_it_is(true), "it begins with the rate of the request");
    assert_eq!(look(&mut table, Some(7)), as_it_is(false));
    assert_eq!(look(&mut table, None), (false, vec![Some(7)]), "after a restart");
    let faster = Setting { rate: None, ..table.job(1).unwrap().setting() };
    assert_eq!(table.set(1, faster).and_then(|before| before.rate), Some(7));
    assert_eq!(look(&mut table, Some(7)), (false, vec![None]), "before the engine is asked");
    assert_eq!(look(&mut table, None), as_it_is(false));
    table.set(1, Setting { rate: Some(9), ..faster });
    table.observe(now(2), &[], &|_| Fate::Ended(Outcome::succeeded()));
    assert_eq!(table.job(1).unwrap().rate, None, "what is over has none");
}

#[test]
fn a_rate_is_of_the_engine_where_it_keeps_it() {
    let mut table = Table::new(Vec::new(), 1);
    for (rate, has_changed) in [(Some(7), true), (None, true), (None, false), (Some(8), true)] {
        let limit = Limit { rate, is_kept: true };
        let works = [Work { limit, ..work(0, Going::Running) }];
        let observed = table.observe(now(1), &works, &|_| Fate::Away);
        assert_eq!((observed.has_changed, observed.to_limit), (has_changed, Vec::new()));
        assert_eq!(table.job(1).unwrap().rate, rate);
    }
}

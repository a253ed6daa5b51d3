//! `stroop job`: long work of the server, by number.
//!
//! Invariants: a job goes on in the server whether anybody waits or not; progress is shown only
//! where somebody can be asked as well, and on standard error.
//!
//! Fails: as the server says; waiting for a job that failed or was cancelled fails.

use super::moments::{LOOK_INTERVAL, let_a_moment_pass};
use crate::arguments::{JobCommand, Options};
use crate::output::Output;
use crate::table::{Column, Table};
use crate::terminal::Terminal;
use admin_api::{
    AdminError, Administration, Code, JobAction, JobChange, JobInfo, JobKind, JobName, JobState,
    RateLimit, duration,
};
use units::ByteSize;

pub(super) fn run(
    command: &JobCommand,
    options: &Options,
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
) -> Result<Output, AdminError> {
    match command {
        JobCommand::List => list(node),
        JobCommand::Show { job } => show(&node.job_show(&JobName { job: *job })?),
        JobCommand::Pause { job } => change(node, *job, JobAction::Pause, None),
        JobCommand::Resume { job, rate } => {
            let resumed = change(node, *job, JobAction::Resume, *rate)?;
            if options.wait.is_none() {
                return Ok(resumed);
            }
            wait((options, terminal), node, *job)
        }
        JobCommand::Cancel { job } => change(node, *job, JobAction::Cancel, None),
        JobCommand::Set { job, rate } => change(node, *job, JobAction::Set, Some(*rate)),
        JobCommand::Wait { job } => wait((options, terminal), node, *job),
        JobCommand::Watch { .. } => unreachable!("it prints as jobs get on"),
    }
}

fn change(
    node: &dyn Administration,
    number: u64,
    action: JobAction,
    rate: Option<RateLimit>,
) -> Result<Output, AdminError> {
    let job = node.job_change(&JobChange { job: number, action, rate })?;
    let output = Output::of(&number.to_string(), &job)?;
    let output = output.line(format!("job {number}: {}, {}", title(&job), brief(&job)));
    Ok(match action {
        JobAction::Pause if matches!(job.kind, JobKind::Rebuild | JobKind::Resync) => output
            .line("its group stays degraded until the job is resumed")
            .next(format!("stroop job resume {number}")),
        JobAction::Pause => output.next(format!("stroop job resume {number}")),
        JobAction::Resume => output.next(format!("stroop job wait {number}")),
        JobAction::Cancel => output.next("stroop job list"),
        JobAction::Set => output.line(limit(&job)).next(format!("stroop job show {number}")),
    })
}

/// `at most 50MiB a second`.
fn limit(job: &JobInfo) -> String {
    match job.rate_limit_bytes_per_second {
        Some(rate) => format!("at most {} a second", ByteSize(rate)),
        None => "no limit".to_owned(),
    }
}

/// `running 54%, 412MiB/s, about 2h10m left`.
pub(super) fn brief(job: &JobInfo) -> String {
    if job.state.is_over() {
        return job.state.to_string();
    }
    let mut text = format!("{} {}%", job.state, job.percent_done());
    if let Some(rate) = job.bytes_per_second {
        text.push_str(&format!(", {}/s", ByteSize(rate)));
    }
    if let Some(left) = job.left_ns {
        text.push_str(&format!(", about {} left", duration::format(left)));
    }
    text
}

fn wait(
    asked: (&Options, &mut Terminal<'_>),
    node: &dyn Administration,
    number: u64,
) -> Result<Output, AdminError> {
    let job = wait_for(asked, node, number)?;
    verdict(&job)?;
    show(&job)
}

/// Waits until a job is over, has to be resumed, or has been waited for long enough.
pub(super) fn wait_for(
    (options, terminal): (&Options, &mut Terminal<'_>),
    node: &dyn Administration,
    number: u64,
) -> Result<JobInfo, AdminError> {
    let mut moments = options.answer_wait().as_nanos() / LOOK_INTERVAL.as_nanos();
    let mut has_shown = false;
    let mut job = node.job_show(&JobName { job: number })?;
    while goes_on(&job) && moments > 0 {
        if terminal.input.is_some() {
            // Nobody is told that progress could not be shown.
            let _ = write!(terminal.err, "\rjob {number}: {}\x1b[K", brief(&job));
            let _ = terminal.err.flush();
            has_shown = true;
        }
        let_a_moment_pass();
        moments -= 1;
        job = node.job_show(&JobName { job: number })?;
    }
    if has_shown {
        let _ = writeln!(terminal.err);
    }
    Ok(job)
}

/// Whether a job is waited for: it is not over, and nobody has to resume it.
pub(super) const fn goes_on(job: &JobInfo) -> bool {
    matches!(job.state, JobState::Queued | JobState::Running)
}

/// How it is with a job when it is waited for no longer: it has succeeded, or an error.
pub(super) fn verdict(job: &JobInfo) -> Result<(), AdminError> {
    let number = job.job;
    let error = |code, cause: String| {
        AdminError::new(code, "cannot wait for job", number.to_string()).because(cause)
    };
    match job.state {
        JobState::Succeeded => Ok(()),
        JobState::Failed | JobState::Cancelled => {
            let cause = format!("the {} {}", title(job), over(job));
            Err(error(Code::Failed, cause).try_next(format!("stroop job show {number}")))
        }
        JobState::Paused => Err(error(Code::Conflict, "it is paused".to_owned())
            .try_next(format!("stroop job resume {number}"))),
        JobState::Queued | JobState::Running => {
            let cause = format!("it goes on: {}", brief(job));
            let next = format!("stroop job show {number}, or a longer --wait");
            Err(error(Code::TimedOut, cause).try_next(next))
        }
    }
}

/// `failed: the disk has gone`, `was cancelled`.
pub(super) fn over(job: &JobInfo) -> String {
    match (job.state, &job.reason) {
        (JobState::Cancelled, _) => "was cancelled".to_owned(),
        (state, Some(reason)) => format!("{state}: {reason}"),
        (state, None) => state.to_string(),
    }
}

fn list(node: &dyn Administration) -> Result<Output, AdminError> {
    let jobs = node.job_list()?;
    let mut table = Table::new(&[
        ("JOB", Column::Number),
        ("KIND", Column::Text),
        ("AGGR", Column::Text),
        ("TARGET", Column::Text),
        ("STATE", Column::Text),
        ("DONE", Column::Number),
        ("RATE", Column::Number),
        ("LIMIT", Column::Number),
        ("LEFT", Column::Number),
    ]);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for job in &jobs {
        table.row([
            job.job.to_string(),
            job.kind.to_string(),
            or_none(job.aggregate.clone()),
            job.target.clone(),
            job.state.to_string(),
            format!("{}%", job.percent_done()),
            or_none(job.bytes_per_second.map(|rate| format!("{}/s", ByteSize(rate)))),
            or_none(job.rate_limit_bytes_per_second.map(|rate| format!("{}/s", ByteSize(rate)))),
            or_none(job.left_ns.map(duration::format)),
        ]);
    }
    let output = Output::list(&jobs, |job| job.job.to_string(), table)?;
    if jobs.is_empty() {
        return Ok(output.line("no job is under way, and none ended of late"));
    }
    Ok(match jobs.iter().rfind(|job| !job.state.is_over()) {
        Some(job) => output.next(format!("stroop job show {}", job.job)),
        None => output,
    })
}

/// `rebuild of d4.img in a1`.
pub(super) fn title(job: &JobInfo) -> String {
    match &job.aggregate {
        Some(aggregate) => format!("{} of {} in {aggregate}", job.kind, job.target),
        None => format!("{} of {}", job.kind, job.target),
    }
}

fn show(job: &JobInfo) -> Result<Output, AdminError> {
    let mut output = Output::of(&job.job.to_string(), job)?;
    output.head = vec![
        format!("job         {}", job.job),
        format!("work        {}", title(job)),
        format!("state       {}", job.state),
    ];
    if let Some(reason) = &job.reason {
        output.head.push(format!("reason      {reason}"));
    }
    output.head.push(format!("began       {}", job.began));
    if let Some(ended) = job.ended {
        output.head.push(format!("ended       {ended}"));
    }
    output.head.push(format!(
        "done        {} of {} ({}%)",
        ByteSize(job.done_bytes),
        ByteSize(job.size_bytes),
        job.percent_done()
    ));
    if let Some(rate) = job.bytes_per_second {
        output.head.push(format!("rate        {}/s", ByteSize(rate)));
    }
    if job.rate_limit_bytes_per_second.is_some() {
        output.head.push(format!("limit       {}", limit(job)));
    }
    if let Some(left) = job.left_ns {
        output.head.push(format!("left        about {}", duration::format(left)));
    }
    Ok(match job.state {
        JobState::Queued => output.next("stroop status"),
        _ => output,
    })
}

//! `stroop job`: long work of the server, by number.

use crate::arguments::JobCommand;
use crate::output::Output;
use crate::table::{Column, Table};
use admin_api::{AdminError, Administration, JobInfo, JobName, JobState, duration};
use units::ByteSize;

pub(super) fn run(command: &JobCommand, node: &dyn Administration) -> Result<Output, AdminError> {
    match command {
        JobCommand::List => list(node),
        JobCommand::Show { job } => show(&node.job_show(&JobName { job: *job })?),
    }
}

fn list(node: &dyn Administration) -> Result<Output, AdminError> {
    let jobs = node.job_list()?;
    let mut table = Table::new(&[
        ("JOB", Column::Number),
        ("KIND", Column::Text),
        ("AGGR", Column::Long),
        ("TARGET", Column::Path),
        ("STATE", Column::Text),
        ("DONE", Column::Number),
        ("RATE", Column::Number),
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
fn title(job: &JobInfo) -> String {
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
    if let Some(left) = job.left_ns {
        output.head.push(format!("left        about {}", duration::format(left)));
    }
    Ok(match job.state {
        JobState::Queued => output.next("stroop status"),
        _ => output,
    })
}

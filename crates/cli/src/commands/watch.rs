//! `stroop job watch`: jobs as they get on, until none goes on.
//!
//! On a terminal the jobs that go on are a block of lines, which is written over; elsewhere each
//! change of a job is a line. A job that ends has a line that stays.
//!
//! Invariants: a change is another state or another percent; with `-o json` a change is the job as
//! the admin API has it, one object a line; with `-o name` a job is named once, when it is over.
//! Lines of the block are never wrapped, so that as many are written over as were written.
//!
//! Fails: as the server says; if a job that was watched failed or was cancelled; `TimedOut` if
//! `--wait` says how long and jobs go on.

use super::job::{brief, goes_on, over, title, verdict};
use super::moments::{LOOK_INTERVAL, let_a_moment_pass};
use crate::arguments::{Format, Options};
use crate::output::print_error;
use crate::table::printable;
use crate::terminal::Terminal;
use admin_api::{AdminError, Administration, Code, JobInfo, JobName, JobState};
use std::collections::BTreeMap;
use std::io;

/// Jobs that the block has lines for: half of a small screen.
const BLOCK_LINES_MAX: usize = 12;

/// No line is wrapped, and lines are wrapped again.
const WRAP_OFF: &str = "\x1b[?7l";
const WRAP_ON: &str = "\x1b[?7h";
/// Erases from here to the end of the screen.
const ERASE_BELOW: &str = "\r\x1b[J";

/// What is watched, and what was shown of it.
struct Watch {
    /// Only this job.
    wanted: Option<u64>,
    /// State and percent of each job, as they were shown.
    shown: BTreeMap<u64, (JobState, u64)>,
    /// Lines of the block on the screen.
    block_lines: usize,
    /// One that was watched failed, or was cancelled.
    has_failed: bool,
}

/// `stroop job watch`; its exit status.
pub(super) fn watch(
    wanted: Option<u64>,
    options: &Options,
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
) -> u8 {
    let mut watch = Watch { wanted, shown: BTreeMap::new(), block_lines: 0, has_failed: false };
    let mut moments = options.wait.map(|wait| wait.as_nanos() / LOOK_INTERVAL.as_nanos());
    let mut is_first = true;
    loop {
        let jobs = match watch.look(node, is_first) {
            Ok(jobs) => jobs,
            Err(error) => return print_error(&error, options, terminal),
        };
        if let Err(error) = watch.show(&jobs, (options, is_first), terminal) {
            // Whoever read the lines has seen enough: `stroop job watch | head -1`.
            if error.kind() == io::ErrorKind::BrokenPipe {
                return 0;
            }
            let failed = AdminError::new(Code::Failed, "cannot print the jobs", "");
            return print_error(&failed.because(error.to_string()), options, terminal);
        }
        is_first = false;
        let is_over = !jobs.iter().any(goes_on);
        if is_over || moments == Some(0) {
            return watch.end(&jobs, options, terminal);
        }
        moments = moments.map(|moments| moments - 1);
        let_a_moment_pass();
    }
}

impl Watch {
    /// The jobs, but those that were over before they were watched.
    fn look(
        &mut self,
        node: &dyn Administration,
        is_first: bool,
    ) -> Result<Vec<JobInfo>, AdminError> {
        if let Some(job) = self.wanted {
            return Ok(vec![node.job_show(&JobName { job })?]);
        }
        let mut jobs = node.job_list()?;
        if is_first {
            let over = jobs.iter().filter(|job| job.state.is_over());
            self.shown.extend(over.map(|job| (job.job, state_of(job))));
        }
        jobs.retain(|job| !job.state.is_over() || self.is_news(job));
        Ok(jobs)
    }

    fn is_news(&self, job: &JobInfo) -> bool {
        self.shown.get(&job.job) != Some(&state_of(job))
    }

    fn show(
        &mut self,
        jobs: &[JobInfo],
        (options, is_first): (&Options, bool),
        terminal: &mut Terminal<'_>,
    ) -> io::Result<()> {
        let news: Vec<&JobInfo> = jobs.iter().filter(|job| self.is_news(job)).collect();
        for job in &news {
            self.shown.insert(job.job, state_of(job));
            self.has_failed |= matches!(job.state, JobState::Failed | JobState::Cancelled);
        }
        match options.output {
            Format::Json => {
                for job in news {
                    let json = serde_json::to_string(job).map_err(io::Error::other)?;
                    writeln!(terminal.out, "{json}")?;
                }
            }
            Format::Name => {
                for job in news.into_iter().filter(|job| job.state.is_over()) {
                    writeln!(terminal.out, "{}", job.job)?;
                }
            }
            Format::Table | Format::Wide if terminal.is_screen => {
                let over = news.into_iter().filter(|job| job.state.is_over());
                let block = self.block(over, jobs);
                terminal.out.write_all(block.as_bytes())?;
            }
            // YAML and CSV are refused before.
            Format::Table | Format::Wide | Format::Yaml | Format::Csv => {
                for job in news {
                    writeln!(terminal.out, "{}", line(job))?;
                }
            }
        }
        if is_first && jobs.is_empty() && matches!(options.output, Format::Table | Format::Wide) {
            writeln!(terminal.out, "no job is under way")?;
        }
        terminal.out.flush()
    }

    /// What writes the block over: first the lines that stay, then those of jobs that go on.
    fn block<'a>(&mut self, over: impl Iterator<Item = &'a JobInfo>, jobs: &[JobInfo]) -> String {
        let mut text = String::new();
        if self.block_lines > 0 {
            text.push_str(&format!("\x1b[{}A", self.block_lines));
        }
        text.push_str(ERASE_BELOW);
        over.for_each(|job| text.push_str(&format!("{}\n", line(job))));
        let open: Vec<&JobInfo> = jobs.iter().filter(|job| !job.state.is_over()).collect();
        let (shown, more) = open.split_at(open.len().min(BLOCK_LINES_MAX));
        self.block_lines = shown.len() + usize::from(!more.is_empty());
        text.push_str(WRAP_OFF);
        shown.iter().for_each(|job| text.push_str(&format!("{}\n", line(job))));
        if !more.is_empty() {
            text.push_str(&format!("and {} more\n", more.len()));
        }
        text.push_str(WRAP_ON);
        text
    }

    /// The exit status, and on standard error why it is not zero.
    fn end(&self, jobs: &[JobInfo], options: &Options, terminal: &mut Terminal<'_>) -> u8 {
        let going: Vec<String> =
            jobs.iter().filter(|job| goes_on(job)).map(|job| job.job.to_string()).collect();
        let outcome = match (self.wanted, jobs) {
            (Some(_), [job]) => verdict(job),
            _ if !going.is_empty() => {
                let error = AdminError::new(Code::TimedOut, "jobs go on:", going.join(", "));
                Err(error.try_next("stroop job list, or a longer --wait"))
            }
            _ if self.has_failed => {
                Err(AdminError::new(Code::Failed, "a job failed or was cancelled", "")
                    .try_next("stroop job list"))
            }
            _ => Ok(()),
        };
        match outcome {
            Ok(()) => 0,
            Err(error) => print_error(&error, options, terminal),
        }
    }
}

fn state_of(job: &JobInfo) -> (JobState, u64) {
    (job.state, job.percent_done())
}

/// `job 7: rebuild of d4.img in a1, running 54%, 412MiB/s, about 2h10m left`.
fn line(job: &JobInfo) -> String {
    let state = if job.state.is_over() { over(job) } else { brief(job) };
    printable(&format!("job {}: {}, {state}", job.job, title(job)))
}

#[cfg(test)]
mod tests;

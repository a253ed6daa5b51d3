//! The room of jobs: the calls, and the file that keeps the jobs over a restart.
//!
//! Order of locks: the table before anything of the engine. A look at the engine is made under the
//! table's lock, so that an older look never comes after a newer one.

use crate::aggregates::Aggregates;
use crate::jobs::job::Job;
use crate::jobs::stored;
use crate::jobs::table::{Now, Table};
use crate::jobs::works::Look;
use crate::keeping::{Keeper, Print, keep_aside};
use crate::ports::StateFile;
use crate::scrub::Scrubs;
use admin_api::{AdminError, Code, JobInfo, JobName};
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::Timestamp;

/// See the module.
pub(crate) struct Jobs {
    pub(crate) aggregates: Arc<Aggregates>,
    pub(crate) scrubs: Scrubs,
    pub(crate) keeper: Keeper<Table>,
    /// When the node was started.
    pub(crate) start: Timestamp,
    /// Why the file could not be used at the start, if it could not.
    damage: Option<String>,
}

impl Print for Table {
    const TITLE: &'static str = "list of jobs";

    fn print(&self) -> String {
        stored::print(self)
    }
}

impl Jobs {
    /// The jobs that the file tells of.
    pub(crate) fn new(aggregates: Arc<Aggregates>, file: Arc<dyn StateFile>) -> Self {
        let start = aggregates.node.clock.wall();
        let (table, damage) = restore(&*file, start);
        let unwritten = Arc::clone(&aggregates.node.unwritten);
        let keeper = Keeper::new(table, file, unwritten);
        let scrubs = Scrubs { node: Arc::clone(&aggregates.node) };
        Self { aggregates, scrubs, keeper, start, damage }
    }

    /// Why the file could not be used at the start, if it could not.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Looks what the engine does, and keeps what has begun, changed or ended.
    pub(crate) fn look(&self) {
        self.look_before();
        self.keeper.store();
    }

    /// The same before a change, which does not wait for the file: the look after it does.
    pub(crate) fn look_before(&self) {
        let mut kept = self.keeper.kept.lock();
        let clock = &self.aggregates.node.clock;
        let now = Now { wall: clock.wall(), monotonic_nanoseconds: clock.monotonic_nanoseconds() };
        let look = Look::new(&self.aggregates, self.start.get());
        let observed = kept.table.observe(now, &look.works, &|key| look.fate(key));
        kept.changes += u64::from(observed.has_changed);
        // After a start: what was paused before it, or had a rate.
        for key in &observed.to_hold {
            look.hold(key, true);
        }
        if !mutation::broken(Rule::JobRateForgotten) {
            for (key, rate) in &observed.to_limit {
                look.limit(key, *rate);
            }
        }
    }

    /// The jobs that began or ended since this was asked last, as they were then.
    pub(crate) fn take_turns(&self) -> Vec<Job> {
        self.keeper.kept.lock().table.take_turns()
    }

    /// The jobs as they were at the last look.
    pub(crate) fn known(&self) -> Vec<JobInfo> {
        self.keeper.kept.lock().table.jobs().iter().map(Job::info).collect()
    }

    pub(crate) fn list(&self) -> Vec<JobInfo> {
        // What is told of is in the file: its number is given to no other job.
        self.look();
        self.keeper.kept.lock().table.jobs().iter().map(Job::info).collect()
    }

    pub(crate) fn show(&self, wanted: &JobName) -> Result<JobInfo, AdminError> {
        self.look();
        let found = self.keeper.kept.lock().table.job(wanted.job).map(Job::info);
        found.ok_or_else(|| missing("cannot show job", wanted.job))
    }
}

/// There is no such job.
pub(crate) fn missing(message: &str, number: u64) -> AdminError {
    AdminError::new(Code::NotFound, message, number.to_string())
        .because("there is no job of this number, or it was over long ago")
        .try_next("stroop job list")
}

/// The table that the file tells of. If it cannot be used it is kept aside, and its jobs are lost;
/// numbers go on from the time in seconds, above all that were given: a node does not begin a job
/// every second.
fn restore(file: &dyn StateFile, start: Timestamp) -> (Table, Option<String>) {
    let cause = match file.load() {
        Ok(None) => return (Table::new(Vec::new(), 1), None),
        Ok(Some(text)) => match stored::parse(&text) {
            Ok(table) => return (table, None),
            Err(cause) => cause,
        },
        Err(error) => error.to_string(),
    };
    let next = u64::try_from(start.seconds()).unwrap_or(0).max(1);
    let kept = keep_aside(file);
    tracing::error!(
        cause,
        kept,
        next,
        "the list of jobs cannot be used; jobs that are over are forgotten, and so is which were \
         paused or had a rate; new ones are numbered from the time on"
    );
    (Table::new(Vec::new(), next), Some(format!("{cause}; {kept}")))
}

//! The loop: work, SIGKILL, look at the media, start again, compare.
//!
//! Invariants: the server is killed only after every writer knows that it will be, so that an error
//! before is a finding; each round begins with what the round before was found to leave.
//!
//! Fails: with the first [`Failure`]; its round and seed are told with the progress.

use crate::Failure;
use crate::crew::Crew;
use crate::node::{Node, Sizes};
use crate::programs::Program;
use crate::random::Random;
use crate::site::Site;
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest time that a server lives in a round: over several ticks and, with programs, several CPs.
const LIFE_MILLISECONDS_MAX: u64 = 2500;
/// Longest time of a start that is killed, too: past the replay of what a round logs.
const START_MILLISECONDS_MAX: u64 = 250;
/// A clean stop comes once in so many rounds in the place of the next kill.
const STOP_EVERY_ROUNDS: u64 = 10;

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many kills.
    pub rounds: u64,
    /// Choices come from it.
    pub seed: u64,
    /// Disks and volume.
    pub sizes: Sizes,
}

/// What a run did.
#[derive(Clone, Copy, Default, Debug)]
pub struct Summary {
    /// Kills under load.
    pub rounds: u64,
    /// Kills during a start.
    pub starts_killed: u64,
    /// Clean stops.
    pub stops: u64,
    /// Operations of the writers that were answered.
    pub operations: u64,
    /// What the programs promised: commits, transactions, clones, copies.
    pub promises: u64,
    /// Operations that starts replayed.
    pub replayed: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} rounds of SIGKILL ({} starts killed besides, {} clean stops): {} operations answered, \
             {} promises of programs, {} operations replayed, nothing lost",
            self.rounds,
            self.starts_killed,
            self.stops,
            self.operations,
            self.promises,
            self.replayed
        )
    }
}

struct Run<'a> {
    plan: &'a Plan,
    tell: &'a mut dyn FnMut(&str),
    random: Random,
    node: Node,
    crew: Crew,
    programs: Vec<Program>,
    summary: Summary,
}

/// Runs the plan; a line is told for each round.
///
/// # Errors
/// The first [`Failure`].
pub fn run(site: &mut Site<'_>, plan: &Plan) -> Result<Summary, Failure> {
    let node = site.node(&plan.sizes)?;
    let (mountpoint, address) = (node.mountpoint(), node.nfs_address()?);
    let crew = Crew::on(&node, plan.seed)?;
    let programs = Program::prepare_all(&mountpoint, site, address.port())?;
    let random = Random::new(plan.seed);
    let summary = Summary::default();
    let mut run = Run { plan, tell: site.tell, random, node, crew, programs, summary };
    for round in 0..plan.rounds {
        run.round(round)?;
    }
    run.stop()?;
    Ok(run.summary)
}

impl Run<'_> {
    fn round(&mut self, round: u64) -> Result<(), Failure> {
        let program = self.programs.len().checked_sub(1).map(|_| {
            // In turn, so that a short run has all of them, too.
            usize::try_from(round).unwrap_or(0) % self.programs.len()
        });
        let name = program.map(|index| format!("{:?}", self.programs[index].kind()));
        let life = 30 + self.random.below(LIFE_MILLISECONDS_MAX);
        let before = self.summary;
        self.work(program, Duration::from_millis(life))?;
        let blocks = self.node.inspect(false)?;
        while self.random.one_in(4) {
            let life = Duration::from_millis(self.random.below(START_MILLISECONDS_MAX));
            self.node.spawn()?;
            self.node.wait_at_most(life);
            self.node.kill()?;
            self.summary.starts_killed += 1;
        }
        self.node.start()?;
        self.summary.replayed += self.node.recovery()?.0;
        self.verify(program)?;
        self.summary.rounds += 1;
        self.summary.operations = self.crew.answered();
        let after = self.summary;
        (self.tell)(&format!(
            "round {round} of seed {}: killed after {life} ms with {}; {} operations, {} promises, \
             {} replayed, {blocks} blocks in use",
            self.plan.seed,
            name.as_deref().unwrap_or("no program"),
            after.operations - before.operations,
            after.promises - before.promises,
            after.replayed - before.replayed,
        ));
        if (round + 1).is_multiple_of(STOP_EVERY_ROUNDS) {
            self.stop()?;
            self.node.start()?;
            self.verify(None)?;
        }
        Ok(())
    }

    /// Lets writers and a program work for some time, and kills the server under them.
    fn work(&mut self, program: Option<usize>, life: Duration) -> Result<(), Failure> {
        let Self { crew, node, programs, .. } = self;
        if let Some(index) = program {
            programs[index].start()?;
        }
        let worked = crew.work(life, |is_killed| {
            let works = program.map_or(Ok(()), |index| programs[index].check_running());
            is_killed.store(true, Ordering::SeqCst);
            let killed = node.kill();
            works.and(killed)
        });
        if let Some(index) = program {
            programs[index].end()?;
        }
        node.check_log()?;
        worked
    }

    fn verify(&mut self, program: Option<usize>) -> Result<(), Failure> {
        self.node.mount()?;
        let address = self.node.nfs_address()?;
        self.crew.verify(address)?;
        if let Some(index) = program {
            self.summary.promises += self.programs[index].verify()?;
        }
        self.node.check_log()
    }

    /// A clean stop, after which the media must be right in everything.
    fn stop(&mut self) -> Result<(), Failure> {
        self.node.stop()?;
        self.summary.stops += 1;
        self.node.inspect(true).map(drop)
    }
}

//! Snapshots under load: one every so often, the oldest deleted when there are more than are kept,
//! and each compared with what a client's directory held when it was taken.
//!
//! Invariants: the client whose directory is recorded is at rest from before the command to after
//! it, so the record is exact while the others go on. A command that a kill interrupts leaves a
//! snapshot that may be there or not; its record counts only if the client had nothing uncommitted.
//!
//! Fails: [`Failure::Lost`] if a snapshot is missing, comes back, or holds something else.

use super::control::Control;
use super::mirror::Command;
use crate::Failure;
use crate::found::read_tree;
use crate::measure::{Class, Recorder};
use crate::node::CommandLine;
use crate::random::Random;
use crate::tree::Tree;
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// A client that can be asked to rest.
#[derive(Clone)]
pub struct Client {
    /// Its directory.
    pub name: String,
    /// Where it is told.
    pub commands: Sender<Command>,
}

impl Client {
    /// Lets the client rest while `meanwhile` runs with what is in its directory.
    ///
    /// # Errors
    /// [`Failure::Stopped`] if the client has ended, which it says itself.
    pub fn at_rest<T>(
        &self,
        is_settled: bool,
        meanwhile: impl FnOnce(Tree) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (reply, replied) = channel();
        let (resume, resumed) = channel();
        let pause = Command::Pause { is_settled, reply, resume: resumed };
        self.commands.send(pause).map_err(|_| Failure::Stopped)?;
        let tree = replied.recv().map_err(|_| Failure::Stopped)?;
        let result = meanwhile(tree);
        let _ = resume.send(()); // it may have ended
        result
    }
}

/// A snapshot, and what is known of it.
struct Snapshot {
    name: String,
    /// Whether a kill came while it was made or deleted.
    is_doubtful: bool,
    /// A client's directory in it.
    record: Option<(String, Tree)>,
}

/// What was done.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Snapshots taken.
    pub taken: u64,
    /// Snapshots deleted.
    pub deleted: u64,
    /// Times that the content of one was compared.
    pub compared: u64,
    /// Commands that a kill interrupted.
    pub interrupted: u64,
}

/// See the module.
pub struct Snapshots {
    commands: CommandLine,
    control: Arc<Control>,
    recorder: Arc<Recorder>,
    mountpoint: PathBuf,
    clients: Vec<Client>,
    random: Random,
    kept: VecDeque<Snapshot>,
    kept_max: usize,
    /// What was done.
    pub counts: Counts,
}

impl Snapshots {
    /// None yet.
    #[must_use]
    pub fn new(
        commands: CommandLine,
        control: Arc<Control>,
        recorder: Arc<Recorder>,
        mountpoint: PathBuf,
        clients: Vec<Client>,
        seed: u64,
        kept_max: usize,
    ) -> Self {
        let (random, kept, counts) = (Random::new(seed), VecDeque::new(), Counts::default());
        Self { commands, control, recorder, mountpoint, clients, random, kept, kept_max, counts }
    }

    /// Takes one, deletes what is too much, and compares one.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn turn(&mut self) -> Result<(), Failure> {
        self.control.check()?;
        self.take()?;
        while self.kept.len() > self.kept_max {
            self.compare(0)?;
            self.delete_oldest()?;
        }
        let index = self.random.below(self.kept.len() as u64) as usize;
        self.compare(index)
    }

    fn take(&mut self) -> Result<(), Failure> {
        let name = format!("s{}", self.counts.taken + self.counts.interrupted);
        let client = self.clients[self.random.below(self.clients.len() as u64) as usize].clone();
        let is_settled = self.random.one_in(2);
        let snapshot = client.at_rest(is_settled, |tree| {
            let life = self.control.life();
            let volume_and_name = format!("home@{name}");
            let command = || self.commands.run(&["snapshot", "create", &volume_and_name]);
            let result = self.recorder.time(Class::Snapshot, command);
            let record = Some((client.name.clone(), tree));
            match result {
                // Unstable data that was there before a kill need not be there after it.
                Ok(_) if self.control.is_over(life) && !is_settled => {
                    Ok(Snapshot { name, is_doubtful: false, record: None })
                }
                Ok(_) => Ok(Snapshot { name, is_doubtful: false, record }),
                Err(_) if self.control.is_over(life) => {
                    let record = record.filter(|_| is_settled);
                    Ok(Snapshot { name, is_doubtful: true, record })
                }
                Err(failure) => Err(failure),
            }
        })?;
        if snapshot.is_doubtful {
            self.counts.interrupted += 1;
        } else {
            self.counts.taken += 1;
        }
        self.kept.push_back(snapshot);
        Ok(())
    }

    fn delete_oldest(&mut self) -> Result<(), Failure> {
        let life = self.control.life();
        let Some(oldest) = self.kept.front_mut() else { return Ok(()) };
        let name = format!("home@{}", oldest.name);
        match self.commands.run(&["snapshot", "delete", &name, "--yes"]) {
            Ok(_) => self.counts.deleted += 1,
            // After the restart `check_list` drops it from the list, or it is deleted then.
            Err(_) if self.control.is_over(life) => {
                oldest.is_doubtful = true;
                self.counts.interrupted += 1;
                return self.await_start();
            }
            // The making of it was never answered, and did not happen.
            Err(Failure::Server(said)) if oldest.is_doubtful && said.contains("no snapshot") => {}
            Err(failure) => return Err(failure),
        }
        self.kept.pop_front();
        Ok(())
    }

    /// Until then no command does anything.
    fn await_start(&self) -> Result<(), Failure> {
        while self.control.steady_ns().is_none() {
            self.control.check()?;
            self.control.wait(std::time::Duration::from_secs(1));
        }
        Ok(())
    }

    /// Compares one; a kill in between leaves nothing said.
    fn compare(&mut self, index: usize) -> Result<(), Failure> {
        let Some(snapshot) = self.kept.get(index) else { return Ok(()) };
        let Some((client, tree)) = snapshot.record.as_ref().filter(|_| !snapshot.is_doubtful)
        else {
            return Ok(());
        };
        let life = self.control.life();
        if !self.control.is_mounted() {
            return Ok(());
        }
        let place = self.mountpoint.join(".snapshot").join(&snapshot.name).join(client);
        let found = read_tree(&place);
        if self.control.is_over(life) {
            return Ok(());
        }
        let differences = tree.difference(&found?);
        if differences.is_empty() {
            self.counts.compared += 1;
            return Ok(());
        }
        let who = format!("snapshot {} of {client}", snapshot.name);
        Err(Failure::Lost { who, what: differences.join("; ") })
    }

    /// After a restart: the snapshots that must be there are, no others are, and they hold what
    /// they held.
    ///
    /// # Errors
    /// [`Failure::Lost`].
    pub fn check_after_kill(&mut self) -> Result<(), Failure> {
        self.check_list()?;
        (0..self.kept.len()).try_for_each(|index| self.compare(index))
    }

    fn check_list(&mut self) -> Result<(), Failure> {
        let listed = self.commands.run(&["snapshot", "list", "home", "-o", "name"])?;
        let listed: BTreeSet<&str> = listed
            .lines()
            .map(|line| line.rsplit_once('@').map_or(line, |(_, name)| name))
            .collect();
        let wrong = |what: String| Err(Failure::Lost { who: "snapshots".to_owned(), what });
        for snapshot in &mut self.kept {
            match listed.contains(snapshot.name.as_str()) {
                true => snapshot.is_doubtful = false,
                false if snapshot.is_doubtful => {}
                false => return wrong(format!("{} is missing", snapshot.name)),
            }
        }
        self.kept.retain(|snapshot| listed.contains(snapshot.name.as_str()));
        let is_known = |name: &&str| self.kept.iter().any(|snapshot| snapshot.name == *name);
        match listed.iter().find(|name| !is_known(name)) {
            Some(name) => wrong(format!("{name} should not be there")),
            None => Ok(()),
        }
    }
}

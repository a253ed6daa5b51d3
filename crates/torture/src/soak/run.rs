//! The conductor of a soak: it lets the load begin, kills the server, starts it again, and
//! compares.
//!
//! Invariants: a kill is made known before it happens; after each start everything that was
//! promised before is checked before the next kill; whoever finds something ends the whole run.
//!
//! Fails: with the first [`Failure`]; nothing is taken away then.

use super::control::Control;
use super::load::{Place, Worked, begin_clients, make_writers, tell_finding};
use super::mirror::{Command, Mirror};
use super::reader::Reader;
use super::report::{Life, Report, Totals};
use super::snapshots::{Client, Snapshots};
use crate::Failure;
use crate::found::read_tree;
use crate::measure::{ProcessUse, Recorder, now_ns};
use crate::node::{Node, Sizes};
use crate::programs::Program;
use crate::random::Random;
use crate::site::Site;
use crate::worker::Worker;
use platform::sync::Mutex;
use platform::thread::{JoinHandle, spawn};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often a snapshot is taken.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(10);
/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How long it lasts, about.
    pub duration: Duration,
    /// How long a server lives on average; without it, there is one kill at the end.
    pub kill_every: Option<Duration>,
    /// Operations a second of all clients, writers and the reader together; 0 for as many as can
    /// be. Programs work as fast as they do.
    pub operations_per_second: u64,
    /// Choices come from it.
    pub seed: u64,
    /// Disks and volume.
    pub sizes: Sizes,
    /// Snapshots that are kept.
    pub snapshots_kept: usize,
    /// The media are read as a whole after every so many kills.
    pub inspect_every: u64,
    /// Where figures go.
    pub output: PathBuf,
}

struct Run<'a> {
    plan: &'a Plan,
    tell: &'a mut dyn FnMut(&str),
    random: Random,
    control: Arc<Control>,
    node: Node,
    clients: Vec<Client>,
    snapshots: Arc<Mutex<Snapshots>>,
    writers: Vec<Worker>,
    reader: Option<Reader>,
    programs: Vec<Program>,
    findings: Receiver<Failure>,
    find: Sender<Failure>,
    lives: Vec<Life>,
    totals: Totals,
    began_ns: u64,
}

/// Runs the plan; a line is told for each life and, in the end, the summary.
///
/// # Errors
/// The first [`Failure`].
pub fn run(site: &mut Site<'_>, plan: &Plan) -> Result<(), Failure> {
    let node = site.node(&plan.sizes)?;
    let control = Arc::new(Control::default());
    control.set_process(node.process());
    control.set_mounted();
    let (address, mountpoint) = (node.nfs_address()?, node.mountpoint());
    let recorder = Arc::new(Recorder::default());
    let (find, findings) = channel();
    let place = Place { plan, mountpoint: &mountpoint, address };
    let (clients, mirrors) = begin_clients(&place, &control, &recorder, &find)?;
    let (writers, reader) = make_writers(&place, &recorder)?;
    let programs = Program::prepare_all(&mountpoint, site, address.port())?;
    let snapshots = Arc::new(Mutex::new(Snapshots::new(
        node.commands(),
        Arc::clone(&control),
        Arc::clone(&recorder),
        mountpoint,
        clients.clone(),
        plan.seed,
        plan.snapshots_kept,
    )));
    let report = Report::begin(&plan.output, node.commands(), Arc::clone(&control), recorder)?;
    let turns = take_turns(Arc::clone(&snapshots), find.clone())?;
    node.check_log()?;
    let mut run = Run {
        plan,
        tell: site.tell,
        random: Random::new(plan.seed),
        control,
        node,
        clients,
        snapshots,
        writers,
        reader: Some(reader),
        programs,
        findings,
        find,
        lives: Vec::new(),
        totals: Totals::default(),
        began_ns: now_ns(),
    };
    let mut result = run.live();
    if result.is_ok() {
        result = run.end_load(turns, mirrors);
    } else {
        run.abandon(turns, mirrors);
    }
    let summary = report.end(&run.lives, &run.totals);
    let summary = match result {
        Ok(()) => summary?,
        Err(failure) => return Err(failure),
    };
    (run.tell)(&summary);
    Ok(())
}

/// The thread that takes snapshots, until the sender is dropped.
fn take_turns(
    snapshots: Arc<Mutex<Snapshots>>,
    find: Sender<Failure>,
) -> Result<(Sender<()>, JoinHandle<()>), Failure> {
    let (stop, stopped) = channel::<()>();
    let body = move || {
        while stopped.recv_timeout(SNAPSHOT_EVERY) == Err(RecvTimeoutError::Timeout) {
            if tell_finding(&find, || snapshots.lock().turn()).is_err() {
                return;
            }
        }
    };
    let thread = spawn("snapshots", body).map_err(Failure::machine("start a thread"))?;
    Ok((stop, thread))
}

impl Run<'_> {
    fn elapsed(&self) -> Duration {
        Duration::from_nanos(now_ns() - self.began_ns)
    }

    fn live(&mut self) -> Result<(), Failure> {
        while self.elapsed() < self.plan.duration {
            let left = self.plan.duration.saturating_sub(self.elapsed());
            let time = self.plan.kill_every.map_or(left, |mean| {
                let milliseconds = u64::try_from(mean.as_millis()).unwrap_or(u64::MAX).max(2);
                let time = milliseconds / 2 + self.random.below(milliseconds);
                Duration::from_millis(time).min(left)
            });
            self.one_life(time)?;
        }
        Ok(())
    }

    fn one_life(&mut self, time: Duration) -> Result<(), Failure> {
        let number = self.lives.len() as u64;
        let program = self
            .programs
            .len()
            .checked_sub(1)
            .map(|last| usize::try_from(number).unwrap_or(0) % (last + 1));
        let mut life = Life::default();
        self.work(program, time, &mut life)?;
        let killed_ns = now_ns();
        if (number + 1).is_multiple_of(self.plan.inspect_every) {
            life.blocks_checked = self.node.inspect(false)?;
        }
        let mut start_ns = now_ns();
        while self.random.one_in(4) {
            // About as long as starts take, so that some die while they replay.
            let usual = self.lives.last().map_or(250, |life| life.start_ms).max(20);
            let time = Duration::from_millis(self.random.below(usual + usual / 4));
            self.node.spawn()?;
            self.node.wait_at_most(time);
            self.node.kill()?;
            life.starts_killed += 1;
            start_ns = now_ns();
        }
        self.node.start()?;
        life.start_ms = (now_ns() - start_ns) / 1_000_000;
        life.outage_ms = (now_ns() - killed_ns) / 1_000_000;
        (life.replayed, life.replay_ns) = self.node.recovery()?;
        self.control.end_kill(self.node.process());
        self.node.mount()?;
        self.control.set_mounted();
        let verify_ns = now_ns();
        life.promises = self.verify(program)?;
        life.verify_ms = (now_ns() - verify_ns) / 1_000_000;
        let minutes = self.elapsed().as_secs_f64() / 60.0;
        let sentence = life.sentence(program.map(|index| self.programs[index].kind()));
        (self.tell)(&format!("{minutes:6.1} min, kill {}: {sentence}", number + 1));
        self.lives.push(life);
        Ok(())
    }

    /// Lets writers over FUSE and a program work, and kills the server under them.
    fn work(
        &mut self,
        program: Option<usize>,
        time: Duration,
        life: &mut Life,
    ) -> Result<(), Failure> {
        let began_ns = now_ns();
        let is_killed = Arc::new(AtomicBool::new(false));
        let machine = || Failure::machine("start a thread");
        let mut writers: Vec<Worked<Worker>> = Vec::new();
        for mut writer in self.writers.drain(..) {
            let (is_killed, find) = (Arc::clone(&is_killed), self.find.clone());
            let body = move || {
                let result = tell_finding(&find, || writer.work(&is_killed));
                (writer, result)
            };
            writers.push(spawn("fuse-writer", body).map_err(machine())?);
        }
        let mut reading: Option<Worked<Reader>> = None;
        if let Some(mut reader) = self.reader.take() {
            let (is_killed, find) = (Arc::clone(&is_killed), self.find.clone());
            let body = move || {
                let result = tell_finding(&find, || reader.work(&is_killed));
                (reader, result)
            };
            reading = Some(spawn("fuse-reader", body).map_err(machine())?);
        }
        if let Some(index) = program {
            self.programs[index].start()?;
        }
        let finding = self.findings.recv_timeout(time).ok();
        let works = program.map_or(Ok(()), |index| self.programs[index].check_running());
        life.lived_ms = (now_ns() - began_ns) / 1_000_000;
        let used = self.node.process().and_then(ProcessUse::read).unwrap_or_default();
        life.resident_max_kib = used.resident_max_kib;
        is_killed.store(true, Ordering::SeqCst);
        self.control.begin_kill();
        life.killed_at_s = self.elapsed().as_secs();
        let killed = self.node.kill();
        for writer in writers {
            let Ok((writer, _)) = writer.join() else { panic!("a writer panicked") };
            self.writers.push(writer);
        }
        if let Some(reading) = reading {
            let Ok((reader, _)) = reading.join() else { panic!("the reader panicked") };
            self.reader = Some(reader);
        }
        if let Some(index) = program {
            self.programs[index].end()?;
        }
        self.node.check_log()?;
        match finding.or_else(|| self.findings.try_recv().ok()) {
            Some(failure) => Err(failure),
            None => killed.and(works),
        }
    }

    fn verify(&mut self, program: Option<usize>) -> Result<u64, Failure> {
        let address = self.node.nfs_address()?;
        for writer in &mut self.writers {
            writer.verify(address)?;
        }
        if let Some(reader) = &self.reader {
            reader.verify()?;
        }
        let promises = program.map_or(Ok(0), |index| self.programs[index].verify())?;
        // Clients over NFS have repeated what was under way, and compared; now over FUSE.
        let mut snapshots = self.snapshots.lock();
        for client in &self.clients {
            let place = self.node.mountpoint().join(&client.name);
            let rested = client.at_rest(false, |tree| {
                let differences = tree.difference(&read_tree(&place)?);
                if differences.is_empty() {
                    return Ok(());
                }
                let who = format!("{} over FUSE", client.name);
                Err(Failure::Lost { who, what: differences.join("; ") })
            });
            if matches!(rested, Err(Failure::Stopped)) {
                break; // the client says why
            }
            rested?;
        }
        snapshots.check_after_kill()?;
        drop(snapshots);
        self.node.check_log()?;
        self.findings.try_recv().map_or(Ok(promises), Err)
    }

    /// The clients compare everything a last time; the server stops; the media are right.
    fn end_load(
        &mut self,
        turns: (Sender<()>, JoinHandle<()>),
        mirrors: Vec<Worked<Mirror>>,
    ) -> Result<(), Failure> {
        drop(turns.0);
        let _ = turns.1.join();
        for client in &self.clients {
            let _ = client.commands.send(Command::End); // or it has ended with a finding
        }
        for mirror in mirrors {
            let Ok((mirror, _)) = mirror.join() else { panic!("a client panicked") };
            self.totals.add(mirror.counts());
        }
        if let Ok(failure) = self.findings.try_recv() {
            return Err(failure);
        }
        self.totals.fuse_operations = self.writers.iter().map(Worker::answered).sum();
        self.totals.fuse_reads = self.reader.as_ref().map_or(0, |reader| reader.answered);
        self.totals.snapshots = self.snapshots.lock().counts;
        self.control.begin_kill();
        self.node.stop()?;
        self.totals.blocks_checked = self.node.inspect(true)?;
        self.node.check_log()
    }

    /// After a finding: everything ends, and everything is left as it is.
    fn abandon(&mut self, turns: (Sender<()>, JoinHandle<()>), mirrors: Vec<Worked<Mirror>>) {
        self.control.abandon();
        if self.node.is_running() {
            let _ = self.node.kill();
        }
        drop(turns.0);
        let _ = turns.1.join();
        for mirror in mirrors {
            let _ = mirror.join();
        }
    }
}

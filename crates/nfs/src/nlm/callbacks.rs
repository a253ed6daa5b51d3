//! Calls to clients, on threads of their own: a lock that was waited for is granted, the result of
//! a call that came as a message, the notice that this server was started anew, and the question
//! whether the client itself was.
//!
//! Each call finds its client's port by that machine's rpcbind. Who does not answer is asked again
//! after a while, with others in between, by one thread: the other calls only those that are not
//! known to be silent ([`super::call_queue`]). However its client dawdles, a call ends
//! ([`onc_rpc::client`]).
//!
//! Invariants:
//! - A late grant is told until the client has answered, or asked again itself; if it does not want
//!   the lock, or cannot be reached for [`GRANT_ATTEMPTS_MAX`] attempts, the lock is given back, so
//!   that it stands in nobody's way.
//! - A notice that a client was started anew proves nothing, as anybody can send it. The locks go
//!   when that machine itself says so ([`Callbacks::confirm`]).
//!
//! Fails: by asking again, then by giving up with a line in the log.

use super::call_queue::{CallQueue, Full, Job, RESULTS_MAX};
use super::host::Host;
use super::hosts::Hosts;
use super::{nsm, procedures, wire};
use crate::export::{self, ExportPolicy};
use crate::request::Context;
use locks::{LockManager, Mode, Request};
use onc_rpc::client::{CallError, Procedure, call_datagram, call_stream};
use onc_rpc::rpcbind::{self, Transport};
use onc_rpc::{Reader, Writer};
use platform::Clock;
use platform::sync::{Condvar, Mutex};
use platform::thread::JoinHandle;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// One client that does not answer holds up a thread for some seconds.
pub(crate) const THREADS: usize = 2;
/// How long until a grant is told again. Clients ask by themselves every 30 seconds.
const GRANT_PAUSE_NANOSECONDS: u64 = 5_000_000_000;
/// Attempts at a grant, over a minute.
const GRANT_ATTEMPTS_MAX: u32 = 12;
/// How long until a notice of the restart is sent again, at first; it doubles.
const NOTICE_PAUSE_NANOSECONDS: u64 = 2_000_000_000;
/// Attempts at a notice or a question, over a quarter of an hour, as `sm-notify` makes them.
const NOTICE_ATTEMPTS_MAX: u32 = 9;
/// How often the end of the grace period is looked for.
const TICK: Duration = Duration::from_millis(500);
const TICK_NANOSECONDS: u64 = 500_000_000;
/// Ticks between looks for machines without locks.
const TICKS_A_SWEEP: u64 = 40;

/// Locks that were granted late and whose clients may not know it.
#[derive(Default)]
struct Grants {
    next: u64,
    told: BTreeMap<u64, (Host, Request)>,
}

#[derive(Default)]
struct Queue {
    jobs: CallQueue,
    /// Whether results are being dropped, which is said once.
    drops: bool,
    grants: Grants,
    stopping: bool,
}

/// What a machine says of its status monitor.
enum Number {
    /// It has this number.
    Is(NonZeroU32),
    /// It has none that means anything.
    Unknown,
    /// There is none, and no lock manager.
    Gone,
}

/// See the module.
pub(crate) struct Callbacks {
    clock: Arc<dyn Clock>,
    policy: Arc<dyn ExportPolicy>,
    locks: Arc<LockManager>,
    hosts: Arc<Hosts>,
    node: String,
    client_rpcbind_port: u16,
    queue: Mutex<Queue>,
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Callbacks {
    pub(crate) fn start(
        context: &Context,
        locks: Arc<LockManager>,
        hosts: Arc<Hosts>,
        (node, client_rpcbind_port): (String, u16),
        threads_count: usize,
    ) -> io::Result<Arc<Self>> {
        let callbacks = Arc::new(Self {
            clock: Arc::clone(&context.clock),
            policy: Arc::clone(&context.policy),
            locks,
            hosts,
            node,
            client_rpcbind_port,
            queue: Mutex::default(),
            changed: Condvar::new(),
            threads: Mutex::default(),
        });
        for number in 0..threads_count {
            let running = Arc::clone(&callbacks);
            let body = move || running.run(number == 0);
            match platform::thread::spawn(&format!("nlm-call-{number}"), body) {
                Ok(thread) => callbacks.threads.lock().push(thread),
                Err(error) => {
                    callbacks.stop();
                    return Err(error);
                }
            }
        }
        Ok(callbacks)
    }

    /// Ends the threads; what was not called is not called.
    pub(crate) fn stop(&self) {
        self.queue.lock().stopping = true;
        self.changed.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread that calls clients panicked");
            }
        }
    }

    /// A lock that a client waited for is held now.
    pub(crate) fn granted(&self, host: Host, request: Request) {
        let client = request.owner.client;
        let number = {
            let grants = &mut self.queue.lock().grants;
            grants.next += 1;
            grants.told.insert(grants.next, (host.clone(), request));
            grants.next
        };
        self.push(Job::Grant { number, host: host.clone() }, 0, 0);
        // It may have given back all just now.
        if !self.hosts.is_client(&host, client) {
            self.forget_grants(&host);
        }
    }

    /// The client has spoken about a lock of this owner and file by itself, so it need not be told;
    /// gives the requests that it had not heard of.
    pub(crate) fn heard(&self, request: &Request) -> Vec<Request> {
        let same = |_: &u64, (_, granted): &mut (Host, Request)| {
            granted.file == request.file && granted.owner == request.owner
        };
        let mut queue = self.queue.lock();
        let heard: Vec<_> = queue.grants.told.extract_if(.., same).collect();
        for (number, (host, _)) in &heard {
            queue.jobs.drop_grants(host.address, &[*number]);
        }
        heard.into_iter().map(|(_, (_, granted))| granted).collect()
    }

    /// A machine has lost locks, or given back all: nobody is told of those that are no more.
    pub(crate) fn forget_grants(&self, host: &Host) {
        let mut queue = self.queue.lock();
        let of_host = queue.grants.told.iter().filter(|(_, (of, _))| of == host);
        let numbers: Vec<u64> = of_host
            .filter(|(_, (_, granted))| !self.hosts.is_client(host, granted.owner.client))
            .map(|(number, _)| *number)
            .collect();
        numbers.iter().for_each(|number| drop(queue.grants.told.remove(number)));
        queue.jobs.drop_grants(host.address, &numbers);
    }

    pub(crate) fn result(&self, host: Host, procedure: u32, results: Vec<u8>) {
        self.push(Job::Result { host, procedure, results }, 0, 0);
    }

    pub(crate) fn tell_of_restart(&self, host: Host) {
        self.push(Job::Notice { host }, 0, 0);
    }

    /// Somebody says that a machine was started anew. It is asked once, however often that is said.
    pub(crate) fn confirm_restart(&self, host: Host) {
        if !self.queue.lock().jobs.confirms(&host) {
            self.push(Job::Confirm { host }, 0, 0);
        }
    }

    /// Late grants that are kept.
    #[cfg(test)]
    pub(super) fn grants(&self) -> usize {
        self.queue.lock().grants.told.len()
    }

    /// The next call, which is made here, for tests: whether the client answers. `None` if no call
    /// is due.
    #[cfg(test)]
    pub(super) fn step(&self) -> Option<bool> {
        let now = self.clock.monotonic_nanoseconds();
        let (job, attempts) = self.queue.lock().jobs.begin(now, false)?;
        let address = job.host().address;
        let answers = self.attempt(job, attempts + 1);
        self.queue.lock().jobs.end(address, answers, now);
        answers
    }

    fn push(&self, job: Job, attempts: u32, pause_nanoseconds: u64) {
        let due = self.clock.monotonic_nanoseconds() + pause_nanoseconds;
        let mut queue = self.queue.lock();
        let pushed = queue.jobs.push(job, attempts, due);
        let drops = std::mem::replace(&mut queue.drops, pushed == Err(Full));
        if queue.drops && !drops {
            tracing::warn!(limit = RESULTS_MAX, "results of locks are dropped: clients ask again");
        }
        drop(queue);
        // All: the one that is woken may be the one that does not take it.
        self.changed.notify_all();
    }

    /// Makes calls until the end: one thread ticks, and takes what was tried in vain.
    fn run(&self, is_first: bool) {
        let mut ticks = 0;
        let mut next_tick = 0;
        let mut queue = self.queue.lock();
        while !queue.stopping {
            let now = self.clock.monotonic_nanoseconds();
            if is_first && now >= next_tick {
                next_tick = now + TICK_NANOSECONDS;
                ticks += 1;
                queue.jobs.forget_silences(now);
                drop(queue);
                self.tick(ticks);
                queue = self.queue.lock();
                continue;
            }
            if let Some((job, attempts)) = queue.jobs.begin(now, !is_first) {
                drop(queue);
                let address = job.host().address;
                let answers = self.attempt(job, attempts + 1);
                queue = self.queue.lock();
                queue.jobs.end(address, answers, self.clock.monotonic_nanoseconds());
                self.changed.notify_all();
            } else {
                self.changed.wait_for(&mut queue, TICK);
            }
        }
    }

    fn tick(&self, tick: u64) {
        // Who waits for its end is served by the look.
        if !self.locks.in_grace() {
            self.hosts.end_of_grace();
        }
        if tick.is_multiple_of(TICKS_A_SWEEP) {
            self.hosts.sweep();
        }
    }

    /// Makes a call; whether the client answers, if it was to be called.
    fn attempt(&self, job: Job, attempts: u32) -> Option<bool> {
        match job {
            Job::Grant { number, host } => self.grant(number, host, attempts),
            Job::Result { host, procedure, results } => {
                // A client that does not get it asks again.
                let called = self.call(&host, procedures::PROGRAM, 4, procedure, &results);
                if let Err(error) = &called {
                    tracing::debug!(%host.address, %error, "a result was not delivered");
                }
                Some(called.is_ok())
            }
            Job::Notice { host } => Some(self.notice(host, attempts)),
            Job::Confirm { host } => Some(self.confirm(host, attempts)),
        }
    }

    fn grant(&self, number: u64, host: Host, attempts: u32) -> Option<bool> {
        let (_, request) = self.queue.lock().grants.told.get(&number).cloned()?;
        let Some(file) = export::seal(&*self.policy, &request.file) else {
            self.give_back(number);
            return None;
        };
        let mut arguments = Writer::default();
        arguments.opaque(&number.to_be_bytes());
        arguments.bool(request.mode == Mode::Exclusive);
        wire::Lock {
            caller: host.name.as_bytes(),
            file: &file,
            owner: wire::object_of(&request.owner),
            process: request.process,
            offset: request.range.start(),
            length: request.range.length(),
        }
        .write(&mut arguments);
        let answer =
            self.call(&host, procedures::PROGRAM, 4, procedures::GRANTED, arguments.bytes());
        let status = answer.and_then(|results| {
            let mut reader = Reader::new(&results);
            reader.opaque(wire::OBJECT_BYTES_MAX)?;
            Ok(reader.u32()?)
        });
        let answers = status.is_ok();
        let wanted = match status {
            Ok(status) => status == wire::Status::Granted as u32,
            Err(error) if attempts < GRANT_ATTEMPTS_MAX => {
                tracing::debug!(%host.address, %error, attempts, "a grant was not delivered");
                self.push(Job::Grant { number, host }, attempts, GRANT_PAUSE_NANOSECONDS);
                return Some(answers);
            }
            Err(error) => {
                tracing::warn!(%host.address, %error, "a client does not take its lock");
                false
            }
        };
        match wanted {
            true => drop(self.queue.lock().grants.told.remove(&number)),
            false => self.give_back(number),
        }
        Some(answers)
    }

    /// Takes a lock from a client that has not heard of it.
    fn give_back(&self, number: u64) {
        let unheard = self.queue.lock().grants.told.remove(&number);
        if let Some((_, Request { file, owner, kind, range, .. })) = unheard {
            self.locks.unlock(file, &owner, kind, &range);
        }
    }

    fn notice(&self, host: Host, attempts: u32) -> bool {
        let mut arguments = Writer::default();
        arguments.opaque(self.node.as_bytes());
        arguments.u32(self.hosts.state());
        let called = self.call(&host, nsm::PROGRAM, 1, nsm::NOTIFY, arguments.bytes());
        let answers = called.is_ok();
        match called {
            Ok(_) => tracing::info!(%host.address, name = &*host.name, "told of the restart"),
            Err(error) if attempts < NOTICE_ATTEMPTS_MAX => {
                tracing::debug!(%host.address, %error, attempts, "cannot notify NFS clients of the restart yet");
                let pause = NOTICE_PAUSE_NANOSECONDS << attempts;
                self.push(Job::Notice { host }, attempts, pause);
                return answers;
            }
            Err(error) => {
                tracing::warn!(%host.address, %error, "cannot notify NFS clients of the restart")
            }
        }
        self.hosts.told(&host);
        answers
    }

    /// Asks a machine that is said to have been started anew. What it locked under another number
    /// of its status monitor than it has now goes; all goes if it has neither a status monitor nor
    /// a lock manager.
    fn confirm(&self, host: Host, attempts: u32) -> bool {
        let said = self.ask_number(&host);
        let answers = said.is_ok();
        let (address, name) = (host.address, Arc::clone(&host.name));
        match said {
            Ok(Number::Is(number)) if self.hosts.forgets_but(&host, number) => {
                self.forget_grants(&host);
                tracing::info!(%address, %name, "a client was restarted: its locks are free");
            }
            Ok(Number::Is(_) | Number::Unknown) => tracing::info!(
                %address, %name, "that a client was restarted is not confirmed: it keeps its locks"
            ),
            Ok(Number::Gone) => {
                self.hosts.forgets(&host);
                self.forget_grants(&host);
                tracing::info!(%address, %name, "a client locks no more: its locks are free");
            }
            Err(error) if attempts < NOTICE_ATTEMPTS_MAX => {
                tracing::debug!(%address, %error, attempts, "cannot ask whether a client was restarted");
                let pause = NOTICE_PAUSE_NANOSECONDS << attempts;
                self.push(Job::Confirm { host }, attempts, pause);
            }
            Err(error) => tracing::warn!(
                %address, %name, %error,
                "a client is said to have been restarted and does not answer: it keeps its locks"
            ),
        }
        answers
    }

    /// Asks for the number of a machine's status monitor.
    fn ask_number(&self, host: &Host) -> Result<Number, CallError> {
        let mut arguments = Writer::default();
        arguments.opaque(self.node.as_bytes());
        match self.call_over_stream(host, nsm::PROGRAM, nsm::VERSION, nsm::STAT, &arguments) {
            Ok(results) => {
                let mut reader = Reader::new(&results);
                // Whether it would monitor this node, which says nothing here.
                reader.u32()?;
                Ok(nsm::number(reader.u32()?).map_or(Number::Unknown, Number::Is))
            }
            Err(CallError::NotRegistered { .. }) => {
                let (program, version) = (procedures::PROGRAM, procedures::VERSION);
                match self.call_over_stream(host, program, version, 0, &Writer::default()) {
                    Ok(_) => Ok(Number::Unknown),
                    Err(CallError::NotRegistered { .. }) => Ok(Number::Gone),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Calls a program of a client, over UDP as these programs are by custom, else over TCP.
    fn call(
        &self,
        host: &Host,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: &[u8],
    ) -> Result<Vec<u8>, CallError> {
        let procedure = Procedure { program, version, procedure };
        let at = SocketAddr::new(host.address, self.client_rpcbind_port);
        let find = |transport| rpcbind::find(at, program, version, transport);
        let datagram =
            find(Transport::Udp).and_then(|address| call_datagram(address, procedure, arguments));
        datagram.or_else(|_| {
            find(Transport::Tcp).and_then(|address| call_stream(address, procedure, arguments))
        })
    }

    /// Calls a program of a client over TCP alone: who answers is at that address.
    fn call_over_stream(
        &self,
        host: &Host,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: &Writer,
    ) -> Result<Vec<u8>, CallError> {
        let procedure = Procedure { program, version, procedure };
        let at = SocketAddr::new(host.address, self.client_rpcbind_port);
        let address = rpcbind::find_stream(at, program, version)?;
        call_stream(address, procedure, arguments.bytes())
    }
}

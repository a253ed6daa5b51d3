//! A life with clients: rounds of calls, rest, power cuts and outages.

use super::client::Client;
use super::forging::Forger;
use super::locking::{Machines, StateDirectory};
use super::network::Network;
use super::plan::{VOLUME, VOLUME_BLOCKS, plan_of};
use super::server::{CLIENTS_MAX, programs, replies_of};
use crate::checks::media::check_media;
use crate::checks::space::check_promises;
use crate::machine::cut::{Cut, choose_fate};
use crate::machine::{AGGREGATE, Machine};
use crate::plan::Plan;
use crate::seed::choices::{Choices, Purpose};
use crate::seed::finding::Finding;
use crate::seed::lives::Lives;
use crate::seed::reduction::Calm;
use crate::seed::trace::Trace;
use dblade::VolumeRequest;
use file_service::{Caller, FileService, calls};
use nfs::{EveryClient, ReplyLimits};
use platform::Clock;
use platform::completion::promise;
use std::sync::Arc;

const ROOT_MODE: u16 = 0o777;
/// Calls of a round for each operation of a round of other lives: they are cheaper.
const CALLS_PER_OPERATION: u64 = 3;

pub(super) struct FrontLife<'a> {
    pub(super) machine: Machine<'a>,
    pub(super) events: Choices,
    pub(super) net: Choices,
    pub(super) network: Network,
    pub(super) clients: Vec<Client>,
    pub(super) machines: Machines,
    pub(super) forger: Forger,
    pub(super) state_directory: Arc<StateDirectory>,
    pub(super) replies: ReplyLimits,
    pub(super) cuts_recovery: bool,
}

/// Lives a seed's life with clients.
///
/// # Errors
/// The first [`Finding`].
pub(crate) fn live(seed: u64, lives: &Lives, trace: &mut Trace) -> Result<(), Finding> {
    let salt = lives.reduction.salt;
    let mut choices = Choices::of(seed, Purpose::FrontEnd, salt);
    let plan = Plan::new(&mut Choices::of(seed, Purpose::Plan, 0), lives);
    let plan = plan_of(plan, &mut choices).reduced(&lives.reduction);
    trace.note(format!("seed {seed}, NFS: {plan}"));
    let machine = Machine::new(seed, salt, plan, trace);
    let state_directory = Arc::new(StateDirectory::default());
    let replies = replies_of(&mut choices);
    let programs = programs(&machine, &state_directory, replies);
    let stream = |index| Choices::of(seed, Purpose::FrontEnd, salt ^ (index + 1) << 32);
    let clients = 1 + choices.index(CLIENTS_MAX);
    let clients = (0..clients).map(|number| Client::new(number, stream(number as u64)));
    let mut life = FrontLife {
        machine,
        events: Choices::of(seed, Purpose::Events, salt),
        net: stream(100),
        network: Network::new(programs),
        clients: clients.collect(),
        machines: Machines::new(stream(101)),
        forger: Forger::new(stream(102)),
        state_directory,
        replies,
        cuts_recovery: !lives.reduction.is_calm(Calm::RecoveryCuts),
    };
    let outcome = life.live();
    life.machine.count_world();
    life.machine.engine.halt();
    life.machine.world.clear();
    outcome
}

/// What a client found.
pub(super) const fn found(text: String) -> Finding {
    Finding::Client(text)
}

impl FrontLife<'_> {
    fn live(&mut self) -> Result<(), Finding> {
        self.machine.create_aggregate(false)?;
        let request = VolumeRequest {
            root: (0, 0, ROOT_MODE),
            ..VolumeRequest::new(VOLUME, AGGREGATE, VOLUME_BLOCKS)
        };
        let made = promise(|done| self.machine.engine.create_volumes(request, done));
        let made = self.machine.wait("create volume", &made)?;
        made.map_err(|error| self.machine.refused("create volume", &error.to_string()))?;
        let root = promise(|done| {
            self.machine.service.root(
                &Caller::root(),
                calls::Root { name: VOLUME.to_owned() },
                done,
            )
        });
        let root = self.machine.wait("root of the volume", &root)?;
        let root = root.map_err(|error| self.machine.refused("root", &error.to_string()))?;
        self.machines.set_file(root.handle.seal(&EveryClient::KEY).to_vec());
        let rounds = self.machine.plan.rounds;
        for round in 1..=rounds {
            self.machine.trace.round = round;
            self.round()?;
        }
        Ok(())
    }

    /// Work, rest, and a power cut at any moment of both, or after them.
    fn round(&mut self) -> Result<(), Finding> {
        let step = self.machine.trace.step;
        let is_cut = self.events.chance(60);
        let cut = is_cut.then(|| Cut::choose(&mut self.events, step));
        self.machine.arm(cut);
        let done = self.work();
        self.after(done)?;
        let done = self.rest();
        self.after(done)?;
        self.machine.arm(None);
        if self.events.chance(30) {
            self.after(Err(Finding::PowerCut))?;
        }
        // Whatever came between: in the end all is there.
        self.rest()
    }

    fn after(&mut self, outcome: Result<(), Finding>) -> Result<(), Finding> {
        match outcome {
            Err(Finding::PowerCut) => self.start_again(),
            Err(Finding::Outage) => self.sit_out(),
            outcome => outcome,
        }
    }

    /// Calls, repeated, over connections that are cut.
    fn work(&mut self) -> Result<(), Finding> {
        let mut left = self.machine.plan.operations * CALLS_PER_OPERATION;
        while left > 0 {
            match self.net.below(200) {
                0..40 => left -= u64::from(self.call()),
                40..44 => self.repeat(),
                44..46 => self.cut(),
                46 => self.restart_client(),
                47 => self.request_point(),
                48..50 => self.machine.pass_time(),
                50 if self.net.chance(20) => self.machine.begin_outage(),
                51..60 => self.lock(),
                60..130 => {
                    self.deliver()?;
                }
                _ => {
                    if !self.machine.step() && !self.deliver()? {
                        left -= 1;
                        self.machine.pass_time();
                    }
                }
            }
            self.network.take_replies().map_err(found)?;
            self.forge_handle()?;
            self.machine.check_progress(0, || "clients".to_owned())?;
        }
        Ok(())
    }

    /// Nothing is repeated and nothing cut: everything is answered, and then all is looked at.
    fn rest(&mut self) -> Result<(), Finding> {
        self.finish_calls()?;
        self.clients.iter_mut().for_each(Client::look_at_all);
        self.finish_calls()?;
        self.machine.consistency_point()?;
        self.machine.settle()?;
        check_promises(&mut self.machine)?;
        check_media(&mut self.machine)
    }

    fn finish_calls(&mut self) -> Result<(), Finding> {
        let mut idle = 0;
        while !self.is_idle() {
            let mut is_busy = self.send_planned();
            is_busy |= if self.net.chance(50) { self.deliver()? } else { self.machine.step() };
            self.network.take_replies().map_err(found)?;
            // One of the two was not tried.
            if is_busy || self.machine.step() || self.deliver()? {
                idle = 0;
            } else {
                self.machine.pass_time();
                idle += 1;
            }
            self.network.take_replies().map_err(found)?;
            let Self { machine, clients, .. } = self;
            machine.check_progress(idle, || {
                clients.iter().map(Client::waiting).collect::<Vec<_>>().join("; ")
            })?;
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        let is_answered = self.clients.iter().all(Client::is_idle) && self.machines.is_idle();
        is_answered && self.network.is_empty()
    }

    fn request_point(&mut self) {
        if let Some(aggregate) = self.machine.aggregate() {
            aggregate.request_consistency_point(None);
        }
    }

    /// The power goes, and the server starts again with all that it knew forgotten.
    fn start_again(&mut self) -> Result<(), Finding> {
        let mut cuts_left = if self.cuts_recovery { 2 } else { 0 };
        self.power_cut();
        loop {
            self.machine.arm(None);
            self.machine.end_outage();
            self.machine.start();
            let opened = self.machine.open_aggregate();
            if cuts_left > 0 && self.events.chance(20) {
                cuts_left -= 1;
                let at = self.machine.trace.step + self.events.scaled(9);
                self.machine.arm(Some(Cut::At(at)));
            }
            let driven = self.machine.drive_until("open aggregate", |_| opened.lock().is_some());
            self.machine.arm(None);
            if driven == Err(Finding::PowerCut) {
                self.machine.trace.meet("cut: during recovery");
                self.power_cut();
                continue;
            }
            driven?;
            let Some(opened) = opened.lock().take() else {
                unreachable!("it was driven until it was opened")
            };
            let recovery = opened.map_err(|error| Finding::Open(error.to_string()))?;
            self.machine.trace.note(format!("open: {} operations replayed", recovery.replayed));
            break;
        }
        self.network = Network::new(programs(&self.machine, &self.state_directory, self.replies));
        for index in 0..self.clients.len() {
            self.clients[index].server_lost(true);
            self.connect(index);
        }
        self.machines.server_lost(self.machine.world.monotonic_nanoseconds());
        for index in 0..Machines::COUNT {
            self.send_lock(index);
        }
        Ok(())
    }

    fn power_cut(&mut self) {
        // Connections go first: what the engine drops with its messages is heard by nobody.
        self.network.close();
        let fate = choose_fate(&mut self.events, self.machine.phase(), |_| None);
        self.machine.power_cut(fate);
    }

    /// The disks are away, and come back to the same engine and the same server.
    fn sit_out(&mut self) -> Result<(), Finding> {
        self.machine.trace.note("the aggregate is away".to_owned());
        self.machine.arm(None);
        for _ in 0..self.net.below(20) {
            self.call();
            self.deliver()?;
            self.network.take_replies().map_err(found)?;
        }
        let known = self.machine.aggregate().map(|aggregate| aggregate.parts.identity.aggregate);
        let outages = self.machine.engine.outages();
        let known = known.or(outages.first().map(|outage| outage.summary.identity));
        let Some(identity) = known else {
            return Err(Finding::Open("the aggregate is away and nobody knows of it".to_owned()));
        };
        self.machine.drive_until("an aggregate to be closed", |machine| {
            machine.aggregate().is_none() && machine.engine.is_closed(&identity)
        })?;
        self.machine.end_outage();
        self.machine.settle()?;
        let opened = self.machine.open_aggregate();
        self.machine.drive_until("open aggregate", |_| opened.lock().is_some())?;
        let Some(opened) = opened.lock().take() else { unreachable!("it was driven until then") };
        opened.map_err(|error| Finding::Open(error.to_string()))?;
        self.machine.trace.meet("outage: back without a start");
        self.clients.iter_mut().for_each(|client| client.server_lost(false));
        Ok(())
    }
}

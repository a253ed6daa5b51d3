//! The NFS front end of a node in a seed's life: clients, a network that repeats, delays and cuts,
//! and the programs of [`nfs`] over the engine of the [`crate::machine`].
//!
//! What runs is what a server runs, from the bytes of a record to those of its reply, but for
//! sockets and their threads ([`onc_rpc::Dialogue`]). Clients repeat calls over the same connection
//! and over new ones, three times and more; connections that were given up are read late; the log
//! stalls and the memory is full as in other lives; the power goes, and the disks.
//!
//! | part | what it does |
//! | --- | --- |
//! | `network` | connections; one reply at most for each copy of a call |
//! | `client` | what a client does, and what the answers must be |
//! | `content` | what its files may hold |
//! | `locking` | two machines that lock one file |
//!
//! Invariants: everything follows from the seed. In the end of a round nothing is repeated and
//! nothing is cut any more: then every call must be answered, over the last connection of its
//! client.
//!
//! Fails: [`Finding::Client`], and all that the other lives find.

mod client;
mod content;
mod locking;
mod network;

use crate::choices::{Choices, Purpose};
use crate::cut::{Cut, choose_fate};
use crate::finding::Finding;
use crate::machine::{AGGREGATE, Machine, promise};
use crate::media::check_media;
use crate::plan::{Filling, Plan, VolumePlan};
use crate::reduction::Calm;
use crate::run::Lives;
use crate::space::check_promises;
use crate::trace::Trace;
use client::{Client, Judged};
use dblade::VolumeRequest;
use file_service::{Caller, Durability, FileService, calls};
use locking::{Machines, StateDirectory};
use network::Network;
use nfs::{EveryClient, ExportAccess, Programs, ReplyLimits, Squash};
use ondisk::label::RaidKind;
use platform::Clock;
use std::sync::Arc;

/// The volume that clients mount; of a traditional aggregate it is the aggregate itself.
const VOLUME: &str = "v";
const ROOT_MODE: u16 = 0o777;
const VOLUME_BLOCKS: u64 = 4096;
/// Clients at most.
const CLIENTS_MAX: usize = 3;
/// Of 100 lives on disks with parity, those in which more disks go than parity covers.
const OUTAGE_PERCENT: u64 = 40;
/// Of 100 lives, those with little memory, where writes wait for room.
const SMALL_MEMORY_PERCENT: u64 = 70;
const SMALL_MEMORY_BYTES: u64 = 1 << 20;
/// Of 100 lives, those of a server that keeps few answers.
const FEW_REPLIES_PERCENT: u64 = 50;
/// Of 100 deliveries there, those that leave out what is read late, so that it is read very late.
const LATER_PERCENT: u64 = 97;
/// Answers of one client that it keeps then.
const FEW_REPLIES: usize = client::SPAN_MAX as usize + client::PENDING_MAX;
/// Calls of a round for each operation of a round of other lives: they are cheaper.
const CALLS_PER_OPERATION: u64 = 3;

const ACCESS: ExportAccess = ExportAccess {
    read_only: false,
    squash: Squash::None,
    anonymous_uid: 65534,
    anonymous_gid: 65534,
    secure_ports: false,
    hide_snapshots: false,
};

struct FrontLife<'a> {
    machine: Machine<'a>,
    events: Choices,
    net: Choices,
    network: Network,
    clients: Vec<Client>,
    machines: Machines,
    state_directory: Arc<StateDirectory>,
    replies: ReplyLimits,
    cuts_recovery: bool,
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

/// The node of a life with clients: small, on disks that damage nothing.
fn plan_of(plan: Plan, choices: &mut Choices) -> Plan {
    let has_small_memory = choices.chance(SMALL_MEMORY_PERCENT);
    let has_outages = choices.chance(OUTAGE_PERCENT) && plan.kind != RaidKind::None;
    let volume = VolumePlan { size_blocks: VOLUME_BLOCKS, durability: Durability::Logged };
    Plan {
        disk_blocks: plan.disk_blocks.max(4 * VOLUME_BLOCKS / plan.disks as u64),
        memory_bytes: if has_small_memory { SMALL_MEMORY_BYTES } else { plan.memory_bytes },
        is_traditional: false,
        volumes: vec![volume],
        filling: Filling::Nothing,
        fault: None,
        lost_disks: Vec::new(),
        growth: None,
        is_damaged: false,
        has_outages,
        ..plan
    }
}

/// What the server keeps of answers: in some lives little more than a client is in doubt about, so
/// that what is read late has been forgotten.
fn replies_of(choices: &mut Choices) -> ReplyLimits {
    if !choices.chance(FEW_REPLIES_PERCENT) {
        return ReplyLimits::default();
    }
    ReplyLimits {
        answers_max: FEW_REPLIES * (CLIENTS_MAX + Machines::COUNT),
        client_answers_max: FEW_REPLIES,
        ..ReplyLimits::default()
    }
}

/// The programs of a server that has just started.
fn programs(
    machine: &Machine<'_>,
    state_directory: &Arc<StateDirectory>,
    replies: ReplyLimits,
) -> Arc<Programs> {
    let policy = EveryClient { access: ACCESS, volumes: vec![VOLUME.to_owned()] };
    let clock: Arc<dyn Clock> = Arc::new(machine.world.clone());
    let service: Arc<dyn FileService> = machine.service.clone();
    let programs = Programs::new(service, Arc::new(policy), Arc::clone(&clock), replies);
    let programs = programs.with_silent_locks(&locking::locking(clock, state_directory));
    let Ok(programs) = programs else {
        unreachable!("the state directory takes everything and no thread is started")
    };
    Arc::new(programs)
}

/// What a client found.
const fn found(text: String) -> Finding {
    Finding::Client(text)
}

impl FrontLife<'_> {
    fn live(&mut self) -> Result<(), Finding> {
        self.machine.create_aggregate(false)?;
        let request = VolumeRequest {
            name: VOLUME.to_owned(),
            aggregate: AGGREGATE.to_owned(),
            size_blocks: VOLUME_BLOCKS,
            root: (0, 0, ROOT_MODE),
            exports: Vec::new(),
            tiering: dblade::Tiering::default(),
        };
        let made = promise(|done| self.machine.engine.create_volume(request, done));
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
        self.machines.set_file(root.handle.encode().to_vec());
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

    /// A client makes a call; whether it did.
    fn call(&mut self) -> bool {
        let index = self.net.index(self.clients.len());
        let Some(text) = self.clients[index].next_call() else { return false };
        self.machine.trace.note(text);
        self.machine.trace.operations += 1;
        self.send_new(index);
        true
    }

    /// Calls that are not of the clients' choice.
    fn send_planned(&mut self) -> bool {
        let mut is_busy = false;
        for index in 0..self.clients.len() {
            while self.clients[index].is_planning() {
                is_busy |= self.clients[index].next_call().is_some();
            }
            self.send_new(index);
        }
        is_busy
    }

    /// Sends what a client has not sent yet.
    fn send_new(&mut self, index: usize) {
        self.connect(index);
        for xid in self.clients[index].take_unsent() {
            self.send(index, xid);
        }
    }

    fn send(&mut self, index: usize, xid: u32) {
        let client = &self.clients[index];
        if let (Some(wire), Some(record)) = (client.wire, client.record(xid)) {
            self.network.send(wire, xid, record);
        }
    }

    /// A client that has no connection opens one, and sends all that is not answered again, in
    /// some order.
    fn connect(&mut self, index: usize) {
        if self.clients[index].wire.is_some() {
            return;
        }
        let address = self.clients[index].address();
        self.clients[index].wire = Some(self.network.open(index, address));
        let mut again = self.clients[index].pending();
        let _sent_with_them = self.clients[index].take_unsent();
        while !again.is_empty() {
            let xid = again.swap_remove(self.net.index(again.len()));
            self.machine.trace.meet("nfs: a call sent over a new connection");
            self.send(index, xid);
        }
    }

    /// A client sends a call again over the connection that has it.
    fn repeat(&mut self) {
        let index = self.net.index(self.clients.len());
        let pending = self.clients[index].pending();
        if pending.is_empty() || self.clients[index].wire.is_none() {
            return;
        }
        for _copy in 0..1 + self.net.below(3) {
            let xid = pending[self.net.index(pending.len())];
            self.machine.trace.meet("nfs: a call repeated over its connection");
            self.send(index, xid);
        }
    }

    /// A client's connection breaks.
    fn cut(&mut self) {
        let index = self.net.index(self.clients.len());
        let Some(wire) = self.clients[index].wire.take() else { return };
        let is_read_late = self.net.chance(60);
        self.machine.trace.note(format!("client {index}: cut, read late: {is_read_late}"));
        self.network.cut(wire, is_read_late);
        self.connect(index);
    }

    fn restart_client(&mut self) {
        let index = self.net.index(self.clients.len());
        if self.clients[index].is_idle() {
            if let Some(wire) = self.clients[index].wire {
                self.network.cut(wire, self.net.chance(60));
            }
            self.machine.trace.note(format!("client {index}: started anew"));
            self.machine.trace.meet("nfs: numbers of calls that begin again");
            self.clients[index].restart();
        }
    }

    fn request_point(&mut self) {
        if let Some(aggregate) = self.machine.aggregate() {
            aggregate.request_consistency_point(None);
        }
    }

    /// The network delivers a call or a reply, if there is one.
    fn deliver(&mut self) -> Result<bool, Finding> {
        let (mut calling, replying) = (self.network.calling(), self.network.replying());
        let is_live = |wire: &u64| !self.network.is_cut(*wire);
        let has_others = !replying.is_empty() || calling.iter().any(is_live);
        if has_others && self.replies != ReplyLimits::default() && self.net.chance(LATER_PERCENT) {
            calling.retain(is_live);
        }
        let count = calling.len() + replying.len();
        if count == 0 {
            return Ok(false);
        }
        let choice = self.net.index(count);
        let Some(wire) = calling.get(choice) else {
            return self.deliver_reply(replying[choice - calling.len()]).map(|()| true);
        };
        if self.network.is_cut(*wire) {
            self.machine.trace.meet("nfs: a call read late, over a connection that was given up");
        }
        self.network.deliver_call(*wire);
        self.network.take_replies().map_err(found)?;
        Ok(true)
    }

    fn deliver_reply(&mut self, wire: u64) -> Result<(), Finding> {
        let Some(arrival) = self.network.deliver_reply(wire) else { return Ok(()) };
        arrival.reply.iter().for_each(|byte| self.machine.trace.fold(u64::from(*byte)));
        let may_refuse = self.machine.plan.has_outages;
        if let Some(index) = arrival.client.checked_sub(CLIENTS_MAX) {
            let now = self.machine.world.monotonic_nanoseconds();
            let taken = self.machines.take_reply(index, &arrival.reply, now, may_refuse);
            return taken.map_err(found);
        }
        let client = &mut self.clients[arrival.client];
        match client.take_reply(&arrival.reply, may_refuse).map_err(found)? {
            Judged::Answered => {}
            Judged::Again => self.machine.trace.meet("nfs: a second answer to a call"),
            Judged::Refused => self.machine.trace.meet("nfs: a call refused in an outage"),
        }
        self.send_new(arrival.client);
        Ok(())
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
        self.machine.forget_requests_for_disks();
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

    /// One of the machines that lock does something.
    fn lock(&mut self) {
        let index = self.machines.pick();
        let now = self.machine.world.monotonic_nanoseconds();
        if let Some(text) = self.machines.call(index, now) {
            self.machine.trace.note(text);
        } else if self.machines.choices.chance(70) {
            return;
        } else if self.machines.choices.chance(50)
            && let Some(wire) = self.machines.wire(index).take()
        {
            let is_read_late = self.machines.choices.chance(60);
            self.network.cut(wire, is_read_late);
        }
        self.send_lock(index);
    }

    /// Sends the call that a machine has under way, once more if it was sent before.
    fn send_lock(&mut self, index: usize) {
        let wire = *self.machines.wire(index).get_or_insert_with(|| {
            self.network.open(CLIENTS_MAX + index, Machines::address(index))
        });
        if let Some((xid, record)) = self.machines.record(index) {
            self.network.send(wire, xid, record);
        }
    }
}

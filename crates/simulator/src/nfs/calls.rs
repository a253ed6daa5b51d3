//! Calls of clients and machines that lock, and what the network does with them: they are sent,
//! repeated, cut off, delivered late.

use super::client::Judged;
use super::life::{FrontLife, found};
use super::locking::Machines;
use super::server::CLIENTS_MAX;
use crate::seed::finding::Finding;
use nfs::ReplyLimits;
use platform::Clock;

/// Of 100 deliveries there, those that leave out what is read late, so that it is read very late.
const LATER_PERCENT: u64 = 97;

impl FrontLife<'_> {
    /// A client makes a call; whether it did.
    pub(super) fn call(&mut self) -> bool {
        let index = self.net.index(self.clients.len());
        let Some(text) = self.clients[index].next_call() else { return false };
        self.machine.trace.note(text);
        self.machine.trace.operations += 1;
        self.send_new(index);
        true
    }

    /// Calls that are not of the clients' choice.
    pub(super) fn send_planned(&mut self) -> bool {
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
    pub(super) fn send_new(&mut self, index: usize) {
        self.connect(index);
        for xid in self.clients[index].take_unsent() {
            self.send(index, xid);
        }
    }

    pub(super) fn send(&mut self, index: usize, xid: u32) {
        let client = &self.clients[index];
        if let (Some(wire), Some(record)) = (client.wire, client.record(xid)) {
            self.network.send(wire, xid, record);
        }
    }

    /// A client that has no connection opens one, and sends all that is not answered again, in
    /// some order.
    pub(super) fn connect(&mut self, index: usize) {
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
    pub(super) fn repeat(&mut self) {
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
    pub(super) fn cut(&mut self) {
        let index = self.net.index(self.clients.len());
        let Some(wire) = self.clients[index].wire.take() else { return };
        let is_read_late = self.net.chance(60);
        self.machine.trace.note(format!("client {index}: cut, read late: {is_read_late}"));
        self.network.cut(wire, is_read_late);
        self.connect(index);
    }

    pub(super) fn restart_client(&mut self) {
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

    /// The network delivers a call or a reply, if there is one.
    pub(super) fn deliver(&mut self) -> Result<bool, Finding> {
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

    pub(super) fn deliver_reply(&mut self, wire: u64) -> Result<(), Finding> {
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

    /// One of the machines that lock does something.
    pub(super) fn lock(&mut self) {
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
    pub(super) fn send_lock(&mut self, index: usize) {
        let wire = *self.machines.wire(index).get_or_insert_with(|| {
            self.network.open(CLIENTS_MAX + index, Machines::address(index))
        });
        if let Some((xid, record)) = self.machines.record(index) {
            self.network.send(wire, xid, record);
        }
    }
}

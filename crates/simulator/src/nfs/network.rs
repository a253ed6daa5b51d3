//! The network between clients and the server: connections that keep their order and nothing else.
//!
//! What a client sends lies in its connection until the network delivers it, and so do replies. A
//! connection that its client gives up is cut: replies are lost, and what was sent is lost, too, or
//! is read by the server still, later than anything else; that is what a server does which had no
//! time for a socket whose client has closed it.
//!
//! The server's side of a connection is [`onc_rpc::Dialogue`]: everything that a real one has but
//! the socket and its thread.
//!
//! Invariants: a connection has at most one reply for each copy of a call, and none for a call that
//! it did not bring.

use nfs::Programs;
use onc_rpc::{Dialogue, Reader};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The mark of a record of one fragment has this bit.
const LAST_FRAGMENT: u32 = 1 << 31;

/// One connection.
struct Wire {
    dialogue: Dialogue<Arc<Programs>>,
    client: usize,
    /// Calls on their way.
    to_server: VecDeque<(u32, Vec<u8>)>,
    /// Replies on their way, without their marks.
    to_client: VecDeque<Vec<u8>>,
    /// Copies that were delivered and have no reply, by number.
    unanswered: BTreeMap<u32, u32>,
    /// The client has given it up.
    is_cut: bool,
}

/// See the module.
pub(super) struct Network {
    programs: Arc<Programs>,
    /// By number: later ones were opened later.
    wires: BTreeMap<u64, Wire>,
    next: u64,
}

/// A reply that came to its client.
pub(super) struct Arrival {
    pub(super) client: usize,
    pub(super) reply: Vec<u8>,
}

impl Network {
    pub(super) const fn new(programs: Arc<Programs>) -> Self {
        Self { programs, wires: BTreeMap::new(), next: 0 }
    }

    /// A client connects.
    pub(super) fn open(&mut self, client: usize, address: IpAddr) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open_as(number, client, address)
    }

    /// Somebody connects who is none of the clients, and takes no number from them.
    pub(super) fn open_beside(&mut self, address: IpAddr) -> u64 {
        self.open_as(u64::MAX, usize::MAX, address)
    }

    fn open_as(&mut self, number: u64, client: usize, address: IpAddr) -> u64 {
        let port = 600 + (number % 400) as u16;
        let record_bytes_max = self.programs.record_bytes_max();
        let peer = SocketAddr::new(address, port);
        let dialogue = Dialogue::new(Arc::clone(&self.programs), peer, record_bytes_max);
        let wire = Wire {
            dialogue,
            client,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            unanswered: BTreeMap::new(),
            is_cut: false,
        };
        self.wires.insert(number, wire);
        number
    }

    /// A client sends a copy of a call.
    pub(super) fn send(&mut self, wire: u64, xid: u32, record: Vec<u8>) {
        if let Some(wire) = self.wires.get_mut(&wire) {
            wire.to_server.push_back((xid, record));
        }
    }

    /// A client gives a connection up; whether the server will read what was sent.
    pub(super) fn cut(&mut self, wire: u64, is_read_late: bool) {
        if let Some(wire) = self.wires.get_mut(&wire) {
            wire.is_cut = true;
            wire.to_client.clear();
            if !is_read_late {
                wire.to_server.clear();
            }
        }
        self.close_cut();
    }

    /// The server comes to the end of what was sent over connections that are cut.
    fn close_cut(&mut self) {
        self.wires.retain(|_, wire| !wire.is_cut || !wire.to_server.is_empty());
    }

    /// Connections with calls on their way; those that are cut too.
    pub(super) fn calling(&self) -> Vec<u64> {
        let calling = self.wires.iter().filter(|(_, wire)| !wire.to_server.is_empty());
        calling.map(|(number, _)| *number).collect()
    }

    /// Connections with replies on their way.
    pub(super) fn replying(&self) -> Vec<u64> {
        let replying = self.wires.iter().filter(|(_, wire)| !wire.to_client.is_empty());
        replying.map(|(number, _)| *number).collect()
    }

    /// Whether nothing is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.wires.values().all(|wire| wire.to_server.is_empty() && wire.to_client.is_empty())
    }

    /// All connections end with the server.
    pub(super) fn close(&mut self) {
        self.wires.clear();
    }

    /// Whether a connection was given up.
    pub(super) fn is_cut(&self, wire: u64) -> bool {
        self.wires.get(&wire).is_none_or(|wire| wire.is_cut)
    }

    /// The server reads the next call of a connection.
    pub(super) fn deliver_call(&mut self, number: u64) {
        if let Some(wire) = self.wires.get_mut(&number)
            && let Some((xid, record)) = wire.to_server.pop_front()
        {
            *wire.unanswered.entry(xid).or_default() += 1;
            let _end_of_what_is_there = wire.dialogue.hear(record.as_slice());
        }
    }

    /// The next reply of a connection comes to its client.
    pub(super) fn deliver_reply(&mut self, number: u64) -> Option<Arrival> {
        let wire = self.wires.get_mut(&number)?;
        let reply = wire.to_client.pop_front()?;
        Some(Arrival { client: wire.client, reply })
    }

    /// Takes what the server has answered.
    ///
    /// # Errors
    /// What is wrong with a reply, in words.
    pub(super) fn take_replies(&mut self) -> Result<(), String> {
        for (number, wire) in &mut self.wires {
            let bytes = wire.dialogue.take_replies();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let reply = next_record(&mut rest)
                    .ok_or_else(|| format!("connection {number}: a reply is no record"))?;
                let xid = Reader::new(&reply).u32().unwrap_or_default();
                match wire.unanswered.get_mut(&xid) {
                    Some(copies) if *copies > 0 => *copies -= 1,
                    _ => {
                        return Err(format!(
                            "connection {number}: a reply to {xid}, of which every copy has one"
                        ));
                    }
                }
                if !wire.is_cut {
                    wire.to_client.push_back(reply);
                }
            }
        }
        self.close_cut();
        Ok(())
    }
}

/// Takes the first record, of one fragment.
fn next_record(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let (mark, rest) = bytes.split_first_chunk::<4>()?;
    let mark = u32::from_be_bytes(*mark);
    let length = Some(mark).filter(|mark| mark & LAST_FRAGMENT != 0)? & !LAST_FRAGMENT;
    let (record, rest) = rest.split_at_checked(length as usize)?;
    *bytes = rest;
    Some(record.to_vec())
}

//! A connection as a hard mount has it: calls that are not answered when the server goes are sent
//! again to the next one, with the same numbers and in the same order, for ever.
//!
//! Invariants: every call that was started is answered exactly once here; an answer to a call that
//! was sent more than once says so, because the server may have done it before.
//!
//! Fails: [`Failure::Lost`] if the server answers what was not asked, drops a connection while
//! nobody kills it, or does not answer at all.

use super::control::Control;
use crate::Failure;
use crate::measure::now_ns;
use nfs_client::{NfsFailure, Pipeline, Request};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a server that runs may leave a call unanswered: far more than any consistency point.
const PATIENCE_NS: u64 = 120_000_000_000;
/// How often a lost connection is tried again.
const RECONNECT: Duration = Duration::from_millis(20);
/// How often somebody who waits looks whether there is still something to wait for.
const LOOK: Duration = Duration::from_secs(1);

struct Sent {
    request: Request,
    sent_ns: u64,
    is_repeated: bool,
}

/// An answered call.
pub struct Done {
    /// Its number.
    pub xid: u32,
    /// What was answered.
    pub results: Vec<u8>,
    /// How long it took.
    pub latency_ns: u64,
    /// Whether it was sent more than once.
    pub is_repeated: bool,
}

/// See the module.
pub struct HardMount {
    name: String,
    address: SocketAddr,
    control: Arc<Control>,
    pipeline: Option<Pipeline>,
    /// The server's life that the connection belongs to.
    life: u64,
    outstanding: BTreeMap<u32, Sent>,
    next_xid: u32,
    connections: u64,
}

impl HardMount {
    /// A mount that connects with its first call.
    #[must_use]
    pub fn new(name: &str, first_xid: u32, address: SocketAddr, control: Arc<Control>) -> Self {
        Self {
            name: name.to_owned(),
            address,
            control,
            pipeline: None,
            life: 0,
            outstanding: BTreeMap::new(),
            next_xid: first_xid,
            connections: 0,
        }
    }

    /// How often it connected; another number than before means that unstable data may be lost.
    #[must_use]
    pub const fn connections(&self) -> u64 {
        self.connections
    }

    /// Calls that are not answered.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Sends a call; its number.
    pub fn start(&mut self, request: Request) -> u32 {
        let xid = self.next_xid;
        self.next_xid = xid.wrapping_add(1);
        if let Some(pipeline) = &mut self.pipeline {
            // A failure is found again by whoever waits for the answer.
            let _ = pipeline.send(xid, &request);
        }
        let is_repeated = false;
        self.outstanding.insert(xid, Sent { request, sent_ns: now_ns(), is_repeated });
        xid
    }

    /// Waits for the next answer; there must be something outstanding.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn wait(&mut self) -> Result<Done, Failure> {
        assert!(!self.outstanding.is_empty(), "something to wait for");
        let began_ns = now_ns();
        loop {
            self.control.check()?;
            let Some(pipeline) = &mut self.pipeline else {
                self.connect();
                continue;
            };
            match pipeline.receive_within(LOOK) {
                Ok(Some((xid, results))) => {
                    let Some(sent) = self.outstanding.remove(&xid) else {
                        return Err(self.wrong(format!("call {xid} was answered but not asked")));
                    };
                    let latency_ns = now_ns() - sent.sent_ns;
                    return Ok(Done { xid, results, latency_ns, is_repeated: sent.is_repeated });
                }
                Ok(None) => self.watch(began_ns)?,
                Err(NfsFailure::Connection(error)) => {
                    if !self.control.is_over(self.life) {
                        let what = format!("a server that runs closed the connection ({error})");
                        return Err(self.wrong(what));
                    }
                    self.pipeline = None;
                }
                Err(failure) => return Err(self.wrong(failure.to_string())),
            }
        }
    }

    fn connect(&mut self) {
        self.life = self.control.life();
        let Ok(mut pipeline) = Pipeline::connect(self.address) else {
            return self.control.wait(RECONNECT);
        };
        let is_first = self.connections == 0;
        self.connections += 1;
        for (xid, sent) in &mut self.outstanding {
            sent.is_repeated = !is_first;
            let _ = pipeline.send(*xid, &sent.request); // as in `start`
        }
        self.pipeline = Some(pipeline);
    }

    fn watch(&self, began_ns: u64) -> Result<(), Failure> {
        let waited = now_ns() - began_ns;
        if self.control.steady_ns().is_some_and(|steady| steady.min(waited) > PATIENCE_NS) {
            let oldest = self.outstanding.first_key_value();
            let what = format!(
                "{} calls are not answered for {} s, among them {:?}",
                self.outstanding.len(),
                waited / 1_000_000_000,
                oldest.map(|(xid, sent)| (xid, sent.request.procedure()))
            );
            return Err(self.wrong(what));
        }
        Ok(())
    }

    fn wrong(&self, what: String) -> Failure {
        Failure::Lost { who: self.name.clone(), what }
    }
}

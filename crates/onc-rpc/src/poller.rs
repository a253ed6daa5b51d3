//! One thread per server that goes on writing where a client reads too slowly for its socket's
//! buffer: everyone else only ever writes without blocking. Once a second it lets the server look
//! after its connections.
//!
//! Invariants: a connection is armed only while its leftover waits, and for one event
//! (`EPOLLONESHOT`), so that at most one thread writes to a socket at any time.
//!
//! Fails: [`Poller::arm`] when the kernel has no memory; the connection is closed then.

use crate::connection::Connection;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::net::TcpStream;
use std::sync::Arc;

/// Events taken at once; more wait in the kernel.
const EVENTS_MAX: usize = 64;
/// Events after which the server looks after its connections though there was no quiet second.
const EVENTS_A_LOOK: usize = 1024;
/// How often the server looks after its connections: often enough for limits of many seconds.
const LOOK_SECONDS: i64 = 1;
/// Stands for the wake-up descriptor. Connections are numbered from zero and never get here.
const WAKE: u64 = u64::MAX;

pub(crate) struct Poller {
    epoll: OwnedFd,
    wake: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        Ok(Self { epoll, wake })
    }

    /// Asks for one event when `socket` can be written to.
    pub(crate) fn arm(&self, socket: &TcpStream, id: u64, first: bool) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(id);
        let flags = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
        if first {
            epoll::add(&self.epoll, socket, data, flags)
        } else {
            epoll::modify(&self.epoll, socket, data, flags)
        }
    }

    /// Ends [`Self::run`].
    pub(crate) fn stop(&self) {
        // Any count above zero wakes; it cannot overflow, being added to only when a server stops.
        let _ = rustix::io::write(&self.wake, &[1; 8]);
    }

    /// Serves until [`Self::stop`]; `find` gives the connection of a number, `look` is called when
    /// nothing has happened for a second, or much has.
    pub(crate) fn run(&self, find: impl Fn(u64) -> Option<Arc<Connection>>, look: impl Fn()) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let timeout = Timespec { tv_sec: LOOK_SECONDS, tv_nsec: 0 };
        let mut busy = 0;
        loop {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => unreachable!("waiting on an epoll instance of our own: {error}"),
            }
            busy += events.len();
            if events.is_empty() || busy > EVENTS_A_LOOK {
                look();
                busy = 0;
            }
            for event in &events {
                let id = event.data.u64();
                if id == WAKE {
                    return;
                }
                if let Some(connection) = find(id) {
                    connection.resume();
                }
            }
        }
    }
}

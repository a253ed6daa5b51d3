//! One thread per server that goes on writing where a client reads too slowly for its socket's
//! buffer: everyone else only ever writes without blocking. Once a second it lets the server look
//! after its connections.
//!
//! Invariants: a connection is armed only while its leftover waits, and for one event
//! (`EPOLLONESHOT`), so that at most one thread writes to a socket at any time.
//!
//! Fails: [`Poller::arm`] when the kernel has no memory; the connection is closed then.

use crate::connection::Connection;
use platform::Clock;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::net::TcpStream;
use std::sync::Arc;

/// Events taken at once; more wait in the kernel.
const EVENTS_MAX: usize = 64;
/// How often the server looks after its connections: often enough for limits of many seconds.
const LOOK_SECONDS: i64 = 1;
const LOOK_NANOSECONDS: u64 = LOOK_SECONDS as u64 * 1_000_000_000;
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

    /// Serves until [`Self::stop`]; `find` gives the connection of a number, `look` is called once
    /// a second, whether nothing happens or much: a client that keeps the poller busy puts no look
    /// off.
    pub(crate) fn run(
        &self,
        clock: &dyn Clock,
        find: impl Fn(u64) -> Option<Arc<Connection>>,
        look: impl Fn(),
    ) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let timeout = Timespec { tv_sec: LOOK_SECONDS, tv_nsec: 0 };
        let mut looked_nanoseconds = clock.monotonic_nanoseconds();
        loop {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => unreachable!("waiting on an epoll instance of our own: {error}"),
            }
            let now_nanoseconds = clock.monotonic_nanoseconds();
            let since = now_nanoseconds.saturating_sub(looked_nanoseconds);
            if events.is_empty() || since >= LOOK_NANOSECONDS {
                look();
                looked_nanoseconds = now_nanoseconds;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU64, Ordering};
    use units::Timestamp;

    /// Each reading is 0.4 s after the one before.
    #[derive(Default)]
    struct Running(AtomicU64);

    impl Clock for Running {
        fn wall(&self) -> Timestamp {
            Timestamp::from_parts(0, 0)
        }

        fn monotonic_nanoseconds(&self) -> u64 {
            self.0.fetch_add(400_000_000, Ordering::Relaxed)
        }
    }

    /// The server looked after a thousand events only, and meanwhile no deadline was kept.
    #[test]
    fn regression_a_client_that_keeps_the_poller_busy_puts_no_look_off() {
        let poller = Poller::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        poller.arm(&socket, 7, true).unwrap();
        let (events, looks) = (Cell::new(0), Cell::new(0));
        let find = |id| {
            events.set(events.get() + 1);
            poller.arm(&socket, id, false).unwrap();
            None
        };
        let look = || {
            looks.set(looks.get() + 1);
            if looks.get() == 3 {
                poller.stop();
            }
        };
        poller.run(&Running::default(), find, look);
        assert!(events.get() < 20, "{} events for three looks", events.get());
    }
}

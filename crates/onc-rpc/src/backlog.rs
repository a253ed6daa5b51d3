//! Since when the bytes of a connection may have lain in its socket.
//!
//! A server that has no room reads nothing for a while. When it goes on, its client may have given
//! the connection up, sent its calls again over another one, and gone on there: what is read then
//! is late. The bytes do not tell. But a reader that saw its socket empty knows that all it reads
//! later was sent later.
//!
//! Invariants: a call was sent after the [`Moment`] that is told for it, which is too early, and
//! never too late, but for the time that a thread takes to wake up.

/// A moment in the life of a service.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moment {
    /// On the service's clock.
    pub nanoseconds: u64,
    /// Connections that had been opened.
    pub connections: u64,
}

/// A read that takes as long as this found nothing and waited: what it brings has just come.
const WAITED_NANOSECONDS: u64 = 1_000_000;

/// What a read brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    /// How much.
    pub bytes: usize,
    /// Whether the socket had no more then.
    pub is_all: bool,
}

/// Of one connection.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// What was read last was sent after this.
    sent_after: Moment,
    /// What is read next was.
    next_sent_after: Moment,
    /// What comes behind so many bytes was sent after this.
    mark: Option<(Moment, usize)>,
}

impl Backlog {
    pub(crate) const fn new(opened: Moment) -> Self {
        Self { sent_after: opened, next_sent_after: opened, mark: None }
    }

    /// Since when the calls that were read last may have been there.
    pub(crate) const fn sent_after(&self) -> Moment {
        self.sent_after
    }

    /// A read that began at one moment ended at another; `unread` tells what the socket has now.
    pub(crate) fn read(
        &mut self,
        (began, ended): (Moment, Moment),
        filled: Filled,
        unread: impl FnOnce() -> usize,
    ) {
        let took = ended.nanoseconds.saturating_sub(began.nanoseconds);
        let has_waited = took >= WAITED_NANOSECONDS;
        self.sent_after = if has_waited { ended } else { self.next_sent_after };
        if has_waited || filled.is_all {
            self.next_sent_after = if has_waited { ended } else { began };
            self.mark = None;
            return;
        }
        self.mark = match self.mark {
            Some((moment, left)) if left > filled.bytes => Some((moment, left - filled.bytes)),
            passed => {
                if let Some((moment, _)) = passed {
                    self.next_sent_after = moment;
                }
                Some((began, unread()))
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanoseconds: u64) -> Moment {
        Moment { nanoseconds, connections: 0 }
    }

    const fn some(bytes: usize) -> Filled {
        Filled { bytes, is_all: false }
    }

    const fn all(bytes: usize) -> Filled {
        Filled { bytes, is_all: true }
    }

    #[test]
    fn a_socket_that_was_empty_has_nothing_older() {
        let mut backlog = Backlog::new(at(0));
        backlog.read((at(10), at(11)), all(5), || unreachable!());
        assert_eq!(backlog.sent_after(), at(0));
        // Dispatching takes long; what lies there then was sent after the read before.
        backlog.read((at(5_000_000_000), at(5_000_000_001)), all(5), || unreachable!());
        assert_eq!(backlog.sent_after(), at(10));
    }

    #[test]
    fn what_a_reader_waits_for_has_just_come() {
        let mut backlog = Backlog::new(at(0));
        backlog.read((at(10), at(60_000_000_000)), some(5), || unreachable!());
        assert_eq!(backlog.sent_after(), at(60_000_000_000));
        backlog.read((at(60_000_000_010), at(60_000_000_011)), all(5), || unreachable!());
        assert_eq!(backlog.sent_after(), at(60_000_000_000));
    }

    #[test]
    fn a_socket_that_is_never_empty_is_measured() {
        let mut backlog = Backlog::new(at(0));
        backlog.read((at(10), at(11)), some(100), || 250);
        // 250 bytes were there at 10; the three reads bring those and what came later.
        for began in [20, 30, 40] {
            backlog.read((at(began), at(began)), some(100), || 70);
            assert_eq!(backlog.sent_after(), at(0));
        }
        backlog.read((at(50), at(50)), some(100), || 0);
        assert_eq!(backlog.sent_after(), at(10));
        backlog.read((at(60), at(60)), all(1), || unreachable!());
        assert_eq!(backlog.sent_after(), at(40));
    }
}

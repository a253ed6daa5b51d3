//! A connection without a socket: a client's bytes go in, the replies' bytes come out. For tests,
//! fuzzing and the counting of instructions, where a real socket would cost time and hide who
//! answered when.
//!
//! Invariants: what runs is what a server runs for a connection, from the cutting of the stream
//! into records to the gathering of replies, but for the system calls. One thread: a service that
//! answers later, from elsewhere, is heard at the next [`Dialogue::take_replies`].
//!
//! Fails: as a connection does; [`Dialogue::hear`] says why the stream ended.

use crate::account::Account;
use crate::connection::{Connection, Outlet};
use crate::record::{RecordError, RecordReader};
use crate::server::{Service, read_calls};
use platform::sync::Mutex;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;

/// One client's connection to a service.
pub struct Dialogue<S: Service> {
    service: S,
    session: S::Session,
    connection: Arc<Connection>,
    record_bytes_max: usize,
}

impl<S: Service> Dialogue<S> {
    /// A client at `peer` connects.
    #[must_use]
    pub fn new(service: S, peer: SocketAddr, record_bytes_max: usize) -> Self {
        let session = service.open(peer);
        let outlet = Outlet::Memory(Mutex::default());
        let connection = Arc::new(Connection::new(0, outlet, Account::unlimited()));
        Self { service, session, connection, record_bytes_max }
    }

    /// The service.
    pub const fn service(&self) -> &S {
        &self.service
    }

    /// Dispatches the calls in a stream, up to its end or to what is no call.
    pub fn hear(&mut self, calls: impl Read) -> RecordError {
        let records = RecordReader::new(calls, self.record_bytes_max);
        read_calls(&self.service, &self.connection, &mut self.session, records)
    }

    /// The bytes of the replies since the last time.
    #[must_use]
    pub fn take_replies(&self) -> Vec<u8> {
        self.connection.take_written()
    }
}

/// The client has gone: replies that come later go nowhere.
impl<S: Service> Drop for Dialogue<S> {
    fn drop(&mut self) {
        self.connection.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{CallHeader, Credential};
    use crate::record::mark;
    use crate::server::{Call, Replier};
    use crate::xdr::Writer;

    /// Answers a word with the word.
    struct Echo;

    impl Service for Echo {
        type Session = ();

        fn open(&self, _: SocketAddr) {}

        fn dispatch(&self, (): &mut (), mut call: Call<'_>, replier: Replier) {
            let mut writer = replier.begin(4);
            writer.u32(call.arguments.u32().unwrap_or(0));
            replier.send(writer, None);
        }
    }

    fn call(xid: u32, word: u32) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u32(0);
        let credential = Credential::None;
        CallHeader { xid, program: 1, version: 1, procedure: 1, credential }.write(&mut writer);
        writer.u32(word);
        writer.overwrite_u32(0, mark(writer.len() - 4));
        writer.into_bytes()
    }

    #[test]
    fn streams_that_end_anywhere_leave_nothing_charged() {
        let mut dialogue = Dialogue::new(Echo, SocketAddr::from(([10, 0, 0, 1], 700)), 1 << 20);
        let calls = call(7, 70).repeat(200);
        // A record of a megabyte of which little comes, behind as many calls as fill a buffer.
        let cut_short = [calls.as_slice(), &mark(1 << 20).to_be_bytes(), &[0; 9000]].concat();
        let not_a_call = [calls.as_slice(), &mark(8).to_be_bytes(), &[0; 8]].concat();
        for stream in [&calls[..], &cut_short[..], &calls[..calls.len() - 1]] {
            dialogue.hear(stream);
            assert!(!dialogue.take_replies().is_empty());
            assert_eq!(dialogue.connection.charged_bytes(), 0);
        }
        assert!(matches!(dialogue.hear(not_a_call.as_slice()), RecordError::Closed));
        assert_eq!(dialogue.connection.charged_bytes(), 0);
    }

    #[test]
    fn calls_are_answered_in_order_and_nonsense_ends_the_stream() {
        let mut dialogue = Dialogue::new(Echo, SocketAddr::from(([10, 0, 0, 1], 700)), 1 << 10);
        let calls = [call(7, 70), call(8, 80)].concat();
        assert!(matches!(dialogue.hear(calls.as_slice()), RecordError::Closed));
        let replies = dialogue.take_replies();
        let word = |at: usize| u32::from_be_bytes(replies[at..at + 4].try_into().unwrap());
        assert_eq!(replies.len(), 2 * 32);
        assert_eq!((word(4), word(28), word(36), word(60)), (7, 70, 8, 80));
        assert!(dialogue.take_replies().is_empty());
        let long = mark(1 << 20).to_be_bytes();
        assert!(matches!(dialogue.hear(long.as_slice()), RecordError::TooLong { .. }));
        assert!(dialogue.take_replies().is_empty());
    }
}

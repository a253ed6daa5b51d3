//! Calls to clients that wait to be made, in an order that lets no client hold up the others.
//!
//! An address is called by one thread at a time. Grants of locks come before the rest: a lock that
//! is held and that nobody knows of stands in everybody's way. One thread takes only what was never
//! tried, of addresses that are not known to be silent; the other takes what is due again first. So
//! addresses that do not answer hold up one thread, and take turns there.
//!
//! Invariants:
//! - Grants, notices and questions are not dropped, but grants that nobody needs any more
//!   ([`CallQueue::drop_grants`]): there are no more of them than locks and machines, which have
//!   limits. Results of messages have limits of their own ([`RESULTS_MAX`],
//!   [`CLIENT_RESULTS_MAX`]), and there are none for a silent address; who does not get one asks
//!   again.
//! - Every job that was put in comes out once, or is dropped as above.
//! - An address that did not answer is known to be silent for [`SILENCE_NANOSECONDS`].
//!
//! Fails: [`Full`].

use super::host::Host;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Results of messages that wait, of all clients: some 5 MB.
pub(super) const RESULTS_MAX: usize = 4096;
/// The same of one address.
pub(super) const CLIENT_RESULTS_MAX: usize = 256;

/// How long it is remembered that an address did not answer.
const SILENCE_NANOSECONDS: u64 = 60_000_000_000;

/// A call to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// A lock that was waited for is held.
    Grant { number: u64, host: Host },
    /// The result of a call that came as a message.
    Result { host: Host, procedure: u32, results: Vec<u8> },
    /// This server was started anew.
    Notice { host: Host },
    /// Somebody says that the machine was started anew.
    Confirm { host: Host },
}

impl Job {
    pub(super) const fn host(&self) -> &Host {
        match self {
            Self::Grant { host, .. }
            | Self::Result { host, .. }
            | Self::Notice { host }
            | Self::Confirm { host } => host,
        }
    }

    const fn is_result(&self) -> bool {
        matches!(self, Self::Result { .. })
    }
}

/// Too many results wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Full;

/// Where a job stands among those of its address, and its address among the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    /// Whether it, or another of its address, was tried in vain.
    is_again: bool,
    due_nanoseconds: u64,
    is_no_grant: bool,
    number: u64,
}

impl Place {
    /// Before all that is done again, and behind all that is fresh.
    const FIRST_AGAIN: Self =
        Self { is_again: true, due_nanoseconds: 0, is_no_grant: false, number: 0 };
}

/// Before all addresses.
const LOWEST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

#[derive(Default)]
struct Address {
    jobs: BTreeMap<Place, (Job, u32)>,
    results: usize,
    is_called: bool,
    /// When it did not answer last.
    silent_nanoseconds: Option<u64>,
}

impl Address {
    /// Where its first job stands among those of other addresses.
    fn first(&self) -> Option<Place> {
        let (place, _) = self.jobs.first_key_value().filter(|_| !self.is_called)?;
        Some(Place { is_again: place.is_again || self.silent_nanoseconds.is_some(), ..*place })
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct CallQueue {
    addresses: BTreeMap<IpAddr, Address>,
    /// The first job of each address that has one and is not called now.
    order: BTreeSet<(Place, IpAddr)>,
    next: u64,
    results: usize,
}

impl CallQueue {
    /// A job that was tried so many times, to be done from `due_nanoseconds` on.
    pub(super) fn push(
        &mut self,
        job: Job,
        attempts: u32,
        due_nanoseconds: u64,
    ) -> Result<(), Full> {
        let (address, number) = (job.host().address, self.next);
        if job.is_result() {
            let known = self.addresses.get(&address);
            let of_client = known.map_or(0, |address| address.results);
            let is_silent = known.is_some_and(|address| address.silent_nanoseconds.is_some());
            if is_silent || self.results >= RESULTS_MAX || of_client >= CLIENT_RESULTS_MAX {
                return Err(Full);
            }
        }
        self.next += 1;
        let is_no_grant = !matches!(job, Job::Grant { .. });
        let place = Place { is_again: attempts > 0, due_nanoseconds, is_no_grant, number };
        self.results += usize::from(job.is_result());
        self.change(address, |address| {
            address.results += usize::from(job.is_result());
            address.jobs.insert(place, (job, attempts));
        });
        Ok(())
    }

    /// The next job that is due, whose address nobody calls until [`Self::end`]: one that was tried
    /// in vain, or of a silent address, before the others; with `fresh_only` none of these.
    pub(super) fn begin(&mut self, now_nanoseconds: u64, fresh_only: bool) -> Option<(Job, u32)> {
        let is_due = |(place, _): &&(Place, IpAddr)| place.due_nanoseconds <= now_nanoseconds;
        let again = self.order.range((Place::FIRST_AGAIN, LOWEST)..).next().filter(is_due);
        let fresh = self.order.range(..(Place::FIRST_AGAIN, LOWEST)).next().filter(is_due);
        let (_, address) = *again.filter(|_| !fresh_only).or(fresh)?;
        let taken = self.change(address, |address| {
            let (_, taken) = address.jobs.pop_first()?;
            address.is_called = true;
            address.results -= usize::from(taken.0.is_result());
            Some(taken)
        });
        self.results -= usize::from(taken.as_ref().is_some_and(|(job, _)| job.is_result()));
        taken
    }

    /// A job of [`Self::begin`] was tried, and the client answered or not, if it was called at all.
    /// If it does not answer, the results that wait for it are dropped.
    pub(super) fn end(&mut self, address: IpAddr, answers: Option<bool>, now_nanoseconds: u64) {
        let dropped = self.change(address, |address| {
            address.is_called = false;
            match answers {
                Some(false) => address.silent_nanoseconds = Some(now_nanoseconds),
                Some(true) => address.silent_nanoseconds = None,
                None => {}
            }
            if answers != Some(false) {
                return 0;
            }
            address.jobs.retain(|_, (job, _)| !job.is_result());
            std::mem::take(&mut address.results)
        });
        self.results -= dropped;
    }

    /// Forgets silences that are long ago.
    pub(super) fn forget_silences(&mut self, now_nanoseconds: u64) {
        let is_over = |address: &Address| {
            let silent = address.silent_nanoseconds;
            silent.is_some_and(|at| now_nanoseconds.saturating_sub(at) >= SILENCE_NANOSECONDS)
        };
        let over = self.addresses.iter().filter(|(_, address)| is_over(address));
        let over: Vec<IpAddr> = over.map(|(address, _)| *address).collect();
        for address in over {
            self.change(address, |address| address.silent_nanoseconds = None);
        }
    }

    /// Drops grants that wait and that their client need not be told. Their numbers ascend.
    pub(super) fn drop_grants(&mut self, address: IpAddr, numbers: &[u64]) {
        if !self.addresses.contains_key(&address) {
            return;
        }
        let is_told = |job: &Job| match job {
            Job::Grant { number, .. } => numbers.binary_search(number).is_ok(),
            _ => false,
        };
        self.change(address, |address| address.jobs.retain(|_, (job, _)| !is_told(job)));
    }

    /// Whether there is a job to ask this about this machine already.
    pub(super) fn confirms(&self, host: &Host) -> bool {
        let of_host =
            |(job, _): &(Job, u32)| matches!(job, Job::Confirm { .. }) && job.host() == host;
        let address = self.addresses.get(&host.address);
        address.is_some_and(|address| address.jobs.values().any(of_host))
    }

    /// Changes what is known of an address, and with it its place in the order.
    fn change<T>(&mut self, key: IpAddr, change: impl FnOnce(&mut Address) -> T) -> T {
        let address = self.addresses.entry(key).or_default();
        if let Some(place) = address.first() {
            self.order.remove(&(place, key));
        }
        let result = change(address);
        if let Some(place) = address.first() {
            self.order.insert((place, key));
        } else if !address.is_called && address.silent_nanoseconds.is_none() {
            self.addresses.remove(&key);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> Host {
        Host::new(IpAddr::from([10, 0, 0, number]), b"host").unwrap()
    }

    fn grant(number: u64, of: u8) -> Job {
        Job::Grant { number, host: host(of) }
    }

    fn result(of: u8) -> Job {
        Job::Result { host: host(of), procedure: 12, results: Vec::new() }
    }

    fn is_empty(queue: &CallQueue) -> bool {
        queue.order.is_empty() && queue.addresses.is_empty() && queue.results == 0
    }

    #[test]
    fn grants_come_first_and_an_address_is_called_once_at_a_time() {
        let mut queue = CallQueue::default();
        for job in [result(1), result(2), grant(1, 1), grant(2, 1), grant(3, 3)] {
            queue.push(job, 0, 0).unwrap();
        }
        assert_eq!(queue.begin(0, true), Some((grant(1, 1), 0)));
        assert_eq!(queue.begin(0, true), Some((grant(3, 3), 0)), "the first's is called already");
        assert_eq!(queue.begin(0, true), Some((result(2), 0)));
        assert_eq!(queue.begin(0, true), None);
        queue.end(host(1).address, Some(true), 0);
        queue.drop_grants(host(1).address, &[1, 2]);
        assert_eq!(queue.begin(0, true), Some((result(1), 0)), "nobody needs the grant any more");
        for number in 1..=3 {
            queue.end(host(number).address, Some(true), 0);
        }
        assert!(is_empty(&queue));
    }

    #[test]
    fn who_is_silent_holds_up_nobody_else() {
        let mut queue = CallQueue::default();
        for job in [grant(1, 1), grant(2, 1), result(1), result(2)] {
            queue.push(job, 0, 0).unwrap();
        }
        let (job, attempts) = queue.begin(5, false).unwrap();
        queue.push(job, attempts + 1, 10).unwrap();
        queue.end(host(1).address, Some(false), 5);
        assert_eq!(queue.begin(5, true), Some((result(2), 0)));
        queue.end(host(2).address, None, 5);
        assert_eq!(queue.push(result(1), 0, 5), Err(Full), "it is silent");
        queue.push(grant(3, 1), 0, 5).unwrap();
        queue.push(result(3), 0, 5).unwrap();
        assert_eq!(queue.begin(5, false), Some((grant(2, 1), 0)), "again before fresh");
        queue.end(host(1).address, Some(false), 6);
        assert_eq!(queue.begin(6, true), Some((result(3), 0)), "none of the silent one");
        queue.end(host(3).address, Some(true), 6);
        assert_eq!((queue.begin(6, true), queue.begin(6, false)), (None, Some((grant(3, 1), 0))));
        queue.end(host(1).address, None, 7);
        assert_eq!(queue.begin(9, false), None, "not due");
        assert_eq!(queue.begin(10, false), Some((grant(1, 1), 1)));
        queue.end(host(1).address, Some(false), 10);
        queue.forget_silences(10 + SILENCE_NANOSECONDS - 1);
        assert_eq!(queue.push(result(1), 0, 0), Err(Full));
        queue.forget_silences(10 + SILENCE_NANOSECONDS);
        assert!(is_empty(&queue));
    }

    #[test]
    fn results_have_limits_and_grants_have_not() {
        let mut queue = CallQueue::default();
        for _ in 0..CLIENT_RESULTS_MAX {
            queue.push(result(0), 0, 0).unwrap();
        }
        assert_eq!(queue.push(result(0), 0, 0), Err(Full));
        for of in 1..u8::try_from(RESULTS_MAX / CLIENT_RESULTS_MAX).unwrap() {
            for _ in 0..CLIENT_RESULTS_MAX {
                queue.push(result(of), 0, 0).unwrap();
            }
        }
        assert_eq!(queue.push(result(200), 0, 0), Err(Full), "of all");
        for number in 0..2 * RESULTS_MAX as u64 {
            queue.push(grant(number, 0), 0, 0).unwrap();
        }
        assert!(!queue.confirms(&host(9)));
        queue.push(Job::Confirm { host: host(9) }, 0, 0).unwrap();
        assert!(queue.confirms(&host(9)) && !queue.confirms(&host(8)));
        assert!(matches!(queue.begin(0, false), Some((Job::Grant { number: 0, .. }, 0))));
        queue.end(host(0).address, Some(false), 0);
        queue.push(result(200), 0, 0).unwrap();
    }
}

//! Who is next: which affinity's message runs, which request of which disk completes.
//!
//! Most lives choose evenly. Others are unfair on purpose, each in one way for its whole life or
//! with changes at random moments (as in probabilistic concurrency testing), because what needs
//! ten unlikely choices in a row never happens evenly: consistency points that starve behind
//! clients and clients behind them, one disk far behind the others, flushes that come last.
//!
//! Invariants: an unfair schedule only orders what is there, and now and then chooses evenly, so
//! nothing waits for ever behind work that makes more work.

use crate::plan::order::{MessageOrder, RequestOrder};
use crate::seed::choices::Choices;
use affinity::{AffinityId, AffinityKind};
use platform::simulated::{IoKind, PendingIo};

/// Of so many choices by priorities one shakes the hat.
const SHAKE_CHOICES: u64 = 60;

/// Of so many unfair choices one is even.
const FAIR_CHOICES: u64 = 64;

/// Makes the choices.
#[derive(Clone, Debug)]
pub struct Chooser {
    messages: MessageOrder,
    requests: RequestOrder,
    hat: u64,
}

impl Chooser {
    /// For a life with these orders.
    #[must_use]
    pub const fn new(messages: MessageOrder, requests: RequestOrder) -> Self {
        Self { messages, requests, hat: 0 }
    }

    /// The affinity that is next among those that can run, oldest first.
    pub fn message(&mut self, ready: &[AffinityId], choices: &mut Choices) -> usize {
        if choices.below(FAIR_CHOICES) == 0 {
            return choices.index(ready.len());
        }
        match self.messages {
            MessageOrder::Even => choices.index(ready.len()),
            MessageOrder::Oldest => 0,
            MessageOrder::Newest => ready.len() - 1,
            MessageOrder::Priorities => {
                if choices.below(SHAKE_CHOICES) == 0 {
                    self.hat = choices.next();
                }
                lowest(ready, |affinity| self.priority(*affinity))
            }
            MessageOrder::PointsLast => evenly_lowest(ready, choices, |id| is_point(id.kind())),
            MessageOrder::ClientsLast => evenly_lowest(ready, choices, |id| is_client(id.kind())),
        }
    }

    fn priority(&self, affinity: AffinityId) -> u64 {
        // Its name is the same in every run, its identity is not.
        let name = affinity.to_string();
        let number = name.bytes().fold(self.hat, |sum, byte| sum.rotate_left(7) ^ u64::from(byte));
        Choices::new(number).next()
    }

    /// The request that completes next among those that are pending, oldest first.
    pub fn request(
        &self,
        count: usize,
        pending: impl FnOnce() -> Vec<PendingIo>,
        choices: &mut Choices,
    ) -> usize {
        if choices.below(FAIR_CHOICES) == 0 {
            return choices.index(count);
        }
        match self.requests {
            RequestOrder::Even => choices.index(count),
            RequestOrder::Oldest => 0,
            RequestOrder::Newest => count - 1,
            RequestOrder::DiskLast(disk) => {
                let name = format!("disk{disk}");
                evenly_lowest(&pending(), choices, |io| *io.disk == *name)
            }
            RequestOrder::LogLast => evenly_lowest(&pending(), choices, |io| &*io.disk == "log"),
            RequestOrder::FlushesLast => {
                evenly_lowest(&pending(), choices, |io| io.kind == IoKind::Flush)
            }
            RequestOrder::WritesLast => {
                evenly_lowest(&pending(), choices, |io| io.kind == IoKind::Write)
            }
        }
    }
}

const fn is_point(kind: AffinityKind) -> bool {
    matches!(kind, AffinityKind::Aggregate | AffinityKind::AggregateVbn | AffinityKind::VolumeVbn)
}

const fn is_client(kind: AffinityKind) -> bool {
    matches!(kind, AffinityKind::VolumeLogical | AffinityKind::Stripe | AffinityKind::Volume)
}

fn lowest<T, K: Ord>(items: &[T], key: impl Fn(&T) -> K) -> usize {
    let lowest = items.iter().enumerate().min_by_key(|(_, item)| key(item));
    lowest.map_or(0, |(index, _)| index)
}

/// One of those that are not last, if there is any.
fn evenly_lowest<T>(items: &[T], choices: &mut Choices, is_last: impl Fn(&T) -> bool) -> usize {
    let first: Vec<usize> =
        items.iter().enumerate().filter(|(_, item)| !is_last(item)).map(|(at, _)| at).collect();
    if first.is_empty() { choices.index(items.len()) } else { choices.pick(&first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starves_comes_last_and_comes() {
        let mut choices = Choices::new(1);
        let is_last = |item: &u8| *item == 7;
        assert!((0..100).all(|_| evenly_lowest(&[7, 1, 7, 2], &mut choices, is_last) % 2 == 1));
        assert_eq!(evenly_lowest(&[7], &mut choices, is_last), 0);
        let chooser = Chooser::new(MessageOrder::Even, RequestOrder::Newest);
        let newest = (0..FAIR_CHOICES).filter(|_| chooser.request(3, Vec::new, &mut choices) == 2);
        assert!(newest.count() > FAIR_CHOICES as usize / 2);
    }
}

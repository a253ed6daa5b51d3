//! When operations arrive at a fixed rate that does not wait for answers: a Poisson process.
//!
//! Invariants: times never go back; the same rate and numbers give the same times.

use crate::numbers::Numbers;

/// Numbers are taken below this: all that a `f64` holds exactly.
const FINE: u64 = 1 << 53;

/// See the module.
pub(super) struct Arrivals {
    numbers: Numbers,
    mean_nanoseconds: f64,
    next: f64,
}

impl Arrivals {
    /// So many a second from `begin` on, which is in nanoseconds.
    pub fn new(per_second: f64, begin: u64, numbers: Numbers) -> Self {
        let mean_nanoseconds = 1e9 / per_second.max(1.0);
        let mut arrivals = Self { numbers, mean_nanoseconds, next: begin as f64 };
        arrivals.take();
        arrivals
    }

    /// When the next operation arrives.
    pub const fn next(&self) -> u64 {
        self.next as u64
    }

    /// Takes that, and goes on to the one after it.
    pub fn take(&mut self) -> u64 {
        let taken = self.next();
        let fraction = (self.numbers.next(FINE) + 1) as f64 / FINE as f64;
        self.next -= fraction.ln() * self.mean_nanoseconds;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flexvol::sfs::mix::numbers;

    fn gaps(per_second: f64, count: usize) -> Vec<u64> {
        let mut arrivals = Arrivals::new(per_second, 1_000, numbers(5));
        let times: Vec<u64> = (0..count).map(|_| arrivals.take()).collect();
        assert!(times.first().is_some_and(|first| *first >= 1_000), "none before the begin");
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn arrivals_keep_their_rate_and_are_spread_as_those_of_many_users() {
        let gaps = gaps(10_000.0, 100_001);
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<u64>() as f64 / count;
        assert!((mean / 100_000.0 - 1.0).abs() < 0.02, "{mean}");
        let square = |gap: &u64| (*gap as f64 - mean).powi(2);
        let deviation = (gaps.iter().map(square).sum::<f64>() / count).sqrt();
        assert!(
            (deviation / mean - 1.0).abs() < 0.05,
            "an exponential has both alike: {deviation}"
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_times() {
        assert_eq!(gaps(500.0, 100), gaps(500.0, 100));
    }
}

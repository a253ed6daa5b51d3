//! A figure: the median of several rounds, and their spread.

/// One line of a bench.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// What was done.
    pub load: &'static str,
    /// What is counted per second.
    pub unit: &'static str,
    /// The median over the rounds.
    pub median: f64,
    /// The lowest round.
    pub lowest: f64,
    /// The highest round.
    pub highest: f64,
    /// What bounds it, measured in the same run: its name and figure.
    pub bound: Option<(&'static str, f64)>,
}

impl Figure {
    /// The figure of `rounds`.
    ///
    /// # Panics
    /// If there was no round.
    #[must_use]
    pub fn of(load: &'static str, unit: &'static str, mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        let (Some(&lowest), Some(&highest)) = (rounds.first(), rounds.last()) else {
            panic!("a bench has rounds")
        };
        let median = rounds[rounds.len() / 2];
        Self { load, unit, median, lowest, highest, bound: None }
    }

    /// With what bounds it.
    #[must_use]
    pub fn bounded(mut self, name: &'static str, figure: f64) -> Self {
        self.bound = Some((name, figure));
        self
    }
}

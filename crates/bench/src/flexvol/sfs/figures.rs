//! The figures of all rounds, and what is said of them.
//!
//! Invariants: the sides are in the order flexible, traditional; a ratio is the median of the
//! ratios of each round.

use super::offered::Achieved;
use crate::summary::{Beside, Role, Row, Series, Unit};

/// Offered loads, in hundredths of the traditional volume's peak in the first round.
pub(super) const POINTS_PERCENT: [u64; 7] = [20, 40, 60, 80, 90, 100, 110];
/// What FlexVol section 5.1.2 has at the peak, and what is asked of this engine, in percent.
const PAPER_PERCENT: f64 = -4.4;
const ASKED_PERCENT: f64 = -3.0;

/// A load point on a side.
#[derive(Clone, Default)]
struct Point {
    offered: Series,
    achieved: Series,
    response: Series,
    slowest: Series,
}

/// See the module.
#[derive(Default)]
pub(super) struct Figures {
    peaks: [Series; 2],
    points: [[Point; 2]; POINTS_PERCENT.len()],
}

impl Figures {
    /// Notes a side's peak in a round.
    pub fn note_peak(&mut self, side: usize, achieved: &Achieved) {
        if let Some(series) = self.peaks.get_mut(side) {
            series.rounds.push(achieved.rate());
            series.latencies.add(&achieved.latencies);
        }
    }

    /// Notes a side at a load point in a round.
    pub fn note(&mut self, point: usize, side: usize, achieved: &Achieved) {
        let Some(point) = self.points.get_mut(point).and_then(|sides| sides.get_mut(side)) else {
            return;
        };
        point.offered.rounds.push(achieved.offered_rate());
        point.achieved.rounds.push(achieved.rate());
        point.response.rounds.extend(achieved.response());
        point.response.latencies.add(&achieved.latencies);
        let slowest = achieved.latencies.quantile(990);
        point.slowest.rounds.extend(slowest.map(|nanoseconds| nanoseconds as f64));
    }

    /// The lines, with what is said of the peaks.
    pub fn rows(self) -> (Vec<Row>, Vec<String>) {
        let peak = row("peak".to_owned(), Unit::Operations, self.peaks);
        let notes = peak.beside.first().and_then(|beside| peak.share(&beside.series));
        let notes = notes.map(verdict).into_iter().collect();
        let mut rows = vec![peak];
        for (percent, [flexible, traditional]) in POINTS_PERCENT.into_iter().zip(self.points) {
            let name = |what: &str| format!("{percent} %, {what}");
            let mut offered =
                row(name("offered"), Unit::Operations, [flexible.offered, Series::default()]);
            offered.beside.clear();
            rows.push(offered);
            let each = [
                ("achieved", Unit::Operations, [flexible.achieved, traditional.achieved]),
                ("response", Unit::Duration, [flexible.response, traditional.response]),
                ("p99", Unit::Duration, [flexible.slowest, traditional.slowest]),
            ];
            rows.extend(each.map(|(what, unit, sides)| row(name(what), unit, sides)));
        }
        (rows, notes)
    }
}

fn row(load: String, unit: Unit, [ours, series]: [Series; 2]) -> Row {
    let (name, role) = ("traditional".to_owned(), Role::Orientation);
    Row { load: format!("9: {load}"), unit, ours, beside: vec![Beside { name, role, series }] }
}

/// What a ratio of peaks says.
fn verdict(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    let is_met = if percent >= ASKED_PERCENT { "met" } else { "not met" };
    format!(
        "9: peak of flexible over traditional: {percent:+.1} %, the median of the rounds' ratios; \
         FlexVol {PAPER_PERCENT:+.1} %; asked for {ASKED_PERCENT:+.1} % or better: {is_met}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latencies;

    fn achieved(answered: u64) -> Achieved {
        let mut latencies = Latencies::default();
        (0..answered).for_each(|_| latencies.record(2_000));
        let (nanoseconds, offered, response_nanoseconds) = (1_000_000_000, 100, answered * 2_000);
        Achieved { nanoseconds, offered, answered, response_nanoseconds, latencies }
    }

    #[test]
    fn the_ratio_of_the_peaks_is_the_median_of_the_rounds() {
        let mut figures = Figures::default();
        for (flexible, traditional) in [(98, 100), (49, 50), (80, 100)] {
            figures.note_peak(0, &achieved(flexible));
            figures.note_peak(1, &achieved(traditional));
        }
        let (rows, notes) = figures.rows();
        assert_eq!((rows[0].load.as_str(), rows[0].ours.median()), ("9: peak", Some(80.0)));
        assert!(notes[0].contains("-2.0 %") && notes[0].ends_with("better: met"), "{notes:?}");
        assert!(verdict(0.969).ends_with("not met"));
        assert!(verdict(1.01).contains("+1.0 %"));
    }

    #[test]
    fn a_point_has_what_was_offered_achieved_and_how_long_it_took() {
        let mut figures = Figures::default();
        figures.note(1, 0, &achieved(90));
        figures.note(1, 1, &achieved(99));
        // Nothing was answered in this round.
        figures.note(1, 1, &achieved(0));
        let (rows, notes) = figures.rows();
        assert!(notes.is_empty(), "there is no peak");
        let found = |name: &str| rows.iter().find(|row| row.load == name).unwrap();
        assert_eq!(found("9: 40 %, offered").ours.rounds, [100.0]);
        let row = found("9: 40 %, achieved");
        assert_eq!(
            (&row.ours.rounds[..], &row.beside[0].series.rounds[..]),
            (&[90.0][..], &[99.0, 0.0][..])
        );
        assert_eq!(found("9: 40 %, response").beside[0].series.rounds, [2_000.0]);
        let slowest = found("9: 40 %, p99").ours.rounds[0];
        assert!((2_000.0..2_100.0).contains(&slowest), "{slowest}");
        assert_eq!(rows.len(), 1 + POINTS_PERCENT.len() * 4);
    }
}

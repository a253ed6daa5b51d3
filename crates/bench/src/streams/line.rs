//! Lines: a load on one aggregate in all rounds, and what stands beside it.
//!
//! Invariants: what the device moved is summed over the same rounds as the calls of the load.

use super::Load;
use crate::machine::Machine;
use crate::measured::Sample;
use crate::node::BenchError;
use crate::process::NodeBench;
use crate::summary::{Beside, DeviceBytes, Report, Role, Row, Series, Span};
use std::ops::Range;

/// See the module.
pub(crate) struct Line {
    pub name: String,
    pub load: Load,
    pub ours: Series,
    pub bare: Series,
    /// By their names.
    pub peers: Vec<(String, Series)>,
    pub span: Span,
}

/// What came of a load, and when it ran.
pub(crate) struct Outcome {
    pub sample: Sample,
    pub time: Range<u64>,
    pub device: Option<DeviceBytes>,
}

impl Outcome {
    /// Adds it to a series.
    pub fn note(&self, series: &mut Series) {
        series.note(&self.sample);
        if let Some(moved) = self.device {
            let sum = series.device.get_or_insert_default();
            (sum.read, sum.written) = (sum.read + moved.read, sum.written + moved.written);
        }
    }
}

impl Line {
    /// A line for each of `loads` on the aggregate `on` that the bench was asked for.
    pub fn all(bench: &NodeBench, loads: &[Load], on: &str) -> Vec<Self> {
        let line = |load: &Load| {
            let name = format!("{} on {on}", load.name()?);
            let (ours, bare, peers, span) = Default::default();
            let span = Span { load: name.clone(), ..span };
            bench.wants(&name).then_some(Self { name, load: *load, ours, bare, peers, span })
        };
        loads.iter().filter_map(line).collect()
    }

    /// That nothing was asked for: the names of all.
    pub fn none<'a>(all: impl IntoIterator<Item = (&'a [Load], String)>) -> BenchError {
        let each = |(loads, on): (&'a [Load], String)| {
            let names = loads.iter().filter_map(|load| load.name());
            names.map(move |name| format!("{name} on {on}"))
        };
        let known = all.into_iter().flat_map(each).collect::<Vec<_>>();
        BenchError::NoLoad { known: known.join(", ") }
    }

    /// The series of the peer with this name.
    pub fn peer(&mut self, name: &str) -> &mut Series {
        let at = self.peers.iter().position(|(known, _)| known == name);
        let at = at.unwrap_or_else(|| {
            self.peers.push((name.to_owned(), Series::default()));
            self.peers.len() - 1
        });
        &mut self.peers[at].1
    }

    /// What the device moved for each byte of the load.
    fn device_share(&self, series: &Series) -> Option<f64> {
        let moved = series.device?;
        let moved = if self.load.is_write() { moved.written } else { moved.read };
        let asked = series.latencies.total() * self.load.call_bytes();
        (asked > 0).then(|| moved as f64 / asked as f64)
    }

    fn device_note(&self) -> Option<String> {
        // Of the stream's bytes nobody knows here, and what our log took is written again by the
        // next consistency point, which comes later.
        if matches!(self.load, Load::Durable | Load::DurableBeside) {
            return None;
        }
        let ours = ("stroop", &self.ours);
        let peers = self.peers.iter().map(|(name, series)| (name.as_str(), series));
        let share = |(name, series): (&str, &Series)| {
            Some(format!("{name} {:.2}", self.device_share(series)?))
        };
        let shares: Vec<_> = [ours].into_iter().chain(peers).filter_map(share).collect();
        let verb = if self.load.is_write() { "wrote" } else { "read" };
        let name = &self.name;
        (!shares.is_empty())
            .then(|| format!("{name}: for each byte the device {verb}: {}", shares.join(", ")))
    }
}

/// What all lines say, with what else is to be said.
pub(crate) fn report(machine: Machine, lines: Vec<Line>, mut notes: Vec<String>) -> Report {
    notes.extend(lines.iter().filter_map(Line::device_note));
    notes.extend(lines.iter().map(|line| line.span.to_string()));
    let (mut rows, mut spans) = (Vec::new(), Vec::new());
    for Line { name, load, ours, bare, peers, span } in lines {
        let limit = Beside { name: "bare disk".to_owned(), role: Role::Limit, series: bare };
        let peer = |(name, series)| Beside { name, role: Role::Peer, series };
        let measured = |beside: &Beside| !beside.series.rounds.is_empty();
        let beside = [limit].into_iter().chain(peers.into_iter().map(peer));
        let beside = beside.filter(measured).collect();
        rows.push(Row { load: name, unit: load.unit(), ours, beside });
        spans.push(span);
    }
    Report { machine, rows, notes, spans }
}

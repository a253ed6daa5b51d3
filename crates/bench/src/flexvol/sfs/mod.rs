//! Figure 9: a mix of NFSv3 operations over TCP at a rising load (FlexVol section 5.1.2).
//!
//! | module | does |
//! | --- | --- |
//! | `mix` | the shares of operations and of file sizes |
//! | `files` | the data set |
//! | `calls` | operations as calls, and the checks of their answers |
//! | `arrivals` | when operations arrive |
//! | `offered` | offers them, and measures the answers |
//! | `figures` | the figures of all rounds |
//!
//! Each kind of volume has a node in a process of its own, with disks of its own, and the same
//! files. A round measures the peak of both, [`offered::LANES`] operations under way, and then
//! both at each load point. Points are shares of the traditional volume's peak in the first round,
//! so that both kinds get the same load in all rounds. A point takes [`ROUNDS_OF_A_POINT`] rounds
//! of a load, so that consistency points fall into it at high loads: the journal is small, and a
//! half of it fills within seconds at the peak. At low loads a point of a second or two may have
//! none.
//!
//! As in SPEC SFS: the mix, a rate that is kept whether or not answers come, a warm-up before each
//! measured time. Otherwise: a data set of a fixed size, one client process, seconds and not
//! minutes, and the peak is that of operations that wait for a lane, not the best load point.
//!
//! Invariants: while one side is measured, the other has nothing to do but what it was asked
//! before; whose turn is first changes with each step. Fails: [`BenchError`], with the operation.

mod arrivals;
mod calls;
mod figures;
mod files;
mod mix;
mod offered;

use crate::flexvol::FlexvolBench;
use crate::nfs::driver::Stopped;
use crate::nfs::session::{Kind, Session, Target};
use crate::node::BenchError;
use crate::process::{NodeBench, NodeProcess, NodeShape, VOLUME};
use crate::summary::Row;
use figures::{Figures, POINTS_PERCENT};
use files::DataSet;
use mix::Operation;
use offered::{Achieved, CONNECTIONS, Failed, Offer, Pace, offer};
use units::ByteSize;

/// How much longer than a round of the other figures a point is measured. It is loaded for one
/// such round before.
const ROUNDS_OF_A_POINT: u64 = 4;
/// The journal of a node: at some megabytes of WRITEs a second a half lasts for seconds.
const JOURNAL_BYTES: u64 = 64 << 20;

/// The place of the traditional volume among the sides; the flexible one is first.
const TRADITIONAL: usize = 1;

/// A kind of volume, with a node of its own.
struct Side {
    name: &'static str,
    session: Session,
    set: DataSet,
    _node: NodeProcess,
}

/// Measures the figure; its lines, and what a reader must know.
pub(in crate::flexvol) fn run(
    bench: &FlexvolBench,
    progress: &mut dyn FnMut(&str),
) -> Result<(Vec<Row>, Vec<String>), BenchError> {
    let mut sides = Vec::new();
    for at in 0..2 {
        let traditional = at == TRADITIONAL;
        let name = if traditional { "traditional" } else { "flexible" };
        progress(&format!("9: a node with files on a {name} volume"));
        sides.push(Side::start(bench, traditional, name)?);
    }
    progress("9: warming up");
    for side in &mut sides {
        side.offer(offer_of(bench, Pace::Closed, 0))?;
    }
    let (mut figures, mut base) = (Figures::default(), None);
    for round in 0..bench.rounds {
        let of = format!("round {} of {}", round + 1, bench.rounds);
        progress(&format!("9: peak: {of}"));
        let closed = offer_of(bench, Pace::Closed, seed(round, 0));
        in_turns(&mut sides, round, closed, |at, found| {
            figures.note_peak(at, found);
            if at == TRADITIONAL {
                base.get_or_insert(found.rate());
            }
        })?;
        for (point, percent) in POINTS_PERCENT.into_iter().enumerate() {
            let rate = base.unwrap_or_default() * percent as f64 / 100.0;
            progress(&format!("9: {percent} %, {rate:.0} operations a second: {of}"));
            let paced = offer_of(bench, Pace::Rate(rate), seed(round, point + 1));
            let turn = round + point + 1;
            in_turns(&mut sides, turn, paced, |at, found| figures.note(point, at, found))?;
        }
    }
    let (rows, verdict) = figures.rows();
    Ok((rows, notes(bench).into_iter().chain(verdict).collect()))
}

/// What a step offers to both sides.
const fn offer_of(bench: &FlexvolBench, pace: Pace, seed: u64) -> Offer {
    let warm_nanoseconds = bench.round_nanoseconds;
    let measured_nanoseconds = warm_nanoseconds.saturating_mul(ROUNDS_OF_A_POINT);
    Offer { pace, warm_nanoseconds, measured_nanoseconds, seed }
}

/// Has both sides take an offer, one after the other.
fn in_turns(
    sides: &mut [Side],
    step: usize,
    offer: Offer,
    mut note: impl FnMut(usize, &Achieved),
) -> Result<(), BenchError> {
    for at in turns(step) {
        if let Some(side) = sides.get_mut(at) {
            note(at, &side.offer(offer)?);
        }
    }
    Ok(())
}

/// Whose turn it is, one after the other.
const fn turns(step: usize) -> [usize; 2] {
    if step.is_multiple_of(2) { [0, 1] } else { [1, 0] }
}

/// A seed of its own for each step; both sides have the same.
const fn seed(round: usize, step: usize) -> u64 {
    2 * (1 + round as u64 * (POINTS_PERCENT.len() as u64 + 1) + step as u64)
}

/// The size of the data set: the largest file of the other figures.
fn data_bytes(bench: &FlexvolBench) -> u64 {
    let percent = bench.sizes_percent.iter().max().copied().unwrap_or(100);
    bench.memory.0.saturating_mul(percent) / 100
}

fn notes(bench: &FlexvolBench) -> Vec<String> {
    vec![
        format!(
            "9: NFSv3 over TCP, a node for each kind; {} MiB of files, three tenths of them in \
             use, {} MiB of memory; WRITEs are durable",
            data_bytes(bench) >> 20,
            bench.memory.0 >> 20
        ),
        format!(
            "9: the peak has {} operations under way; points are shares of the traditional peak \
             of the first round; response times are averages, from the scheduled arrival",
            offered::LANES
        ),
    ]
}

impl Side {
    fn start(
        bench: &FlexvolBench,
        traditional: bool,
        name: &'static str,
    ) -> Result<Self, BenchError> {
        let node = NodeBench {
            program: bench.program.clone(),
            directory: bench.directory.join(name),
            only: Vec::new(),
            round_nanoseconds: bench.round_nanoseconds,
            rounds: bench.rounds,
            file: ByteSize(data_bytes(bench)),
            memory: bench.memory,
            journal: ByteSize(JOURNAL_BYTES),
        };
        let node = NodeProcess::start(&node, NodeShape { traditional, ..NodeShape::default() })?;
        if !traditional {
            // A traditional volume takes none by a schedule.
            node.command(&["volume", "set", VOLUME, "--snapshot-policy", "none"])?;
        }
        let (nfs, mount, path) = (node.address, node.address, format!("/{VOLUME}"));
        let target = Target { name: name.to_owned(), kind: Kind::Real, nfs, mount, path };
        let mut session = Session::open_empty(target, 0)?;
        let failed = |stopped: Stopped| stopped.error("9: making files", name);
        session.connect(CONNECTIONS).map_err(failed)?;
        let set = DataSet::make(&mut session, data_bytes(bench)).map_err(failed)?;
        Ok(Self { name, session, set, _node: node })
    }

    fn offer(&mut self, offered: Offer) -> Result<Achieved, BenchError> {
        offer(&mut self.session.connections, &mut self.set, offered).map_err(|failed| {
            let Failed { operation, stopped } = failed;
            let load = operation.map_or("the mix", Operation::name);
            stopped.error(&format!("9: {load}"), self.name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns_and_no_step_repeats_the_numbers_of_another() {
        assert_eq!((turns(0), turns(1)), ([0, 1], [1, 0]));
        let steps = 0..=POINTS_PERCENT.len();
        let seeds = (0..9).flat_map(|round| steps.clone().map(move |step| seed(round, step)));
        let mut seeds: Vec<u64> = seeds.collect();
        let count = seeds.len();
        seeds.dedup();
        assert_eq!(seeds.len(), count);
        assert!(seeds.is_sorted() && seeds.iter().all(|seed| seed.is_multiple_of(2)));
    }
}

//! NFS over a loopback connection, beside a server that does nothing.
//!
//! | module | does |
//! | --- | --- |
//! | `wire` | calls and replies as bytes |
//! | `connection` | one TCP connection with many calls in flight |
//! | `driver` | keeps lanes busy and counts |
//! | `session` | one server and what was prepared on it |
//! | `loads` | what is measured |
//! | `limit` | the server that does nothing |
//! | `listing` | `ls -l` of a large directory, over NFS and on a mount |
//! | `start` | how long a node takes until it serves again |
//! | `streams` | files larger than memory, in order, and where the time goes |
//! | `strip` | the chart of latencies and consistency points |
//! | `ganesha` | the peer of [`compare_nfs`] and [`compare_streams`] |
//!
//! Invariants: every server is a process of its own and is reached over TCP, the one that does
//! nothing too; rounds of a load go round the servers in turns, so that all of them see the same
//! machine. Fails: [`BenchError`], naming load and server.

pub(crate) mod connection;
pub(crate) mod driver;
mod ganesha;
mod limit;
mod listing;
mod loads;
pub(crate) mod session;
mod start;
mod start_volumes;
mod streams;
mod strip;
pub(crate) mod wire;

pub use limit::serve_nothing;
pub use listing::listing;
pub use start::{StartBench, start};
pub use streams::{compare_streams, streams};
pub use strip::strip_chart;

use crate::machine::Machine;
use crate::node::BenchError;
use crate::peer_disks::FileSystem;
use crate::process::{NodeBench, NodeProcess, NodeShape, Process, VOLUME, start_limit};
use crate::summary::{Beside, Report, Role, Row, Series};
use loads::{CASES, Case};
use session::{Kind, Session, Target};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct NfsBench {
    /// Loads, and the node of our own.
    pub node: NodeBench,
    /// A server that is there, and what to mount of it, instead of a node of our own.
    pub server: Option<(SocketAddr, String)>,
    /// A compiled server that does nothing, instead of ours.
    pub limit: Option<PathBuf>,
}

/// Runs the bench; `progress` is told what goes on.
///
/// # Errors
/// [`BenchError`].
pub fn nfs(bench: &NfsBench, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    with_peer(bench, None, Vec::new(), progress)
}

/// Why the peer of [`compare_nfs`] cannot run on this machine, if it cannot.
#[must_use]
pub fn peer_missing() -> Option<String> {
    ganesha::missing()
}

/// The same with nfs-ganesha on XFS in turns with ours. With `apart` the caller is in network and
/// mount namespaces of its own; otherwise the peer is left out, and the report says why.
///
/// # Errors
/// [`BenchError`].
pub fn compare_nfs(
    bench: &NfsBench,
    apart: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    if let Some(note) = left_out(apart) {
        return with_peer(bench, None, vec![note], progress);
    }
    progress("starting nfs-ganesha");
    let bytes = bench.node.disk_bytes() * 2;
    let ganesha = ganesha::start(&bench.node.directory, bytes, &[FileSystem::Xfs])?;
    let note = "peer: nfs-ganesha, FSAL VFS, on XFS on a loop device of a file beside our disks";
    let peer = ganesha.peers.first().map(|peer| &peer.target);
    with_peer(bench, peer, vec![note.to_owned()], progress)
}

/// Why the peer is left out, if it is: with `apart` this is in namespaces of its own.
fn left_out(apart: bool) -> Option<String> {
    peer_missing().or_else(|| {
        let sentence = "nfs-ganesha is left out: this is not in namespaces of its own";
        (!apart).then(|| sentence.to_owned())
    })
}

fn with_peer(
    bench: &NfsBench,
    peer: Option<&Target>,
    notes: Vec<String>,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    let machine = Machine::here();
    let cases = selected(&bench.node)?;
    progress("starting servers");
    let (_node, ours) = our_server(bench)?;
    let (_limit, limit) = limit_server(bench)?;
    let mut sides = Vec::new();
    for target in [ours, limit].into_iter().chain(peer.cloned()) {
        progress(&format!("preparing {}", target.name));
        sides.push(Session::open(target, bench.node.file.0)?);
    }
    let rows = measure(bench, &cases, &mut sides, progress)?;
    Ok(Report { machine, rows, notes, spans: Vec::new() })
}

/// The cases with a line that was asked for.
fn selected(bench: &NodeBench) -> Result<Vec<Case>, BenchError> {
    let is_wanted = |case: &&Case| case.lines().iter().any(|(name, _)| bench.wants(name));
    let cases: Vec<Case> = CASES.iter().filter(is_wanted).copied().collect();
    if cases.is_empty() {
        let known = CASES.iter().flat_map(|case| case.lines()).map(|(name, _)| name);
        return Err(BenchError::NoLoad { known: known.collect::<Vec<_>>().join(", ") });
    }
    Ok(cases)
}

fn our_server(bench: &NfsBench) -> Result<(Option<NodeProcess>, Target), BenchError> {
    let name = "stroop".to_owned();
    if let Some((address, path)) = &bench.server {
        let (nfs, mount, path) = (*address, *address, path.clone());
        return Ok((None, Target { name, kind: Kind::Real, nfs, mount, path }));
    }
    let node = NodeProcess::start(&bench.node, NodeShape::default())?;
    let (nfs, mount, path) = (node.address, node.address, format!("/{VOLUME}"));
    Ok((Some(node), Target { name, kind: Kind::Real, nfs, mount, path }))
}

fn limit_server(bench: &NfsBench) -> Result<(Process, Target), BenchError> {
    let (process, nfs) = start_limit(&bench.node.program, bench.limit.as_deref())?;
    let kind = if bench.limit.is_some() { Kind::ForeignLimit } else { Kind::Limit };
    let name = bench.limit.as_deref().and_then(|path| path.file_name());
    let name = name.map_or_else(|| "limit".into(), |name| name.to_string_lossy());
    let (name, path) = (name.into_owned(), "/".to_owned());
    Ok((process, Target { name, kind, nfs, mount: nfs, path }))
}

/// Runs the cases on all sides in turns; the first side is ours.
fn measure(
    bench: &NfsBench,
    cases: &[Case],
    sides: &mut [Session],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for case in cases {
        let lines = case.lines();
        let names = lines.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let mut series = vec![vec![Series::default(); lines.len()]; sides.len()];
        for round in 1..=bench.node.rounds {
            progress(&format!("{names}: round {round} of {}", bench.node.rounds));
            for (side, series) in sides.iter_mut().zip(&mut series) {
                let samples = case.run(side, bench.node.round_nanoseconds);
                let samples =
                    samples.map_err(|stopped| stopped.error(&names, &side.target.name))?;
                series.iter_mut().zip(samples).for_each(|(series, sample)| series.note(&sample));
            }
        }
        let mut series: Vec<_> = series.into_iter().map(Vec::into_iter).collect();
        for (load, unit) in lines {
            let mut each = series.iter_mut().filter_map(Iterator::next);
            let ours = each.next().unwrap_or_default();
            let others = sides.iter().skip(1).zip(each);
            let beside = others.map(|(side, series)| beside(&side.target, series)).collect();
            rows.push(Row { load, unit, ours, beside });
        }
    }
    Ok(rows)
}

fn beside(target: &Target, series: Series) -> Beside {
    let role = if target.kind == Kind::Real { Role::Peer } else { Role::Limit };
    Beside { name: target.name.clone(), role, series }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::thread::spawn;
    use std::net::{Ipv4Addr, TcpListener};

    const FILE_BYTES: u64 = 4 << 20;
    const ROUND_NANOSECONDS: u64 = 1_000_000;

    fn target(kind: Kind) -> Target {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let nfs = listener.local_addr().unwrap();
        // It ends with the test's process.
        let _serving = spawn("limit", move || serve_nothing(&listener)).unwrap();
        Target { name: "limit".to_owned(), kind, nfs, mount: nfs, path: "/".to_owned() }
    }

    #[test]
    fn every_load_gets_through_to_a_server_and_is_counted() {
        for kind in [Kind::Limit, Kind::ForeignLimit] {
            let mut session = Session::open(target(kind), FILE_BYTES).unwrap();
            for case in CASES {
                let samples = case.run(&mut session, ROUND_NANOSECONDS).unwrap();
                let whole = kind == Kind::Limit;
                assert!(samples.len() == case.lines().len() || !whole, "{case:?}");
                assert!(samples.iter().all(|sample| sample.rate > 0.0), "{case:?}");
                assert!(samples.iter().all(|sample| sample.latencies.total() > 0), "{case:?}");
            }
        }
    }

    #[test]
    fn a_status_other_than_ok_ends_a_load() {
        let mut session = Session::open(target(Kind::Limit), FILE_BYTES).unwrap();
        // The server that does nothing knows no LINK.
        let root = session.directory;
        let outcome = session.one(
            |call| call.calls.call(call.xid, (wire::NFS, 15), |calls| calls.handle(&root)),
            |reply| reply.u32(),
        );
        assert_eq!(outcome, Err(driver::Stopped::Status(10_004)));
    }

    #[test]
    fn loads_are_chosen_by_a_part_of_their_name() {
        assert_eq!(
            selected(&NodeBench::of("remove d1")).unwrap(),
            [Case::CreateRemove(1), Case::CreateRemove(128)]
        );
        assert!(matches!(selected(&NodeBench::of("no such")), Err(BenchError::NoLoad { .. })));
    }
}

//! Volumes of ours beside subvolumes of btrfs and files of XFS: snapshots, clones, and what blocks
//! that are shared cost those who overwrite and read them.
//!
//! Each round makes a node with a mount, and the file systems, anew, one after another. Peers are
//! on loop devices of files beside our disk, which use these past the page cache, as our node does.
//! All are on one disk, and all disks have the same size. btrfs is as mkfs makes it, with its
//! metadata twice.
//!
//! Memory: the page cache of the machine is whole for all sides, and the file fits in it. Our node
//! has its own memory besides. Before the file is read after its ageing our node starts again, and
//! all page cache is dropped.
//!
//! Invariants: one side is there at a time, and nothing of it stays. A side that cannot do a load
//! has no figure for it. The node takes no snapshots by its schedule. Fails: [`BenchError`]; a file
//! system that cannot be made is left out with a note.

mod keeper;
mod loads;

use crate::leftovers::Mountpoint;
use crate::machine::Machine;
use crate::mounted::MountedNode;
use crate::node::BenchError;
use crate::peer_disks::{FileSystem, Images, Place, note_left_out, wants_root};
use crate::process::{NodeBench, NodeShape, VOLUME, pause};
use crate::streams::empty_page_cache;
use crate::summary::{Beside, Report, Role, Row, Series, Unit};
use keeper::{DATA, Keeper};
use loads::{Load, fill, snapshots_amid};
use units::ByteSize;

/// The peers, in the order of their figures.
const PEERS: [FileSystem; 2] = [FileSystem::Btrfs, FileSystem::Xfs];
/// An aggregate of one disk, as the peers have one.
const SHAPE: NodeShape = NodeShape { disks: 1, raid: "none", activity: false, traditional: false };
/// Room of a disk in files: the file, its snapshots before the overwrites, and what a file system
/// wants free to be at its ease; and a snapshot that falls behind the overwrites.
const ROOM_FILES: u64 = 4;
/// How often a mount of a node that has started again is looked for.
const MOUNT_PAUSES: usize = 600;

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct VolumesBench {
    /// The node of our own. A round of overwrites takes as long as a round of its loads.
    pub node: NodeBench,
    /// The time from one snapshot to the next while blocks are overwritten.
    pub snapshot_nanoseconds: u64,
    /// Whether the kernel keeps data that is written to our mount.
    pub write_back: bool,
}

impl VolumesBench {
    /// The size of each disk: each snapshot amid overwrites may hold all blocks of the file.
    fn disk_bytes(&self) -> u64 {
        let files = ROOM_FILES.saturating_add(snapshots_amid(self));
        self.node.file.0.saturating_mul(files).max(self.node.disk_bytes())
    }

    /// What makes a node with disks of that size.
    fn roomy(&self) -> NodeBench {
        // Disks have twice the file.
        NodeBench { file: ByteSize(self.disk_bytes().div_ceil(2)), ..self.node.clone() }
    }
}

/// What keeps a side there.
enum Held {
    Node(MountedNode),
    Peer { _mountpoint: Mountpoint },
}

/// A volume, and what keeps it there.
struct Side {
    keeper: Keeper,
    held: Held,
}

impl Side {
    fn ours(bench: &VolumesBench) -> Result<Self, BenchError> {
        let mut mounted = MountedNode::start(&bench.roomy(), SHAPE)?;
        mounted.node.command(&["volume", "set", VOLUME, "--snapshot-policy", "none"])?;
        let options: &[&str] = if bench.write_back { &["--write-back"] } else { &[] };
        let files = mounted.mount(&bench.node.directory, "mnt", options)?;
        let (socket, write_back) = (mounted.node.socket(), bench.write_back);
        let keeper = Keeper::Ours { socket, files, write_back };
        Ok(Self { keeper, held: Held::Node(mounted) })
    }

    fn peer(bench: &VolumesBench, file_system: FileSystem) -> Result<Self, BenchError> {
        let (images, how) = (bench.node.directory.as_path(), Images::Direct);
        let bytes = bench.disk_bytes();
        let mountpoint = file_system.mount(&Place { images, how, bytes, mountpoints: images })?;
        let keeper = Keeper::of(file_system, mountpoint.path())
            .map_err(|why| BenchError::FileSystem { name: file_system.name(), why })?;
        Ok(Self { keeper, held: Held::Peer { _mountpoint: mountpoint } })
    }

    /// Has nothing of the volume in memory.
    fn cool(&mut self) -> Result<(), BenchError> {
        if let Held::Node(mounted) = &mut self.held {
            mounted.node.stop();
            mounted.node.start_again()?;
            let data = self.keeper.files().join(DATA);
            let is_back = (0..MOUNT_PAUSES).any(|_| {
                let is_there = data.exists();
                if !is_there {
                    pause();
                }
                is_there
            });
            if !is_back {
                let why = "its mount is not there after a restart".to_owned();
                return Err(BenchError::Server { what: "the node", why });
            }
        }
        empty_page_cache()
    }

    fn failed(&self, load: &str, why: String) -> BenchError {
        let (load, target) = (load.to_owned(), self.keeper.name().to_owned());
        BenchError::Load { load, target, why }
    }

    /// Does the loads up to the last that was asked for.
    fn run(
        &mut self,
        bench: &VolumesBench,
        figures: &mut Figures,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), BenchError> {
        let name = self.keeper.name();
        progress(&format!("filling, {name}"));
        fill(bench, &self.keeper).map_err(|why| self.failed("filling", why))?;
        if let Some((program, nanoseconds)) = self.keeper.program_start() {
            figures.aside(program, nanoseconds);
        }
        for load in figures.needed() {
            let line = load.lines().first().map_or("", |line| line.0);
            progress(&format!("{line}, {name}"));
            if load.is_cold() {
                self.cool()?;
            }
            let samples = load.run(bench, &self.keeper);
            let samples = samples.map_err(|why| self.failed(line, why))?;
            for ((line, _), sample) in load.lines().iter().zip(&samples) {
                if let Some(series) = figures.series(line, name) {
                    series.note(sample);
                }
            }
            if load == Load::SnapshotDelete {
                let delayed = self.keeper.delayed_bytes();
                let delayed = delayed.map_err(|why| self.failed(line, why))?;
                delayed.into_iter().for_each(|bytes| figures.aside(DELAYED, bytes));
            }
        }
        Ok(())
    }
}

/// What else is measured: our frees that are not yet done; all others are programs' starts.
const DELAYED: &str = "delayed";

/// The figures of all rounds.
struct Figures {
    /// The lines that were asked for.
    rows: Vec<(Load, Row)>,
    /// What notes say, by what it is of.
    asides: Vec<(&'static str, Series)>,
}

impl Figures {
    fn new(bench: &NodeBench) -> Result<Self, BenchError> {
        let all = || {
            Load::ALL.into_iter().flat_map(|load| load.lines().iter().map(move |line| (load, line)))
        };
        let row = |(load, (name, unit)): (Load, &(&str, _))| {
            let peer = |file_system: FileSystem| Beside {
                name: file_system.name().to_owned(),
                role: Role::Peer,
                series: Series::default(),
            };
            let beside = PEERS.map(peer).to_vec();
            (load, Row { load: (*name).to_owned(), unit: *unit, ours: Series::default(), beside })
        };
        let rows: Vec<_> = all().filter(|(_, line)| bench.wants(line.0)).map(row).collect();
        if rows.is_empty() {
            let known = all().map(|(_, line)| line.0).collect::<Vec<_>>().join(", ");
            return Err(BenchError::NoLoad { known });
        }
        Ok(Self { rows, asides: Vec::new() })
    }

    /// The loads, up to the last that was asked for.
    fn needed(&self) -> impl Iterator<Item = Load> + use<> {
        let last = self.rows.last().map(|(load, _)| *load);
        let count = Load::ALL.iter().position(|load| Some(*load) == last).map_or(0, |at| at + 1);
        Load::ALL.into_iter().take(count)
    }

    /// The series of a side in a line, if that was asked for.
    fn series(&mut self, line: &str, side: &str) -> Option<&mut Series> {
        let (_, row) = self.rows.iter_mut().find(|(_, row)| row.load == line)?;
        match row.beside.iter_mut().find(|beside| beside.name == side) {
            Some(beside) => Some(&mut beside.series),
            None => Some(&mut row.ours),
        }
    }

    /// Without the peers that have no figure.
    fn rows(self) -> Vec<Row> {
        let measured = |mut row: Row| {
            row.beside.retain(|beside| !beside.series.rounds.is_empty());
            row
        };
        self.rows.into_iter().map(|(_, row)| measured(row)).collect()
    }

    fn aside(&mut self, of: &'static str, value: u64) {
        match self.asides.iter_mut().find(|(known, _)| *known == of) {
            Some((_, series)) => series.rounds.push(value as f64),
            None => self.asides.push((of, Series::of(vec![value as f64]))),
        }
    }

    /// Medians of what else was measured.
    fn notes(&self) -> impl Iterator<Item = String> {
        self.asides.iter().map(|(of, series)| {
            let median = series.median().unwrap_or_default();
            if *of == DELAYED {
                let size = median / Unit::Size.scale();
                return format!(
                    "ours: after the deletions {size:.1} MiB of what they and overwrites freed are \
                     delayed frees, which are done when there are enough or room gets short"
                );
            }
            let milliseconds = median / Unit::Duration.scale();
            format!("a start of {of} takes {milliseconds:.1} ms, which is in its times; a deletion has two or more")
        })
    }
}

/// Runs the bench; `progress` is told what goes on.
///
/// # Errors
/// [`BenchError`].
pub fn compare_volumes(
    bench: &VolumesBench,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    let machine = Machine::here();
    let mut figures = Figures::new(&bench.node)?;
    wants_root()?;
    let mut notes = notes(bench);
    let rounds = bench.node.rounds;
    for round in 1..=rounds {
        let mut progress = |what: &str| progress(&format!("{what}: round {round} of {rounds}"));
        progress("a node of ours and its mount");
        Side::ours(bench)?.run(bench, &mut figures, &mut progress)?;
        for file_system in PEERS {
            let name = file_system.name();
            progress(&format!("making {name}"));
            let mut side = match Side::peer(bench, file_system) {
                Ok(side) => side,
                Err(error) => {
                    note_left_out(&mut notes, name, &error);
                    continue;
                }
            };
            side.run(bench, &mut figures, &mut progress)?;
        }
    }
    notes.extend(figures.notes());
    Ok(Report { machine, rows: figures.rows(), notes, spans: Vec::new() })
}

/// What is to be said before anything was measured.
fn notes(bench: &VolumesBench) -> Vec<String> {
    let mount = if bench.write_back { "with --write-back" } else { "without --write-back" };
    vec![
        "a time below 100 % of another's is the shorter one; a rate above 100 % the higher one"
            .to_owned(),
        format!(
            "ours: a mount {mount}; snapshots and clones over the admin socket, from the \
             connection to the answer"
        ),
        "btrfs: subvolume snapshot and syncfs; subvolume delete --commit-after until no deleted \
         subvolume is left, and syncfs"
            .to_owned(),
        "XFS has no snapshots: its clone is cp --reflink=always of the large file and fsync, also \
         where others take a snapshot amid overwrites"
            .to_owned(),
        "all on one disk; peers on loop devices of files beside ours, with direct I/O where the \
         file system of the directory has it, made anew for each round"
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(part: &str) -> VolumesBench {
        let node = NodeBench { file: ByteSize(1 << 30), ..NodeBench::of(part) };
        VolumesBench { node, snapshot_nanoseconds: 10, write_back: false }
    }

    #[test]
    fn a_load_that_is_called_otherwise_is_refused_before_anything_is_made() {
        let refused = compare_volumes(&bench("no such"), &mut |_| {}).unwrap_err().to_string();
        assert!(refused.contains("snapshot create, snapshot delete, clone create"), "{refused}");
        assert!(refused.contains("snapshot create amid overwrites, read cold aged"), "{refused}");
    }

    #[test]
    fn loads_run_up_to_the_last_that_was_asked_for() {
        let needed = |part| Figures::new(&bench(part).node).unwrap().needed().count();
        assert_eq!([needed("snapshot delete"), needed("amid"), needed("create")], [2, 4, 4]);
        assert_eq!(needed("read"), Load::ALL.len());
    }

    #[test]
    fn disks_have_room_for_what_each_snapshot_may_hold() {
        let mut bench = bench("read");
        assert_eq!(bench.disk_bytes(), 4 << 30, "the least");
        bench.node.round_nanoseconds = 59;
        assert_eq!(bench.disk_bytes(), 9 << 30, "five snapshots");
        assert_eq!(bench.roomy().disk_bytes(), 9 << 30, "a node has the same");
    }

    #[test]
    fn a_peer_without_a_figure_is_not_in_the_rows() {
        let mut figures = Figures::new(&bench("snapshot create").node).unwrap();
        assert!(figures.series("read cold aged", "btrfs").is_none(), "not asked for");
        figures.series("snapshot create", "btrfs").unwrap().rounds.push(2.0);
        figures.series("snapshot create", "stroop").unwrap().rounds.push(1.0);
        figures.aside("cp", 1_500_000);
        figures.aside(DELAYED, 1 << 20);
        let notes: Vec<String> = figures.notes().collect();
        assert!(notes[0].starts_with("a start of cp takes 1.5 ms"), "{notes:?}");
        assert!(notes[1].contains("1.0 MiB"), "{notes:?}");
        let rows = figures.rows();
        assert_eq!(rows[0].ours.rounds, [1.0]);
        assert_eq!(rows[0].beside.len(), 1);
        assert_eq!(rows[0].share(&rows[0].beside[0].series), Some(0.5));
    }
}

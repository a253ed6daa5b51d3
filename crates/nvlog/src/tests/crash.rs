//! Random work, power cuts between any two steps, torn writes: what comes back is what may.

use super::*;
use crate::LogFull;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Debug)]
enum Step {
    Append {
        bytes: usize,
        waits: bool,
    },
    Note,
    /// Waits for a record that was appended some time ago.
    Wait(usize),
    Push,
    /// Some of the world's completions.
    Run(u8),
    Freeze,
    Commit,
    /// Power cut, reopening, and perhaps a point right away that holds all that was replayed.
    Cut {
        commits: bool,
    },
    /// A new process finds the disk as it is, with writes completed but not flushed.
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..9000_usize, any::<bool>())
            .prop_map(|(bytes, waits)| Step::Append { bytes, waits }),
        8 => (0..60_usize, any::<bool>())
            .prop_map(|(bytes, waits)| Step::Append { bytes, waits }),
        2 => Just(Step::Note),
        4 => (0..40_usize).prop_map(Step::Wait),
        2 => Just(Step::Push),
        8 => (1..6_u8).prop_map(Step::Run),
        3 => Just(Step::Freeze),
        3 => Just(Step::Commit),
        2 => any::<bool>().prop_map(|commits| Step::Cut { commits }),
        1 => Just(Step::Reopen),
    ]
}

struct Entry {
    record: Record,
    durable: Arc<AtomicBool>,
}

struct Model {
    world: SimulatedWorld,
    log: Log,
    entries: Vec<Entry>,
    /// The last durable consistency point, and the one under way.
    committed: CpNumber,
    frozen: Option<CpNumber>,
    number: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let world = SimulatedWorld::new(seed);
        format(&world, size_blocks(20));
        let (log, records) = open(&world, 0);
        assert_eq!(records, []);
        let committed = CpNumber(0);
        Self { world, log, entries: Vec::new(), committed, frozen: None, number: 0 }
    }

    fn append(&mut self, cp: CpNumber, kind: u16, bytes: usize, waits: bool) {
        self.number += 1;
        let mut body = self.number.to_le_bytes().to_vec();
        body.resize(8 + bytes, self.number as u8);
        let (head, tail) = body.split_at(4);
        let free_bytes = self.log.free_bytes();
        match self.log.append(cp, kind, &[head, tail]) {
            Ok(position) => {
                let record = Record { cp, kind, position, body };
                self.entries.push(Entry { record, durable: Arc::default() });
                if waits {
                    self.wait(self.entries.len() - 1);
                }
            }
            Err(error) => {
                assert!(matches!(error, LogFull::Half { .. }), "{error}");
                assert!(free_bytes < body.len() as u64);
            }
        }
    }

    fn wait(&self, index: usize) {
        let Some(entry) = self.entries.get(index) else { return };
        let durable = Arc::clone(&entry.durable);
        let done = move |result| {
            assert_eq!(result, Ok(()));
            durable.store(true, Ordering::Relaxed);
        };
        self.log.when_durable(entry.record.position, Box::new(done));
    }

    fn freeze(&mut self) {
        let cp = self.log.active_cp();
        let switched = self.log.switch_half(cp.next());
        assert_eq!(switched.is_ok(), self.frozen.is_none());
        self.frozen = self.frozen.or(Some(cp));
    }

    fn commit(&mut self, cp: CpNumber) {
        self.committed = cp;
        self.log.retire(cp);
        assert!(self.log.can_switch() && self.log.active_cp() > cp);
        self.frozen = None;
    }

    /// Opens the log and compares.
    fn reopen(&mut self) {
        let (log, found) = open(&self.world, self.committed.get());
        assert_eq!(log.missing(), None, "an honest disk loses nothing");
        self.log = log;
        self.entries.retain(|entry| entry.record.cp > self.committed);
        let promised = self
            .entries
            .iter()
            .rposition(|entry| entry.durable.load(Ordering::Relaxed))
            .map_or(0, |last| last + 1);
        assert!(found.len() >= promised, "{} found, {promised} promised", found.len());
        assert!(found.len() <= self.entries.len());
        self.entries.truncate(found.len());
        for (entry, found) in self.entries.iter().zip(&found) {
            assert_eq!(entry.record, *found);
            // An opening makes durable what it finds.
            entry.durable.store(true, Ordering::Relaxed);
        }
        // The older half, if there is one, is the point that was under way.
        let can_switch = self.log.can_switch();
        let older = CpNumber(self.log.active_cp().get() - 1);
        self.frozen = (!can_switch).then_some(older);
        assert!(self.frozen.is_none_or(|frozen| frozen > self.committed));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Append { bytes, waits } => self.append(self.log.active_cp(), 7, bytes, waits),
            Step::Note => {
                let cp = self.frozen.unwrap_or(self.log.active_cp());
                self.append(cp, 9, 200, true);
            }
            // Counted from the latest.
            Step::Wait(age) => self.wait(self.entries.len().wrapping_sub(age + 1)),
            Step::Push => self.log.push(),
            Step::Run(count) => {
                for _ in 0..count {
                    self.world.step();
                }
            }
            Step::Freeze => self.freeze(),
            Step::Commit => {
                if let Some(cp) = self.frozen {
                    self.commit(cp);
                }
            }
            Step::Cut { commits } => {
                self.world.power_cut();
                self.reopen();
                if commits {
                    self.commit(self.log.active_cp());
                }
            }
            Step::Reopen => {
                // The old process's request, if any, ends before the new one starts.
                self.world.run_until_idle();
                self.reopen();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn what_was_promised_survives_and_nothing_else_appears(
        seed in any::<u64>(),
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut model = Model::new(seed);
        steps.iter().for_each(|step| model.step(step));
        model.step(&Step::Cut { commits: true });
        model.step(&Step::Append { bytes: 1, waits: true });
        model.world.run_until_idle();
        model.step(&Step::Cut { commits: false });
        prop_assert_eq!(model.entries.len(), 1);
    }
}

//! Whether a volume that grows by itself keeps to its largest size, and keeps its size.
//!
//! Invariants: a size is known to be committed two consistency points after it was seen. The one
//! that was under way then may have begun before the volume grew.

use crate::machine::Machine;
use crate::seed::finding::Finding;
use std::sync::atomic::Ordering;

const POINTS: u64 = 2;

/// How large a volume is, as commits have it. It never becomes smaller.
#[derive(Default)]
pub struct CommittedSize {
    least_blocks: u64,
    /// The size in blocks that was seen later, and after how many consistency points.
    seen: (u64, u64),
}

impl CommittedSize {
    /// Notes how large the volume is.
    ///
    /// # Errors
    /// [`Finding::Space`] if it is larger than it may grow.
    pub fn look(&mut self, machine: &mut Machine<'_>, name: &str) -> Result<(), Finding> {
        let Some(served) = machine.engine.volume_named(name) else { return Ok(()) };
        let (size_blocks, maximum) = (served.size_blocks(), served.autogrow_max().0);
        if (1..size_blocks).contains(&maximum) {
            let text = format!("volume {name} has {size_blocks} blocks and grows to {maximum}");
            return Err(Finding::Space(text));
        }
        let points = served.aggregate.statistics.consistency_points.load(Ordering::Relaxed);
        if points >= self.seen.1 + POINTS {
            self.least_blocks = self.seen.0;
            if (1..size_blocks).contains(&self.seen.0) {
                machine.trace.meet("a volume has grown by itself");
            }
            self.seen = (size_blocks, points);
        }
        Ok(())
    }

    /// After a start: looks whether the volume is as large as it was.
    ///
    /// # Errors
    /// [`Finding::Space`] if it is smaller.
    pub fn recover(&mut self, machine: &Machine<'_>, name: &str) -> Result<(), Finding> {
        let Some(served) = machine.engine.volume_named(name) else { return Ok(()) };
        let (size_blocks, least) = (served.size_blocks(), self.least_blocks);
        if size_blocks < least {
            let text = format!("volume {name} had {least} blocks and has {size_blocks}");
            return Err(Finding::Space(text));
        }
        let points = served.aggregate.statistics.consistency_points.load(Ordering::Relaxed);
        *self = Self { least_blocks: size_blocks, seen: (size_blocks, points) };
        Ok(())
    }
}

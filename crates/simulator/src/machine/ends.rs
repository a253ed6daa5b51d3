//! Ends of the node: the power goes, or the process dies; and what was counted up to then.

use super::Machine;
use super::cut::{choose_fate, phase_name};
use super::logs::is_log;
use crate::seed::choices::Choices;
use aggregate::Phase;
use platform::simulated::{Fate, SimulatedWorld};
use std::sync::atomic::Ordering;

impl Machine<'_> {
    /// The power goes, and takes of what is not flushed what the seed chose.
    pub fn cut_power(&mut self, choices: &mut Choices) {
        let phase = self.phase();
        let fate = choose_fate(choices, phase, |choices| self.disk_to_seal(choices));
        self.power_cut(fate);
        self.note_sealed(fate);
    }

    /// The power goes.
    pub fn power_cut(&mut self, fate: Fate) {
        self.end(&format!("power cut, {fate:?}"), |world| world.power_cut_with(fate));
    }

    /// The process dies: what was written is there at the next start, flushed or not.
    pub fn kill(&mut self) {
        self.trace.meet("kill: the process dies and the machine goes on");
        self.end("process killed", SimulatedWorld::kill);
    }

    fn end(&mut self, how: &str, end: impl FnOnce(&SimulatedWorld)) {
        self.cut = None;
        self.remember_members(self.is_outage());
        let pending = self.world.pending();
        let phase = self.phase();
        if let Some(phase) = phase {
            self.trace.meet(phase_name(phase));
        }
        if pending.iter().any(|io| is_log(&io.disk)) {
            self.trace.meet("cut: with a log write under way");
        }
        self.count_stores();
        self.trace.power_cuts += 1;
        let damages = self.plan.fault.is_some_and(|(_, fault)| fault.damages());
        self.may_have_lost |= damages && phase != Some(Phase::Idle);
        // A block and its identity that are both lost leave the pair that was there before, which
        // proves itself.
        self.may_have_lost |= self.world.counters().lost_writes > 1;
        let count = pending.len();
        self.trace.note(format!("{how} in {phase:?} with {count} requests"));
        self.world.set_submit_hook(None);
        self.engine.halt();
        end(&self.world);
    }

    /// What the engine's store has counted since its start.
    fn count_stores(&mut self) {
        let Some(aggregate) = self.aggregate() else { return };
        let counters = aggregate.parts.store.status().counters;
        let moved = aggregate.statistics.moved_blocks.load(Ordering::Relaxed);
        let returned = aggregate.statistics.returned_blocks.load(Ordering::Relaxed);
        let shares = aggregate.statistics.cleaned_shares.load(Ordering::Relaxed);
        self.trace.meet_times("consistency point: files cleaned in shares", shares);
        let reallocated = aggregate.statistics.reallocated_blocks.load(Ordering::Relaxed);
        self.trace.meet_times("reallocation: blocks written elsewhere", reallocated);
        let frees = aggregate.statistics.frees.sum();
        self.trace.meet_times("frees: delayed", frees.delayed);
        self.trace.meet_times("frees: pages cleared", frees.pages);
        let emptied = aggregate.statistics.emptied_areas.load(Ordering::Relaxed);
        let out = aggregate.statistics.emptying_moved_blocks.load(Ordering::Relaxed);
        let own = aggregate.statistics.emptying_rewritten_blocks.load(Ordering::Relaxed);
        let trace = &mut self.trace;
        trace.meet_times("areas: emptied", emptied);
        trace.meet_times("areas: blocks moved out of them", out);
        trace.meet_times("areas: the aggregate's own blocks in them written again", own);
        trace.meet_times("relocation: blocks moved", moved);
        trace.meet_times("relocation: blocks moved back", returned);
        trace.meet_times("store: blocks repaired from parity", counters.repaired_blocks);
        trace.meet_times("store: blocks not repaired", counters.damaged_blocks);
        trace.meet_times("store: partial tetris writes", counters.partial_tetris_writes);
        trace.meet_times("store: stripes of which old parity was read", counters.modified_stripes);
    }

    /// What the world has counted in the whole life.
    pub fn count_world(&mut self) {
        self.count_stores();
        let counters = self.world.counters();
        for (what, times) in [
            ("world: unflushed writes kept", counters.kept_at_cuts),
            ("world: unflushed writes lost", counters.lost_at_cuts),
            ("world: unflushed writes torn", counters.torn_at_cuts),
            ("world: latent errors", counters.latent_errors),
            ("world: bits flipped", counters.flipped_bits),
            ("world: acknowledged writes lost", counters.lost_writes),
            ("world: writes misdirected", counters.misdirected_writes),
            ("world: writes refused", counters.refused_writes),
            ("world: blocks discarded", counters.discarded_blocks),
        ] {
            self.trace.meet_times(what, times);
        }
    }
}

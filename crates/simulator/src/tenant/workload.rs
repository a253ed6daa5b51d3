//! Which operation comes next in a volume: of the plan's mix, after a few that make files and
//! directories; where something is to be filled, mostly writes to files that are there, then
//! removals.
//!
//! Invariants: a choice depends on the seed's numbers and on the model's state alone.

use crate::plan::{Filling, Plan};
use crate::seed::choices::Choices;
use file_service::{
    Attributes, Caller, CreateMode, FileKind, NewNode, SetAttributes, Stability, calls,
};
use model_fs::answer::Answer;
use model_fs::operation::{FILE_SLOT_FIRST, Fill, ORDINARY_NAMES, SLOT_COUNT, Who};
use model_fs::{Executor, Name, Numbers, Operation, Slot, SnapshotAction};

/// Ordinary names from this on are mostly directories', as in the mixes of `model-fs`.
const DIRECTORY_NAME_FIRST: u8 = 5;

/// Operations that come first in each volume: files and directories in most slots, for the others
/// to work on.
const FIRST_OPERATIONS: u64 = 12;

/// The operation with this number, in this round of checks.
pub fn choose_operation(
    plan: &Plan,
    choices: &mut Choices,
    (number, round): (u64, u64),
    model: &Executor,
) -> Operation {
    if number < FIRST_OPERATIONS * plan.volumes.len() as u64 {
        return first_operation(choices);
    }
    let operation = choose_any(plan, choices, round, model);
    // Refused by traditional volumes as yet; an image to compare with is as good.
    match operation {
        Operation::Snapshot(SnapshotAction::Restore(snapshot)) if plan.is_traditional => {
            Operation::Snapshot(SnapshotAction::Create(snapshot))
        }
        operation => operation,
    }
}

fn first_operation(choices: &mut Choices) -> Operation {
    let directory = Slot(choices.below(u64::from(FILE_SLOT_FIRST)) as u8);
    let set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    if choices.chance(30) {
        let into = Slot(1 + choices.below(u64::from(FILE_SLOT_FIRST) - 1) as u8);
        let first = u64::from(DIRECTORY_NAME_FIRST);
        let name = Name((first + choices.below(u64::from(ORDINARY_NAMES) - first)) as u8);
        let (who, node) = (Who::ROOT, NewNode::Directory);
        return Operation::MakeNode { who, directory, name, node, set, into };
    }
    let files = u64::from(SLOT_COUNT - FILE_SLOT_FIRST);
    let into = Slot(FILE_SLOT_FIRST + choices.below(files) as u8);
    let name = Name(choices.below(u64::from(DIRECTORY_NAME_FIRST)) as u8);
    let (who, mode) = (Who::ROOT, CreateMode::Unchecked);
    Operation::Create { who, directory, name, mode, set, into }
}

/// Of the operations on a volume that is to be filled, those that fill it, or make room.
const FILL_PERCENT: u64 = 75;

fn choose_any(plan: &Plan, choices: &mut Choices, round: u64, model: &Executor) -> Operation {
    // First it fills, then room is made, then it fills again.
    if plan.filling != Filling::Nothing && choices.chance(FILL_PERCENT) {
        if round.is_multiple_of(2) {
            let directory = Slot(choices.below(u64::from(FILE_SLOT_FIRST)) as u8);
            let name = Name(choices.below(u64::from(ORDINARY_NAMES)) as u8);
            return Operation::Remove { who: Who::ROOT, directory, name };
        }
        return fill(plan.filling, choices, model);
    }
    let mix = plan.mix;
    mix.operation(&mut Numbers(&mut || choices.next() >> 3))
}

/// A large write to one of the files there are, or a file more if there is none.
fn fill(filling: Filling, choices: &mut Choices, model: &Executor) -> Operation {
    let slots = (FILE_SLOT_FIRST..SLOT_COUNT).map(Slot);
    let files: Vec<_> = slots.filter(|slot| is_file(model, *slot)).collect();
    if files.is_empty() {
        return first_operation(choices);
    }
    let length_max = filling.write_bytes_max();
    Operation::Write {
        who: Who::ROOT,
        file: choices.pick(&files),
        offset: choices.below(filling.file_bytes() / length_max) * length_max,
        fill: Fill {
            length: (length_max / 2 + choices.below(length_max / 2)) as u32,
            seed: choices.below(200) as u16,
        },
        stability: Stability::Unstable,
    }
}

fn is_file(model: &Executor, slot: Slot) -> bool {
    let (service, handle) = (model.service(), model.handle(slot));
    let found = Answer::<Attributes>::to(|done| {
        service.attributes(&Caller::root(), calls::GetAttributes { file: handle }, done)
    })
    .take();
    matches!(found, Ok(Ok(attributes)) if attributes.kind == FileKind::Regular)
}

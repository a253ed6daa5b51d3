//! A file's blocks against a plain byte vector, and random renames against the invariants.

use super::{Fixture, ask};
use crate::calls;
use crate::{Allocation, Caller, RenameFlags, SetAttributes};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize, u8),
    Resize(u64),
    Punch(u64, u64),
    Zero(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offset = || 0_u64..40_000;
    let step = prop_oneof![
        (offset(), 1_usize..9000, 1_u8..)
            .prop_map(|(at, length, byte)| Step::Write(at, length, byte)),
        offset().prop_map(Step::Resize),
        (offset(), 1_u64..9000).prop_map(|(at, length)| Step::Punch(at, length)),
        (offset(), 1_u64..9000).prop_map(|(at, length)| Step::Zero(at, length)),
    ];
    prop::collection::vec(step, 1..30)
}

proptest! {
    #[test]
    fn files_hold_what_a_vector_holds(steps in steps()) {
        let fixture = Fixture::new();
        let root = Caller::root();
        let file = fixture.file("a");
        let mut model: Vec<u8> = Vec::new();
        for step in steps {
            match step {
                Step::Write(at, length, byte) => {
                    fixture.write(&root, file, at, &vec![byte; length]).unwrap();
                    let end = at as usize + length;
                    model.resize(model.len().max(end), 0);
                    model[at as usize..end].fill(byte);
                }
                Step::Resize(size) => {
                    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
                    fixture.set(&root, file, set).unwrap();
                    model.resize(size as usize, 0);
                }
                Step::Punch(at, length) | Step::Zero(at, length) => {
                    let punch = matches!(step, Step::Punch(..));
                    let allocation = if punch {
                        Allocation::PunchHole
                    } else {
                        Allocation::ZeroRange { keep_size: false }
                    };
                    let (offset, service) = (at, &fixture.service);
                    let call = calls::Allocate { file, allocation, offset, length };
                    ask(service, &root, call).unwrap();
                    let end = (at + length) as usize;
                    if !punch {
                        model.resize(model.len().max(end), 0);
                    }
                    let end = end.min(model.len());
                    model[(at as usize).min(end)..end].fill(0);
                }
            }
            prop_assert_eq!(fixture.get(file).size, model.len() as u64);
            prop_assert_eq!(&fixture.read(file, 0, 1 << 20), &model);
            fixture.service.verify();
        }
    }

    #[test]
    fn random_names_keep_the_books(
        steps in prop::collection::vec(
            (0..6_u8, 0..4_usize, 0..4_usize, 0..3_usize, 0..3_usize),
            1..60,
        ),
    ) {
        let fixture = Fixture::new();
        let mut directories = vec![fixture.root];
        for name in ["p", "q", "r"] {
            let parent = directories[directories.len() / 2];
            directories.push(fixture.directory(parent, name));
        }
        let names = ["p", "q", "r"];
        for (what, one, two, from, to) in steps {
            let (one, two) = (directories[one], directories[two]);
            let (from, to) = (names[from], names[to]);
            // Refusals are part of the game; the books must be right after each.
            let _refused = match what {
                0 => fixture.create(&Caller::root(), one, from).map(|_| ()),
                1 => fixture.remove(one, from),
                2 => fixture.remove_directory(one, from),
                3 => fixture.move_to((one, from), (two, to)),
                4 => {
                    let exchange = RenameFlags { no_replace: false, exchange: true };
                    fixture.rename((one, from), (two, to), exchange)
                }
                _ => fixture.lookup(one, from).and_then(|file| fixture.link(file, two, to)),
            };
            fixture.service.verify();
        }
    }
}

//! Cells open to whom they should, and to nobody else.

use super::*;
use crate::AffinityKind;
use std::sync::Arc;

struct Stripe {
    bytes: Vec<u8>,
}

struct Logical {
    name: String,
    stripes: Vec<Partition<Stripe>>,
}

struct Volume {
    size: u64,
    logical: Partition<Logical>,
}

struct Tree {
    root: AffinityId,
    volume: AffinityId,
    logical: AffinityId,
    stripes: [AffinityId; 2],
    vbn: AffinityId,
    cell: Partition<Volume>,
}

fn tree() -> Tree {
    let root = AffinityId::root(7);
    let aggregate = root.child(AffinityKind::Aggregate, 1, 1);
    let volume = aggregate.child(AffinityKind::Volume, 2, 2);
    let logical = volume.child(AffinityKind::VolumeLogical, 3, 3);
    let stripes = [4, 5].map(|number| logical.child(AffinityKind::Stripe, number, number));
    let vbn = volume.child(AffinityKind::VolumeVbn, 6, 6);
    let cells = stripes.map(|stripe| Partition::new(stripe, Stripe { bytes: vec![0] }));
    let content = Logical { name: "v".into(), stripes: cells.into() };
    let content = Volume { size: 1, logical: Partition::new(logical, content) };
    Tree { root, volume, logical, stripes, vbn, cell: Partition::new(volume, content) }
}

/// What the scheduler would make for a run in `affinity`; each test has one at a time for each
/// path of the tree.
fn run<R>(affinity: AffinityId, body: impl FnOnce(&mut Access<'_>) -> R) -> R {
    body(&mut Access::new(affinity))
}

fn panics(body: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err()
}

#[test]
fn partition_opens_by_relation() {
    let tree = tree();
    let cell = Partition::new(tree.logical, 0);
    for affinity in [tree.root, tree.volume, tree.logical] {
        run(affinity, |access| *cell.write(access) += 1);
    }
    for affinity in [tree.root, tree.volume, tree.logical, tree.stripes[1]] {
        run(affinity, |access| assert_eq!(*cell.read(access), 3));
    }
    for affinity in [tree.stripes[0], tree.vbn, AffinityId::root(8)] {
        assert!(panics(|| run(affinity, |access| *cell.write(access) = 9)), "{affinity}");
    }
    for affinity in [tree.vbn, AffinityId::root(8)] {
        assert!(panics(|| run(affinity, |access| assert_eq!(*cell.read(access), 9))));
    }
    assert_eq!(cell.into_inner(), 3);
}

#[test]
fn partition_split_reads_the_path_and_writes_the_leaf() {
    let tree = tree();
    // The same steps in the stripe's own affinity and in wider ones.
    for running in [tree.stripes[0], tree.logical, tree.volume, tree.root] {
        run(running, |access| {
            let (above, mut beneath) = access.split(tree.stripes[0]);
            let volume = tree.cell.read_above(&above);
            let logical = volume.logical.read_above(&above);
            let Some(stripe) = logical.stripes.first() else { panic!("two stripes") };
            let stripe = stripe.write(&mut beneath);
            stripe.bytes.push(volume.size as u8);
            assert_eq!(logical.name, "v");
            stripe.bytes.push(1);
            // The narrowed access does not reach the sibling, wherever it came from.
            assert!(panics(|| logical.stripes[1].write(&mut beneath).bytes.clear()));
            assert!(panics(|| assert!(logical.stripes[0].read_above(&above).bytes.is_empty())));
        });
    }
    assert!(panics(|| run(tree.stripes[1], |access| {
        let _ = access.split(tree.stripes[0]);
    })));
    let stripes = tree.cell.into_inner().logical.into_inner().stripes;
    assert_eq!(stripes[0].read(&Access::new(tree.root)).bytes, [0, 1, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn partition_write_beneath_holds_parent_and_child() {
    let tree = tree();
    run(tree.logical, |access| {
        let (volume, logical) =
            Partition::write_beneath(&tree.cell, |volume| &volume.logical, access);
        logical.name.push('w');
        // Whoever has the parent's content exclusively needs no check for its parts.
        for stripe in &mut logical.stripes {
            stripe.get_mut().bytes.push(volume.size as u8);
        }
        logical.name.push('x');
        assert_eq!(volume.size, 1);
    });
    run(tree.volume, |access| {
        let volume = tree.cell.write(access);
        assert_eq!(volume.logical.get_mut().name, "vwx");
        volume.size = 2;
        assert_eq!(volume.logical.get_mut().stripes[1].get_mut().bytes, [0, 1]);
    });
    // A cell is no parent of itself, and a stripe may not write its parent.
    let cell = Partition::new(tree.logical, 1);
    assert!(panics(|| run(tree.logical, |access| {
        let _ = Partition::write_beneath(&cell, |_| &cell, access);
    })));
    assert!(panics(|| run(tree.stripes[0], |access| {
        let _ = Partition::write_beneath(&tree.cell, |volume| &volume.logical, access);
    })));
    assert!(panics(|| run(tree.vbn, |access| {
        let _ = Partition::write_beneath(&tree.cell, |volume| &volume.logical, access);
    })));
}

#[test]
fn partition_siblings_write_beside_readers_of_their_parent() {
    let tree = Arc::new(tree());
    std::thread::scope(|scope| {
        for (index, stripe) in tree.stripes.into_iter().enumerate() {
            let tree = Arc::clone(&tree);
            scope.spawn(move || {
                for _ in 0..20 {
                    run(stripe, |access| {
                        let (above, mut beneath) = access.split(stripe);
                        let logical = tree.cell.read_above(&above).logical.read_above(&above);
                        let stripe = logical.stripes[index].write(&mut beneath);
                        stripe.bytes.push(logical.name.len() as u8);
                    });
                }
            });
        }
        let tree = &tree;
        scope.spawn(move || {
            run(tree.vbn, |access| assert_eq!(tree.cell.read(access).size, 1));
        });
    });
    run(tree.volume, |access| {
        for stripe in &mut tree.cell.write(access).logical.get_mut().stripes {
            assert_eq!(stripe.get_mut().bytes.len(), 21);
        }
    });
}

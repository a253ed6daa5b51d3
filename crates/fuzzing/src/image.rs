//! Target `mount_image`: a sound image, damaged, then looked at and mounted and used.
//!
//! The first byte chooses the image; then come the damages ([`damage`]), most of them with every
//! checksum made to fit, so that they get where only a look at what a structure says can help.
//!
//! Rules: the independent reader ends; opening ends, with an error or a node; every request to the
//! node is answered; nothing panics, takes memory without bound or goes on for ever. What answers
//! are given is not looked at: the image lies.

mod base;
mod damage;
mod forge;
mod visit;

use crate::input::Input;
use crate::node::Node;
use damage::Damager;
use inspect::Inspector;
use platform::simulated::SimulatedWorld;

/// Damages of one input.
const DAMAGES_MAX: usize = 12;

/// See the module.
pub fn mount_image(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let bases = base::bases();
    let base = &bases[input.index(bases.len())];
    let world = SimulatedWorld::new(1);
    world.restore(&base.image);
    let mut damager = Damager::new(&world, base);
    for _ in 0..DAMAGES_MAX {
        if input.is_empty() {
            break;
        }
        damager.one(&mut input);
    }
    look(&world, base);
    let node = Node::start(&world);
    let disks = node.disks();
    let opened = node.wait("open", |done| node.engine.open_aggregate(disks, done));
    match opened {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(_) => visit::visit(&node, base.volume),
    }
}

/// The independent reader's look.
fn look(world: &SimulatedWorld, base: &base::Base) {
    let node = Node::start(world); // only its disks are used
    let disks = node.disks();
    let pump = world.clone();
    let mut drive = move || {
        pump.run_until_idle();
    };
    let mut inspector = match Inspector::open(disks, &mut drive) {
        Ok(inspector) => inspector,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    match inspector.check() {
        Ok(report) => assert!(!report.to_string().is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    for snapshot in [None, Some("s0")] {
        if let Err(error) = inspector.tree(base.volume, snapshot) {
            assert!(!error.to_string().is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_images_are_sound() {
        for base in base::bases() {
            let world = SimulatedWorld::new(1);
            world.restore(&base.image);
            let node = Node::start(&world);
            let disks = node.disks();
            let recovery = node.wait("open", |done| node.engine.open_aggregate(disks, done));
            let recovery = recovery.unwrap();
            assert_eq!(recovery.replayed > 0, base.replays, "{recovery:?}");
            visit::visit(&node, base.volume);
            node.settle();
            assert!(!node.consistency_point(), "the visit ends with a stop");
            let disks = node.disks();
            let mut drive = || {
                world.run_until_idle();
            };
            let report = Inspector::open(disks, &mut drive).unwrap().check().unwrap();
            assert!(report.is_clean(), "{report}");
        }
    }

    #[test]
    fn damage_with_the_checksums_made_to_fit_gets_past_them() {
        // A byte of a directory changed: without the forging the block would be lost.
        let mut mounted = 0;
        for number in 0..=255 {
            let base = &base::bases()[0];
            let world = SimulatedWorld::new(1);
            world.restore(&base.image);
            let bytes = [1, number, 2, 100, 0, 200];
            Damager::new(&world, base).one(&mut Input::new(&bytes));
            let node = Node::start(&world);
            let disks = node.disks();
            let opened = node.wait("open", |done| node.engine.open_aggregate(disks, done));
            mounted += usize::from(opened.is_ok());
        }
        assert!(mounted > 50, "{mounted} of 256 damaged images can be mounted");
    }
}

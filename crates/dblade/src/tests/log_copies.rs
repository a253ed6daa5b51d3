//! Logs with a copy on each of two disks.

use super::*;
use crate::EngineError;
use nvlog::CopyState;
use units::Block;

const WHOLE: [CopyState; 2] = [CopyState::Whole, CopyState::Whole];

/// A node whose log has a second copy, which has everything.
fn node() -> Node {
    let world = SimulatedWorld::new(7);
    world.add_disk(LOG_COPY, 1412);
    let node = Node::create(&world, RaidKind::Raid4, false);
    mend(&node);
    assert_eq!(states(&node), WHOLE);
    node
}

/// Copies that can join do so, and have everything.
fn mend(node: &Node) {
    // Places that failed are tried again after a while.
    node.world.advance(11_000_000_000);
    node.engine.mend_logs();
    node.settle();
}

fn states(node: &Node) -> Vec<CopyState> {
    let summary = node.engine.aggregate_summaries().remove(0);
    summary.log_copies.into_iter().map(|copy| copy.state).collect()
}

fn write(node: &Node, name: &str) {
    node.write_file(node.root("home"), name, name.as_bytes().to_vec());
}

fn check(node: &Node, names: &[&str]) {
    for name in names {
        let read = node.read_file(node.root("home"), name);
        assert_eq!(read.as_deref(), Ok(name.as_bytes()), "{name}");
    }
}

fn cut(node: Node) -> SimulatedWorld {
    node.power_cut()
}

#[test]
fn either_copy_alone_has_everything() {
    for lost in ["log", LOG_COPY] {
        let node = node();
        write(&node, "since");
        let world = cut(node);
        world.set_gone(lost, true);
        let (node, recovery) = Node::open(&world);
        assert!(recovery.lost_log.is_none() && recovery.replayed > 0, "{lost}: {recovery:?}");
        check(&node, &["since"]);
        world.set_gone(lost, false);
        mend(&node);
        assert_eq!(states(&node), WHOLE, "{lost}");
    }
}

#[test]
fn a_copy_that_fails_is_done_without_and_comes_back() {
    let node = node();
    write(&node, "before");
    node.world.set_gone("log", true);
    write(&node, "without");
    let lost = states(&node);
    assert!(matches!(&lost[1], CopyState::Lost(cause) if cause.contains("gone")), "{lost:?}");
    assert!(node.engine.aggregate_named("a1").unwrap().failure().is_none());
    node.world.set_gone("log", false);
    mend(&node);
    assert_eq!(states(&node), WHOLE);
    write(&node, "again");
    let world = cut(node);
    world.set_gone(LOG_COPY, true);
    let (node, _) = Node::open(&world);
    check(&node, &["before", "without", "again"]);
}

#[test]
fn a_copy_that_missed_something_is_not_believed() {
    let node = node();
    node.world.set_gone("log", true);
    write(&node, "without");
    let world = cut(node);
    world.set_gone("log", false);
    world.set_gone(LOG_COPY, true);
    let node = Node::start(&world);
    let disks = node.disks();
    let refused = node.wait(|done| node.engine.open_aggregate(disks, done)).unwrap_err();
    let EngineError::Journal { .. } = &refused else { panic!("{refused}") };
    node.engine.halt();
    world.set_gone(LOG_COPY, false);
    let (node, recovery) = Node::open(&world);
    assert!(recovery.lost_log.is_none());
    check(&node, &["without"]);
}

#[test]
fn a_disk_that_holds_something_else_is_left_alone() {
    let world = SimulatedWorld::new(7);
    world.add_disk(LOG_COPY, 1412);
    let mut content = Block::zeroed();
    content[77] = 1;
    world.write_block(LOG_COPY, 3, &content);
    let node = Node::create(&world, RaidKind::Raid4, false);
    mend(&node);
    let states = states(&node);
    assert!(matches!(&states[1], CopyState::Lost(cause) if cause.contains("blank")), "{states:?}");
    assert_eq!(world.read_block(LOG_COPY, 3).as_deref(), Some(&content));
    assert!(world.read_block(LOG_COPY, 0).is_none_or(|block| block.is_zero()));
}

#[test]
fn a_log_may_have_fewer_copies_again() {
    let node = node();
    write(&node, "two");
    node.wait(|done| node.engine.stop(done)).unwrap();
    let world = cut(node);
    // The configuration names one place alone.
    world.set_gone(LOG_COPY, true);
    let (node, _) = Node::open(&world);
    write(&node, "one");
    let world = cut(node);
    let (node, _) = Node::open(&world);
    check(&node, &["two", "one"]);
}

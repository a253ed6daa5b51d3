//! What a watchdog asks the engine.

use super::*;
use crate::Probe;
use affinity::{Access, AffinityKind, Outcome};

/// A message that hangs would keep its worker, and whatever waits for its affinity.
#[test]
fn a_probe_is_answered_when_no_message_runs_on() {
    let node = Node::start(&SimulatedWorld::new(72));
    let scheduler = node.engine.scheduler();
    let aggregate = scheduler.add(scheduler.root(), AffinityKind::Aggregate);
    let asked = Arc::new(Mutex::new(None));
    let (engine, same) = (Arc::clone(&node.engine), Arc::clone(&asked));
    let running = move |_: &mut Access<'_>| {
        let probe = Probe::ask(&engine);
        let another_worker_runs_something = engine.scheduler().run_one(&mut |_| 0);
        assert!(!another_worker_runs_something && !probe.is_answered());
        *same.lock() = Some(probe);
        Outcome::Done
    };
    scheduler.send(aggregate, Box::new(running));
    assert!(scheduler.run_one(&mut |_| 0));
    let probe = asked.lock().take().expect("the message ran");
    assert!(!probe.is_answered());
    assert!(scheduler.run_one(&mut |_| 0) && probe.is_answered());
}

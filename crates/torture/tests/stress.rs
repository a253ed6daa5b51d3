//! The short form of `stress`: the engine on real threads, in memory and in files, a few lives of
//! each; and rules broken on purpose, so that its checks are known to fail.

#![allow(clippy::unwrap_used, reason = "a test's helpers")]

use platform::mutation::{Rule, break_rule};
use std::time::Duration;
use torture::Failure;
use torture::stress::media::Place;
use torture::stress::{Plan, Summary, run};

fn lives(seed: u64, places: Vec<Place>, duration: Duration) -> Result<Summary, Failure> {
    let life = Duration::from_millis(300);
    let plan = Plan { duration, life, seed, clients: 4, places };
    run(&plan, &mut |line| println!("{line}"))
}

/// One test, since a rule is broken in the whole process.
#[test]
fn threads_of_the_engine_lose_nothing_and_a_broken_rule_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let places = vec![Place::Memory, Place::Files(directory.path().to_owned())];
    println!("{}", lives(1, places, Duration::from_secs(8)).unwrap());
    // More than enough time: it is found in the first life that does not end with a stop.
    for rule in [Rule::LogAcknowledgedEarly, Rule::StableWriteNotLogged] {
        break_rule(Some(rule));
        let outcome = lives(2, vec![Place::Memory], Duration::from_secs(120));
        break_rule(None);
        match outcome {
            Err(failure) => println!("{}: {failure}", rule.name()),
            Ok(summary) => panic!("{} was not noticed in {summary}", rule.name()),
        }
    }
}

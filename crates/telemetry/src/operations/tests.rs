//! Tests of the counting of operations.

use super::*;
use crate::snapshot::Snapshot;
use platform::thread::spawn;
use std::sync::Arc;

const OPERATIONS: &[&str] = &["lookup", "read", "write"];
const PROTOCOLS: &[&str] = &["nfs", "fuse"];
const ROOM_BYTES: u64 = 1 << 20;

fn key(number: u8) -> VolumeKey {
    [number; 16]
}

fn read(volume: u8, nanoseconds: u64) -> Observation {
    let volume = Some(key(volume));
    Observation { operation: 1, protocol: 0, volume, class: Class::Read, nanoseconds, bytes: 100 }
}

fn snapshot(operations: &Operations) -> Snapshot {
    Snapshot { metrics: operations.snapshot() }
}

fn bytes_of(operations: &Operations, volume: &str) -> Option<Value> {
    let name = "stroop_volume_transferred_bytes_total";
    snapshot(operations).value(name, &["read", "nfs", volume]).cloned()
}

#[test]
fn calls_are_counted_by_operation_protocol_and_volume() {
    let operations = Operations::new(OPERATIONS, PROTOCOLS, (ROOM_BYTES, 4));
    operations.know(key(1), "home");
    operations.observe(&read(1, 20_000));
    operations.observe(&read(1, 6_000_000));
    let looked_up =
        Observation { operation: 0, protocol: 1, class: Class::Other, bytes: 0, ..read(1, 5) };
    operations.observe(&looked_up);
    operations.observe(&Observation { volume: None, ..looked_up });
    let snapshot = snapshot(&operations);
    let counts = |name: &str, labels: &[&str]| match snapshot.value(name, labels) {
        Some(Value::Histogram { counts, sum, .. }) => (counts.clone(), *sum),
        other => panic!("{name} {labels:?}: {other:?}"),
    };
    let (fine, sum) = counts("stroop_op_duration_seconds", &["read", "nfs"]);
    assert_eq!((fine[1], fine[9], fine.iter().sum::<u64>(), sum), (1, 1, 2, 6_020_000));
    assert_eq!(fine.len(), OPERATION_DURATION.bounds.len() + 1);
    let (fine, _) = counts("stroop_op_duration_seconds", &["lookup", "fuse"]);
    assert_eq!(fine[0], 2);
    let name = "stroop_volume_op_duration_seconds";
    let (coarse, sum) = counts(name, &["read", "nfs", "home"]);
    assert_eq!((coarse, sum), (vec![1, 0, 0, 1, 0, 0], 6_020_000));
    assert_eq!(counts(name, &["other", "fuse", "home"]).0[0], 1, "one was about no volume");
    assert_eq!(bytes_of(&operations, "home"), Some(Value::Counter(200)));
    assert_eq!(snapshot.value(name, &["write", "nfs", "home"]), None, "no series of nothing");
}

#[test]
fn a_volume_that_is_gone_leaves_no_series_and_the_next_begins_at_zero() {
    let operations = Operations::new(OPERATIONS, PROTOCOLS, (ROOM_BYTES, 1));
    operations.know(key(1), "home");
    operations.observe(&read(1, 10));
    operations.know(key(1), "work");
    assert_eq!(bytes_of(&operations, "home"), None);
    assert_eq!(bytes_of(&operations, "work"), Some(Value::Counter(100)), "it was renamed");
    operations.forget(key(2));
    assert!(bytes_of(&operations, "work").is_some(), "another is gone");
    operations.forget(key(1));
    operations.observe(&read(1, 10));
    assert_eq!(bytes_of(&operations, "work"), None);
    operations.know(key(2), "work");
    assert_eq!(bytes_of(&operations, "work"), None);
    operations.observe(&read(2, 10));
    assert_eq!(bytes_of(&operations, "work"), Some(Value::Counter(100)));
    operations.know(key(3), "work");
    operations.observe(&read(2, 10));
    assert_eq!(bytes_of(&operations, "work"), None, "another volume has the name");
}

#[test]
fn what_nobody_made_known_makes_no_series() {
    let operations = Operations::new(OPERATIONS, PROTOCOLS, (ROOM_BYTES, 1));
    for number in 0..200 {
        operations.observe(&read(number, 10));
    }
    let names: Vec<String> = operations.snapshot().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["stroop_op_duration_seconds"]);
    assert_eq!(operations.memory_bytes(), operations.fixed_bytes() as u64);
}

/// With 1,000 volumes and more the memory is what was promised, and what is past it is counted
/// together.
#[test]
fn memory_is_bounded_and_counted() {
    for (memory_bytes, threads) in [(512 << 10, 16), (8 << 20, 16), (8 << 20, 4), (1, 1)] {
        let operations = Operations::new(OPERATIONS, PROTOCOLS, (memory_bytes, threads));
        let volumes = 3000_u32;
        let key = |number: u32| {
            // As random as identities are.
            let number = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060);
            (number ^ (number >> 61)).to_le_bytes()
        };
        for number in 0..volumes {
            operations.know(key(number), &format!("v{number}"));
            operations.observe(&Observation { volume: Some(key(number)), ..read(0, 10) });
        }
        assert_eq!(operations.memory_bytes(), operations.memory_bytes_max());
        let fixed_bytes = operations.fixed_bytes() as u64;
        let least_bytes = 2 * operations.place_bytes() as u64;
        let most_bytes = memory_bytes.max(least_bytes) + fixed_bytes;
        assert!(operations.memory_bytes() <= most_bytes, "{}", operations.memory_bytes());
        assert!(fixed_bytes < 600 << 10, "{fixed_bytes}");
        let named = operations.places.len() - 1;
        assert_eq!(operations.names.lock().free.len(), 0, "each place is used");
        let counted: u64 = operations
            .snapshot()
            .iter()
            .filter(|metric| metric.name == "stroop_volume_transferred_bytes_total")
            .flat_map(|metric| &metric.series)
            .map(|series| match series.value {
                Value::Counter(bytes) => bytes,
                _ => 0,
            })
            .sum();
        assert_eq!(counted, u64::from(volumes) * 100);
        let overflow = bytes_of(&operations, OVERFLOW);
        assert_eq!(overflow, Some(Value::Counter((u64::from(volumes) - named as u64) * 100)));
    }
}

#[test]
fn threads_lose_nothing() {
    let operations = Arc::new(Operations::new(OPERATIONS, PROTOCOLS, (ROOM_BYTES, 4)));
    operations.know(key(1), "home");
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let operations = Arc::clone(&operations);
            let body = move || (0..1000).for_each(|_| operations.observe(&read(1, 10)));
            spawn(&format!("count-{number}"), body).unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(bytes_of(&operations, "home"), Some(Value::Counter(800_000)));
}

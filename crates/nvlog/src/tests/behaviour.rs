//! What the log promises while the power stays on.

use super::*;
use crate::LogFull;
use platform::simulated::IoKind;
use units::BLOCK_SIZE;

fn kinds(world: &SimulatedWorld) -> Vec<(IoKind, usize)> {
    world.pending().iter().map(|io| (io.kind, io.count)).collect()
}

#[test]
fn records_come_back_in_order_with_all_they_had() {
    let (world, log) = fresh(64);
    let big: Vec<u8> = (0..10_000_u32).map(|number| number as u8).collect();
    log.append(CpNumber(1), 3, &[b"he", b"", b"llo"]).unwrap();
    log.append(CpNumber(1), 9, &[]).unwrap();
    log_durably(&world, &log, &big);
    let (log, records) = open(&world, 0);
    assert_eq!(bodies(&records), [b"hello".as_slice(), b"", &big]);
    let heads: Vec<_> = records.iter().map(|r| (r.cp, r.kind, r.position.get())).collect();
    let cp = CpNumber(1);
    assert_eq!(heads, [(cp, 3, 1), (cp, 9, 2), (cp, 7, 3)]);
    assert_eq!(log.active_cp(), cp);
    // They are still there after more was appended behind them, and gone when committed.
    log_durably(&world, &log, b"more");
    assert_eq!(open(&world, 0).1.len(), 4);
    assert_eq!(open(&world, 1).1, []);
}

#[test]
fn what_gathers_during_a_write_goes_out_as_one() {
    let (world, log) = fresh(64);
    let first = wait(&log, append(&log, &[1; 100]));
    assert_eq!(kinds(&world), [(IoKind::Write, 1)]);
    let others: Vec<Told> = (0..50).map(|_| wait(&log, append(&log, &[2; 500]))).collect();
    assert_eq!(kinds(&world), [(IoKind::Write, 1)]);
    assert!(world.complete_one(0));
    assert_eq!(kinds(&world), [(IoKind::Flush, 0)]);
    assert_eq!(*first.lock(), None);
    assert!(world.complete_one(0));
    assert_eq!(*first.lock(), Some(Ok(())));
    let blocks = (80_usize + 50 * 516).div_ceil(BLOCK_SIZE);
    assert_eq!(kinds(&world), [(IoKind::Write, blocks)]);
    assert_eq!(world.run_until_idle(), 2);
    assert!(others.iter().all(|told| *told.lock() == Some(Ok(()))));
    // What is durable is told at once.
    assert_eq!(*wait(&log, LogPosition(1)).lock(), Some(Ok(())));
}

#[test]
fn what_nobody_waits_for_is_written_when_pushed() {
    let (world, log) = fresh(64);
    append(&log, b"a");
    assert_eq!(kinds(&world), []);
    log.push();
    append(&log, b"behind the push");
    assert_eq!(kinds(&world), [(IoKind::Write, 1)]);
    world.run_until_idle();
    let position = append(&log, b"c");
    append(&log, b"d");
    // A waiter takes with it whatever gathers.
    wait(&log, position);
    assert_eq!(world.run_until_idle(), 2);
    log.push();
    assert_eq!(world.pending_count(), 0);
    assert_eq!(open(&world, 0).1.len(), 4);
}

#[test]
fn halves_take_turns() {
    let (world, log) = fresh(16);
    for cp in 1..20 {
        assert_eq!(log.active_cp(), CpNumber(cp));
        log_durably(&world, &log, &[cp as u8; 3000]);
        assert_eq!(log.switch_half(CpNumber(cp + 1)), Ok(()));
        assert!(!log.can_switch());
        assert_eq!(log.switch_half(CpNumber(cp + 2)), Err(LogFull::NotRetired));
        // A record of the point under way, in the new half.
        let note = log.append(CpNumber(cp), 9, &[b"note"]).unwrap();
        wait(&log, note);
        log_durably(&world, &log, b"next");
        let point = [cp as u8; 3000];
        let mut expected: Vec<&[u8]> = vec![b"next", &point, b"note", b"next"];
        if cp == 1 {
            expected.remove(0);
        }
        assert_eq!(bodies(&open(&world, cp - 1).1), expected);
        assert_eq!(bodies(&open(&world, cp).1), [b"next"]);
        log.retire(CpNumber(cp));
        assert!(log.can_switch());
    }
}

#[test]
fn a_reused_half_shows_nothing_of_its_former_life() {
    let (world, log) = fresh(32);
    for number in 0..20 {
        log_durably(&world, &log, &[number; 900]);
    }
    for cp in 1..=2 {
        log.switch_half(CpNumber(cp + 1)).unwrap();
        log.retire(CpNumber(cp));
    }
    log_durably(&world, &log, b"new");
    let (log, records) = open(&world, 2);
    assert_eq!(bodies(&records), [b"new"]);
    assert_eq!(records[0].position.get(), 21);
    // Even if the superblock were lost, the former life is not taken for the present one.
    assert_eq!(bodies(&open(&world, 0).1), [b"new"]);
    drop(log);
}

#[test]
fn a_half_takes_no_more_records_than_may_be_in_memory() {
    let (_, log) = fresh(64);
    log.limit_halves(2 * BLOCK_SIZE as u64);
    let record = [1; BLOCK_SIZE];
    let taken = (0..8).take_while(|_| log.append(CpNumber(1), 7, &[&record]).is_ok()).count();
    assert_eq!(taken, 2, "the second begins below the limit");
    let refused = log.append(CpNumber(1), 7, &[b""]);
    assert_eq!(refused, Err(LogFull::Half { needed_bytes: 0, free_bytes: 0 }));
    assert_eq!(log.free_bytes(), 0);
    // The other half has room of its own.
    log.switch_half(CpNumber(2)).unwrap();
    log.append(CpNumber(2), 7, &[&record]).unwrap();
}

#[test]
fn a_full_half_refuses() {
    let (world, log) = fresh(16);
    assert_eq!(log.capacity_bytes(), 16 * BLOCK_SIZE as u64);
    let bytes_max = log.record_bytes_max();
    let bytes = bytes_max + 1;
    assert_eq!(
        log.append(CpNumber(1), 7, &[&vec![0; bytes as usize]]),
        Err(LogFull::RecordTooLarge { bytes, bytes_max })
    );
    assert!(log.used_ratio() < f64::EPSILON);
    assert_eq!(log.free_bytes(), bytes_max);
    append(&log, &vec![1; bytes_max as usize - 116]);
    assert_eq!(log.free_bytes(), 100);
    let full = Err(LogFull::Half { needed_bytes: 101, free_bytes: 100 });
    assert_eq!(log.append(CpNumber(1), 7, &[&[0; 101]]), full);
    append(&log, &[2; 100]);
    assert!(log.used_ratio() > 0.999);
    assert_eq!(log.free_bytes(), 0);
    assert!(matches!(log.append(CpNumber(1), 7, &[b"x"]), Err(LogFull::Half { .. })));
    log.push();
    world.run_until_idle();
    assert_eq!(open(&world, 0).1.len(), 2);
    // The other half is free: switching makes room.
    log.switch_half(CpNumber(2)).unwrap();
    append(&log, &[4; 1000]);
}

#[test]
fn small_batches_use_a_block_each_and_fill_the_half() {
    let (world, log) = fresh(16);
    for _ in 0..16 {
        log_durably(&world, &log, b"small");
    }
    assert!(matches!(log.append(CpNumber(1), 7, &[b""]), Err(LogFull::Half { free_bytes: 0, .. })));
    let (log, records) = open(&world, 0);
    assert_eq!(records.len(), 16);
    assert_eq!(log.free_bytes(), 0);
}

#[test]
fn retiring_tells_those_who_wait_for_what_was_not_written() {
    let (world, log) = fresh(16);
    let in_flight = wait(&log, append(&log, b"in flight"));
    let gathering = wait(&log, append(&log, b"gathering"));
    log.switch_half(CpNumber(2)).unwrap();
    let next = wait(&log, append(&log, b"next"));
    assert_eq!(*gathering.lock(), None);
    log.retire(CpNumber(1));
    assert_eq!(*gathering.lock(), Some(Ok(())));
    assert_eq!((&*in_flight.lock(), &*next.lock()), (&None, &None));
    world.run_until_idle();
    assert_eq!(*in_flight.lock(), Some(Ok(())));
    assert_eq!(*next.lock(), Some(Ok(())));
    assert_eq!(bodies(&open(&world, 1).1), [b"next"]);
}

#[test]
fn batches_of_the_old_half_go_before_those_of_the_new_one() {
    let (world, log) = fresh(16);
    append(&log, b"old");
    log.switch_half(CpNumber(2)).unwrap();
    wait(&log, append(&log, b"new"));
    assert!(world.complete_one(0));
    assert!(world.complete_one(0));
    assert_eq!(bodies(&open(&world, 0).1)[0], b"old");
}

#[test]
fn after_a_replay_both_halves_are_freed_at_once() {
    let (world, log) = fresh(16);
    log_durably(&world, &log, b"one");
    log.switch_half(CpNumber(2)).unwrap();
    log_durably(&world, &log, b"two");
    let (log, records) = open(&world, 0);
    assert_eq!(bodies(&records), [b"one", b"two"]);
    assert_eq!(log.switch_half(CpNumber(3)), Err(LogFull::NotRetired));
    // The point that holds both is numbered as the later.
    assert_eq!(log.active_cp(), CpNumber(2));
    log.retire(CpNumber(2));
    assert_eq!(log.active_cp(), CpNumber(3));
    assert!(log.can_switch() && log.used_ratio() < f64::EPSILON);
    log_durably(&world, &log, b"three");
    assert_eq!(bodies(&open(&world, 2).1), [b"three"]);
}

#[test]
fn an_error_of_the_disk_ends_the_log() {
    for gone_after in [0, 1] {
        let (world, log) = fresh(16);
        log_durably(&world, &log, b"before");
        let waiting = wait(&log, append(&log, b"fails"));
        let gathering = wait(&log, append(&log, b"fails too"));
        // At the write, or at the flush.
        (0..gone_after).for_each(|_| assert!(world.complete_one(0)));
        world.set_gone(DISK, true);
        world.run_until_idle();
        let gone = DiskError::Gone { disk: DISK.to_owned() };
        assert_eq!(*waiting.lock(), Some(Err(gone.clone())));
        assert_eq!(*gathering.lock(), Some(Err(gone.clone())));
        assert_eq!(log.failure(), Some(gone.clone()));
        world.set_gone(DISK, false);
        let failed = Err(LogFull::Failed { cause: gone.clone() });
        assert_eq!(log.append(CpNumber(1), 7, &[b"late"]), failed);
        assert_eq!(*wait(&log, LogPosition(1)).lock(), Some(Ok(())));
        assert_eq!(*wait(&log, LogPosition(2)).lock(), Some(Err(gone)));
        log.push();
        assert_eq!(world.pending_count(), 0);
    }
}

#[test]
fn a_closed_log_takes_nothing_and_keeps_what_it_has() {
    let (world, log) = fresh(16);
    let position = append(&log, b"before");
    log.close();
    assert_eq!(log.append(CpNumber(1), 7, &[b"late"]), Err(LogFull::Closed));
    let waiting = wait(&log, position);
    world.run_until_idle();
    assert_eq!(*waiting.lock(), Some(Ok(())));
    assert_eq!(bodies(&open(&world, 0).1), [b"before"]);
}

#[test]
fn a_disk_that_is_gone_is_noticed_though_nobody_writes() {
    let (world, log) = fresh(16);
    log_durably(&world, &log, b"before");
    log.probe();
    log.probe();
    assert_eq!(world.run_until_idle(), 1, "one look at a time");
    assert_eq!(log.failure(), None);
    let gathering = append(&log, b"in memory only");
    world.set_gone(DISK, true);
    log.probe();
    world.run_until_idle();
    let gone = DiskError::Gone { disk: DISK.to_owned() };
    assert_eq!(log.failure(), Some(gone.clone()));
    assert_eq!(*wait(&log, gathering).lock(), Some(Err(gone)));
}

#[test]
#[should_panic(expected = "a record of cp:2 in the half of cp:1")]
fn a_record_of_a_later_point_is_refused() {
    let (_world, log) = fresh(16);
    let _ = log.append(CpNumber(2), 7, &[b"early"]);
}

#[test]
fn a_log_is_shared_between_threads() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<Log>();
}

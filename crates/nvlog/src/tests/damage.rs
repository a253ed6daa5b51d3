//! Disks that hold something else than a whole log.

use super::*;
use ondisk::features::FeatureClass;
use ondisk::log::{LOG_BATCH_MAGIC, LogBatch, LogHeader};
use proptest::prelude::*;
use units::{AggregateUuid, BLOCK_SIZE, Block, LogUuid};

fn open_as(world: &SimulatedWorld, identity: LogIdentity) -> Result<(), LogError> {
    world.wait(|done| {
        Log::open(&disk(world), identity, CpNumber(0), Box::new(|result| done(result.map(drop))));
    })
}

#[test]
fn logs_of_others_are_refused() {
    let (world, _log) = fresh(16);
    let other = LogIdentity { aggregate: AggregateUuid([9; 16]), ..IDENTITY };
    let refused = open_as(&world, other);
    assert_eq!(
        refused,
        Err(LogError::OtherAggregate { disk: DISK.into(), found: AggregateUuid([1; 16]) })
    );
    let other = LogIdentity { log: LogUuid([9; 16]), ..IDENTITY };
    let refused = open_as(&world, other);
    assert_eq!(refused, Err(LogError::OtherLog { disk: DISK.into(), found: LogUuid([2; 16]) }));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "disk log holds log 02020202020202020202020202020202, another of the aggregate's"
    );
}

#[test]
fn one_whole_header_is_enough() {
    for copy in [0, 1] {
        let (world, log) = fresh(16);
        log_durably(&world, &log, b"kept");
        world.flip_bit(DISK, copy, 77);
        assert_eq!(bodies(&open(&world, 0).1), [b"kept"]);
        world.fail_block(DISK, copy);
        assert_eq!(bodies(&open(&world, 0).1), [b"kept"]);
        // Opening has written both again.
        world.flip_bit(DISK, 1 - copy, 77);
        assert_eq!(bodies(&open(&world, 0).1), [b"kept"]);
    }
}

/// The newer build may have died before it wrote the other copy. What is refused is not changed.
#[test]
fn one_header_of_a_newer_build_refuses_the_log() {
    for class in [FeatureClass::ReadOnlyCompatible, FeatureClass::Incompatible] {
        for copies in [&[0][..], &[1], &[0, 1]] {
            let (world, log) = fresh(16);
            log_durably(&world, &log, b"kept");
            let old = world.read_block(DISK, 0).unwrap();
            let mut newer = LogHeader::from_block(&old).unwrap();
            newer.features.set_named(class, 40, "later");
            for copy in copies {
                world.write_block(DISK, *copy, &newer.to_block());
            }
            let before = [0, 1].map(|copy| world.read_block(DISK, copy));
            let refused = try_open(&world, 0).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "the log on disk log is not opened: log header: uses the feature 'later', which \
                 this build of Stroop lacks; a newer build wrote it; start the build that wrote \
                 it, or a later one"
            );
            assert!([0, 1].map(|copy| world.read_block(DISK, copy)) == before);
            for copy in copies {
                world.write_block(DISK, *copy, &old);
            }
            assert_eq!(bodies(&open(&world, 0).1), [b"kept"]);
        }
    }
}

/// A compatible feature forbids nothing, and its bit stays.
#[test]
fn a_header_keeps_compatible_features() {
    let (world, log) = fresh(16);
    log_durably(&world, &log, b"kept");
    let mut newer = LogHeader::from_block(&world.read_block(DISK, 0).unwrap()).unwrap();
    newer.features.set_named(FeatureClass::Compatible, 40, "later");
    [0, 1].iter().for_each(|copy| world.write_block(DISK, *copy, &newer.to_block()));
    assert_eq!(bodies(&open(&world, 0).1), [b"kept"]);
    for copy in [0, 1] {
        let header = LogHeader::from_block(&world.read_block(DISK, copy).unwrap()).unwrap();
        assert_eq!(header.features, newer.features);
        assert!(header.incarnation.get() > newer.incarnation.get());
    }
}

/// The batch is whole, so it is no torn one, which ends a log: what was acknowledged is in it.
#[test]
fn a_record_of_a_newer_build_refuses_the_log_while_it_is_needed() {
    let (world, log) = fresh(16);
    for body in [b"one", b"two"] {
        log_durably(&world, &log, body);
    }
    let at = size_of::<LogBatch>() + std::mem::offset_of!(ondisk::log::LogRecord, reserved);
    for block in [LOG_HEADER_BLOCKS, LOG_HEADER_BLOCKS + 1] {
        let old = world.read_block(DISK, block).unwrap();
        world.write_block(DISK, block, &forge(&old, at, &[1]));
        let before = [0, 1].map(|copy| world.read_block(DISK, copy));
        assert_eq!(
            try_open(&world, 0).unwrap_err().to_string(),
            "the log on disk log is not opened: log record: bytes are in use that this build of \
             Stroop knows as reserved; a newer build wrote them; start the build that wrote it, or \
             a later one"
        );
        assert!([0, 1].map(|copy| world.read_block(DISK, copy)) == before);
        assert_eq!(open(&world, 1).0.missing(), None, "a consistency point holds them");
        world.write_block(DISK, block, &old);
    }
    assert_eq!(bodies(&open(&world, 0).1), [b"one", b"two"]);
}

#[test]
fn no_whole_header_is_told_as_it_is() {
    let (world, _log) = fresh(16);
    for copy in [0, 1] {
        world.flip_bit(DISK, copy, 32_000);
    }
    assert!(matches!(try_open(&world, 0), Err(LogError::Header { .. })));
    for copy in [0, 1] {
        world.write_block(DISK, copy, &Block::zeroed());
    }
    assert_eq!(try_open(&world, 0).unwrap_err(), LogError::NotALog { disk: DISK.into() });
    world.fail_block(DISK, 0);
    world.fail_block(DISK, 1);
    assert!(matches!(try_open(&world, 0), Err(LogError::Disk { .. })));
}

#[test]
fn small_disks_are_refused() {
    let world = SimulatedWorld::new(1);
    world.add_disk(DISK, 33);
    let result = world.wait(|done| Log::format(&disk(&world), IDENTITY, done));
    let small = LogError::TooSmall { disk: DISK.into(), size_blocks: 33, needed_blocks: 422 };
    assert_eq!(result, Err(small));
    // A header that promises more than the disk has.
    let header = LogHeader::new(IDENTITY.aggregate, IDENTITY.log, 17, LOG_NOTES_BLOCKS_MIN);
    world.write_block(DISK, 0, &header.to_block());
    assert!(matches!(try_open(&world, 0), Err(LogError::TooSmall { needed_blocks: 424, .. })));
}

/// Records that rot between others end the replay, and that is told. What was behind them is not
/// replayed later either, when new records fill the gap: the batches of before are of an earlier
/// incarnation.
#[test]
fn records_behind_damage_are_told_and_never_replayed() {
    for harm in [0, 1] {
        let (world, log) = fresh(16);
        for body in [b"a", b"b", b"c"] {
            log_durably(&world, &log, body);
        }
        let second = LOG_HEADER_BLOCKS + 1;
        if harm == 0 {
            world.flip_bit(DISK, second, 300);
        } else {
            // A write that the disk acknowledged and lost leaves what was there.
            world.write_block(DISK, second, &Block::zeroed());
        }
        let (log, records) = open(&world, 0);
        assert_eq!((bodies(&records), log.missing()), (vec![&b"a"[..]], Some(2)));
        log_durably(&world, &log, b"d");
        let (log, records) = open(&world, 0);
        assert_eq!((bodies(&records), log.missing()), (vec![&b"a"[..], b"d"], None));
        // The last one has nothing behind it: nobody can tell it from one that was torn.
        world.flip_bit(DISK, second, 300);
        let (log, records) = open(&world, 0);
        assert_eq!((bodies(&records), log.missing()), (vec![&b"a"[..]], Some(2)), "c is there");
    }
    let (world, log) = fresh(16);
    log_durably(&world, &log, b"a");
    log_durably(&world, &log, b"b");
    world.flip_bit(DISK, LOG_HEADER_BLOCKS, 300);
    let (log, records) = open(&world, 0);
    assert_eq!((bodies(&records), log.missing()), (vec![], Some(0)));
    assert_eq!(open(&world, 1).0.missing(), None, "a consistency point holds them");
}

#[test]
fn a_new_format_hides_the_old_log() {
    let (world, log) = fresh(16);
    log_durably(&world, &log, b"old");
    let new = LogIdentity { log: LogUuid([3; 16]), ..IDENTITY };
    let formatted = world.wait(|done| Log::format(&disk(&world), new, done));
    assert_eq!(formatted, Ok(()));
    let found = world.wait(|done| Log::open(&disk(&world), new, CpNumber(0), done));
    assert_eq!(found.unwrap().1, []);
}

#[test]
fn a_lost_half_is_not_skipped() {
    let (world, log) = fresh(16);
    log_durably(&world, &log, b"one");
    log_durably(&world, &log, b"two");
    log.switch_half(CpNumber(2)).unwrap();
    log_durably(&world, &log, b"three");
    // The second batch of the first half, then the first, too.
    for (block, first) in [(3, 2), (2, 1)] {
        world.flip_bit(DISK, block, 700);
        let missing = LogError::Missing { disk: DISK.into(), first, last: 2 };
        assert_eq!(try_open(&world, 0).unwrap_err(), missing);
        // When the consistency point has it all, it is not missed.
        assert_eq!(bodies(&open(&world, 1).1), [b"three"]);
    }
}

#[test]
fn a_batch_counts_only_in_its_place() {
    use std::mem::offset_of;
    let fields = [
        (offset_of!(LogBatch, log), 16),
        (offset_of!(LogBatch, incarnation), 8),
        (offset_of!(LogBatch, sequence), 8),
        (offset_of!(LogBatch, block), 8),
        (offset_of!(LogBatch, cp), 8),
        (offset_of!(LogBatch, other_cp), 8),
        (offset_of!(LogBatch, other_sequence), 8),
        (offset_of!(LogBatch, byte_count), 4),
        (offset_of!(LogBatch, record_count), 4),
    ];
    for (at, length) in fields {
        let (world, log) = fresh(16);
        log_durably(&world, &log, b"one");
        log_durably(&world, &log, b"two");
        let old = world.read_block(DISK, 3).unwrap();
        // A little more than it was, and still with the right checksum.
        let mut field = old[at..at + length].to_vec();
        field[0] += 1;
        world.write_block(DISK, 3, &forge(&old, at, &field));
        assert_eq!(bodies(&open(&world, 0).1), [b"one"], "field at {at}");
        world.write_block(DISK, 3, &forge(&old, at, &old[at..at + length]));
        assert_eq!(bodies(&open(&world, 0).1), [b"one", b"two"], "field at {at}");
    }
}

#[test]
fn bad_blocks_count_only_where_they_matter() {
    let (world, log) = fresh(64);
    log_durably(&world, &log, &[5; 9000]);
    log_durably(&world, &log, b"two");
    // Behind the end: 2 headers, 3 and 1 blocks, one that is looked at.
    world.fail_block(DISK, 2 + 3 + 1 + 1);
    assert_eq!(open(&world, 0).1.len(), 2);
    world.fail_block(DISK, 3);
    assert!(matches!(try_open(&world, 0), Err(LogError::Disk { .. })));
}

/// What to do to a block.
#[derive(Clone, Debug)]
enum Harm {
    Flip(usize),
    Zero,
    CopyFrom(u64),
    /// Overwrites bytes of a batch or header and makes its checksum right again.
    Forge(usize, Vec<u8>),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        (0..BLOCK_SIZE * 8).prop_map(Harm::Flip),
        Just(Harm::Zero),
        (0..34_u64).prop_map(Harm::CopyFrom),
        (8..120_usize, proptest::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, bytes)| Harm::Forge(at, bytes)),
    ]
}

fn forge(block: &Block, at: usize, bytes: &[u8]) -> Block {
    use zerocopy::{FromBytes, IntoBytes};
    let mut forged = block.clone();
    forged[at..at + bytes.len()].copy_from_slice(bytes);
    if let Ok(header) = LogHeader::read_from_bytes(forged.bytes())
        && LogHeader::is_claimed_by(&forged)
    {
        return header.to_block();
    }
    let (mut batch, _) = LogBatch::read_from_prefix(forged.bytes()).unwrap();
    let end = batch.byte_count.get() as usize;
    if batch.magic.get() == LOG_BATCH_MAGIC && (80..=BLOCK_SIZE).contains(&end) {
        batch.checksum = batch.computed_checksum([&forged[80..end]]).into();
        forged[..80].copy_from_slice(batch.as_bytes());
    }
    forged
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// No bytes whatever panic, neither at the opening nor later.
    #[test]
    fn any_bytes_open_or_are_refused(
        harms in proptest::collection::vec((0..34_u64, harm()), 1..6),
        committed in 0..4_u64,
    ) {
        let (world, log) = fresh(16);
        for cp in 1..4_u8 {
            for number in 0..4 {
                log_durably(&world, &log, &vec![number; usize::from(number) * 700]);
            }
            log.switch_half(CpNumber(u64::from(cp) + 1)).unwrap();
            log.retire(CpNumber(u64::from(cp) - 1));
            if cp < 3 {
                log.retire(CpNumber(u64::from(cp)));
            }
        }
        log_durably(&world, &log, b"last");
        for (block, harm) in harms {
            let old = world.read_block(DISK, block).unwrap();
            match harm {
                Harm::Flip(bit) => world.flip_bit(DISK, block, bit),
                Harm::Zero => world.write_block(DISK, block, &Block::zeroed()),
                Harm::CopyFrom(from) => {
                    let content = world.read_block(DISK, from).unwrap();
                    world.write_block(DISK, block, &content);
                }
                Harm::Forge(at, bytes) => {
                    world.write_block(DISK, block, &forge(&old, at, &bytes));
                }
            }
        }
        if let Ok((log, records)) = try_open(&world, committed) {
            for record in &records {
                prop_assert!(record.cp > CpNumber(committed) && record.cp <= log.active_cp());
            }
            if log.free_bytes() > 10 {
                log_durably(&world, &log, b"more");
                let (_, again) = open(&world, committed);
                prop_assert_eq!(again.len(), records.len() + 1);
                prop_assert_eq!(&again[..records.len()], &records[..]);
            }
        }
    }
}

//! Arbitrary arguments for every procedure: each call gets exactly one answer of a kind that the
//! protocol knows, and the file system stays whole.

#![allow(clippy::unwrap_used, reason = "a test; only #[test] functions are excepted by themselves")]

mod client;

use client::{MOUNT, NFS, start_mounted};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Item {
    Root,
    File,
    Directory,
    Name(Vec<u8>),
    Word(u32),
    Bytes(Vec<u8>),
}

fn item() -> impl Strategy<Value = Item> {
    prop_oneof![
        2 => Just(Item::Root),
        2 => Just(Item::File),
        2 => Just(Item::Directory),
        4 => prop::collection::vec(prop_oneof![b'a'..b'd', b'.'..b'0'], 1..3).prop_map(Item::Name),
        8 => (0..8_u32).prop_map(Item::Word),
        1 => any::<u32>().prop_map(Item::Word),
        1 => prop::collection::vec(any::<u8>(), 0..30).prop_map(Item::Bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_call_is_answered(
        calls in prop::collection::vec(
            (any::<bool>(), 0..24_u32, prop::collection::vec(item(), 0..9)), 1..200),
    ) {
        let (setup, mut client, root) = start_mounted();
        let file = client.create(&root, b"a").unwrap();
        let directory = client.make_directory(&root, b"b").unwrap();
        // All calls are in flight together, so the answers' order is not looked at.
        let mut pipeline = Vec::new();
        let mut xids = Vec::new();
        for (mount, procedure, items) in &calls {
            // RFC 1813: UMNT and UMNTALL have no results; the rest of MOUNT has six procedures.
            let program = if *mount && *procedure < 7 { MOUNT } else { NFS };
            pipeline.extend(client.encode(program, *procedure, |w| {
                // A handle in front, so that most calls get past it.
                if program == NFS && !matches!(items.first(), Some(Item::Word(7))) {
                    w.opaque(&root);
                }
                for item in items {
                    match item {
                        Item::Root => w.opaque(&root),
                        Item::File => w.opaque(&file),
                        Item::Directory => w.opaque(&directory),
                        Item::Name(name) => w.opaque(name),
                        Item::Word(word) => w.u32(*word),
                        Item::Bytes(bytes) => w.opaque(bytes),
                    }
                }
            }));
            xids.push(client.xid);
        }
        client.send(&pipeline);
        let mut answered: Vec<u32> = calls.iter().map(|_| {
            let (xid, status, results) = client.receive();
            // Success, no such procedure, garbage arguments: never a system error.
            assert!(matches!(status, 0 | 3 | 4), "accept status {status}");
            assert!(status == 0 || results.0.is_empty());
            xid
        }).collect();
        answered.sort_unstable();
        prop_assert_eq!(answered, xids);
        setup.service.verify();
    }
}

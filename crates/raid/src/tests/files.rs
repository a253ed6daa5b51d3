//! The store on real files, with real threads: many writers at a time, both I/O engines.

use super::model::{owner_of, proof_of};
use crate::*;
use ondisk::label::RaidKind::Raid4;
use platform::completion::gather;
use platform::linux::{DiskOpener, IoEngineKind, SystemEntropy, create_file_disk};
use platform::sync::{Condvar, Mutex};
use platform::{Disk, DiskError, DiskOpener as _, thread};
use std::sync::Arc;
use units::{Block, BlockRef, Pvbn, Timestamp};

fn wait<T: Send + 'static>(call: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> T {
    let shared = Arc::new((Mutex::new(None), Condvar::new()));
    let sender = Arc::clone(&shared);
    call(Box::new(move |value| {
        *sender.0.lock() = Some(value);
        sender.1.notify_all();
    }));
    let mut value = shared.0.lock();
    loop {
        match value.take() {
            Some(value) => return value,
            None => shared.1.wait(&mut value),
        }
    }
}

fn content(pvbn: Pvbn) -> BlockRef {
    let mut block = Block::from_prefix(&pvbn.get().to_le_bytes());
    block[4000..4008].copy_from_slice(&(pvbn.get() * 77).to_le_bytes());
    Arc::new(block)
}

/// Each writer has a data disk, syncs and reads back while the others write.
fn write_and_read(store: &Store, writer: u64, rounds: u64) {
    let per_disk = store.geometry().group(0).blocks_per_disk();
    for round in 0..rounds {
        let pvbns: Vec<Pvbn> =
            (0..100).map(|n| Pvbn(writer * per_disk + 1 + round * 100 + n)).collect();
        for pvbn in &pvbns {
            let (block, owner) = (content(*pvbn), owner_of(*pvbn));
            store.write(BlockWrite::new(*pvbn, block, owner));
        }
        assert_eq!(wait(|done| store.sync(done)), Ok(()));
        let results: Vec<Result<BlockRef, ReadFailure>> = wait(|done| {
            for (pvbn, part) in pvbns.iter().zip(gather(pvbns.len(), done)) {
                let proof = proof_of(*pvbn, &content(*pvbn), pvbn.get() % 2 == 0);
                store.read(BlockRead { pvbn: *pvbn, proof }, part);
            }
        });
        for (pvbn, found) in pvbns.iter().zip(results) {
            assert!(found == Ok(content(*pvbn)), "{pvbn}");
        }
    }
}

/// Opens a disk that is there. The I/O thread may still be letting go of the store that was
/// dropped.
fn open_when_free(opener: &DiskOpener, path: &str) -> Option<Arc<dyn Disk>> {
    loop {
        match opener.open(path) {
            Err(DiskError::InUse { .. }) => std::thread::yield_now(),
            result => return result.ok(),
        }
    }
}

#[test]
fn writers_do_not_disturb_one_another() {
    for kind in [IoEngineKind::Automatic, IoEngineKind::Threads] {
        let opener = DiskOpener::new(kind).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<String> = (0..4)
            .map(|n| folder.path().join(format!("disk{n}")).to_str().unwrap().to_owned())
            .collect();
        paths.iter().for_each(|path| create_file_disk(path, 16 << 20).unwrap());
        let open = || -> Vec<Arc<dyn Disk>> {
            paths.iter().filter_map(|path| open_when_free(&opener, path)).collect()
        };
        let request = CreateRequest {
            name: "files".to_owned(),
            groups: vec![GroupRequest { kind: Raid4, disks: open() }],
            created: Timestamp(0),
            force: false,
            media: None,
            log_regions: 0,
        };
        let store =
            wait(|done| create(request, &SystemEntropy, Arc::new(NoPartialParityLog), done))
                .unwrap();
        let store = Arc::new(store);
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let store = Arc::clone(&store);
                thread::spawn("writer", move || write_and_read(&store, writer, 8)).unwrap()
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(store.status().counters.repaired_blocks, 0);
        drop(store);
        // Without one of the disks, everything is still there.
        std::fs::remove_file(&paths[1]).unwrap();
        let store = wait(|done| assemble(open(), Arc::new(NoPartialParityLog), Timestamp(0), done))
            .unwrap();
        assert!(store.status().is_degraded());
        let per_disk = store.geometry().group(0).blocks_per_disk();
        for number in (0..3).flat_map(|disk| (1..801).step_by(7).map(move |n| disk * per_disk + n))
        {
            let (pvbn, block) = (Pvbn(number), content(Pvbn(number)));
            let read = BlockRead { pvbn, proof: proof_of(pvbn, &block, false) };
            assert!(wait(|done| store.read(read, done)) == Ok(block), "{pvbn}");
        }
    }
}

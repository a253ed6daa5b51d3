//! Prints what directory operations cost: `cargo run --release -p cowfs --example directory_cost
//! [entries]`.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::sync::Arc;
use std::time::Instant;

use cowfs::directory::{
    DirectoryBlocks, DirectoryError, Entry, Member, create, insert, list, lookup, remove, verify,
};
use units::{Block, BlockRef, Fbn, Generation, InodeNumber};

#[derive(Default)]
struct Blocks(Vec<BlockRef>);

impl DirectoryBlocks for Blocks {
    type Wait = ();

    fn size_blocks(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&mut self, fbn: Fbn) -> Result<BlockRef, DirectoryError<()>> {
        Ok(Arc::clone(&self.0[fbn.get() as usize]))
    }

    fn write(&mut self, fbn: Fbn) -> Result<&mut Block, DirectoryError<()>> {
        if fbn.get() == self.size_blocks() {
            self.0.push(Arc::new(Block::zeroed()));
        }
        Ok(Arc::make_mut(&mut self.0[fbn.get() as usize]))
    }

    fn truncate(&mut self, size_blocks: u64) {
        self.0.truncate(size_blocks as usize);
    }
}

fn timed(what: &str, count: u64, action: impl FnOnce() -> Result<(), DirectoryError<()>>) {
    let start = Instant::now();
    if let Err(error) = action() {
        panic!("{what}: {error}");
    }
    let nanoseconds = start.elapsed().as_nanos() as u64 / count.max(1);
    println!("{what:8} {nanoseconds:6} ns per entry");
}

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000_u64);
    let member = Member::of_this_volume(InodeNumber(64), Generation(1));
    let entry = Entry { member, kind: 1 };
    // An odd multiplier visits every name, in an order that is no order.
    let name = |index: u64| format!("file-{:010}", index.wrapping_mul(0x9e37_79b1) % (1 << 32));
    let mut blocks = Blocks::default();
    let file = &mut blocks;
    timed("create", 1, || create(file, member, member, [1, 2]));
    timed("insert", count, || {
        (0..count).try_for_each(|index| insert(file, name(index).as_bytes(), entry).map(drop))
    });
    timed("lookup", count, || {
        (0..count).try_for_each(|index| {
            assert!(lookup(file, name(index).as_bytes())?.is_some());
            Ok(())
        })
    });
    timed("list", count, || {
        let mut cookie = 0;
        loop {
            let page = list(file, cookie, 1000)?;
            cookie = page.entries.last().map_or(cookie, |listed| listed.cookie);
            if page.end {
                return Ok(());
            }
        }
    });
    match verify(file) {
        Ok(summary) => println!("{summary:?}"),
        Err(error) => panic!("verify: {error}"),
    }
    timed("remove", count, || {
        (0..count).try_for_each(|index| {
            assert!(remove(file, name(index).as_bytes())?.is_some());
            Ok(())
        })
    });
    println!("{} block left", file.size_blocks());
}

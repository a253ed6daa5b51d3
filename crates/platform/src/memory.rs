//! Hints to the operating system about memory.
//!
//! Invariant: a hint changes no contents and no behaviour, only time; it may be ignored.

use std::mem::MaybeUninit;

/// Less than this is left as it is: a large page under a small table is mostly waste.
const MEMORY_BYTES_MIN: usize = 512 << 10;

/// Asks for large pages under memory that is about to be filled and then met at random: with small
/// ones nearly every access would walk the processor's page tables.
pub fn prefer_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    const PAGE_BYTES: usize = 4096;
    let bytes = memory.as_mut_ptr_range();
    let (start, end) = (bytes.start.addr(), bytes.end.addr());
    if end - start < MEMORY_BYTES_MIN {
        return;
    }
    let (first, last) = (start / PAGE_BYTES * PAGE_BYTES, end.div_ceil(PAGE_BYTES) * PAGE_BYTES);
    // SAFETY: advice of this kind changes no contents, whoever owns the rest of the outer pages.
    let _ignored = unsafe {
        let pointer = bytes.start.with_addr(first).cast();
        libc::madvise(pointer, last - first, libc::MADV_HUGEPAGE)
    };
}

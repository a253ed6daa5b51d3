//! Limits of the system's allocator: how much freed memory it may keep.
//!
//! By default glibc makes up to eight arenas for each processor, each of which keeps what was freed
//! in it, and learns from large buffers to keep those too. A process whose memory has a cap says
//! how much it can spare.
//!
//! Fails: never. An allocator other than glibc's is left as it is.

/// What the allocator may keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapLimits {
    /// Arenas; threads share them.
    pub arenas_max: usize,
    /// From this size on an allocation is a mapping of its own, which goes back when it is freed.
    pub mapped_from_bytes: usize,
    /// Freed memory at the end of an arena that is not given back.
    pub kept_bytes: usize,
}

/// Sets the limits of this process.
pub fn limit_heap(limits: HeapLimits) {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_ARENA_MAX, limits.arenas_max),
        (libc::M_MMAP_THRESHOLD, limits.mapped_from_bytes),
        (libc::M_TRIM_THRESHOLD, limits.kept_bytes),
    ] {
        let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
        // SAFETY: sets a number; glibc locks what it must.
        unsafe { libc::mallopt(parameter, value) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _limits_of_another_allocator = limits;
}

//! Target `nfs_call`: see `fuzzing::nfs::nfs_call`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::nfs::nfs_call(bytes));

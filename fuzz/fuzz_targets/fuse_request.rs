//! Target `fuse_request`: see `fuzzing::fuse::fuse_request`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::fuse::fuse_request(bytes));

//! Target `engine_operations`: see `fuzzing::engine::engine_operations`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::engine::engine_operations(bytes));

//! Target `config`: see `fuzzing::config::config`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::config::config(bytes));

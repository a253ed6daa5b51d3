//! Target `nlm_call`: see `fuzzing::nlm::nlm_call`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::nlm::nlm_call(bytes));

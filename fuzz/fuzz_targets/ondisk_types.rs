//! Target `ondisk_types`: see `fuzzing::formats::ondisk_types`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::formats::ondisk_types(bytes));

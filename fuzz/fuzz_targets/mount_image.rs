//! Target `mount_image`: see `fuzzing::image::mount_image`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::image::mount_image(bytes));

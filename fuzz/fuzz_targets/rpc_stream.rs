//! Target `rpc_stream`: see `fuzzing::rpc::rpc_stream`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::rpc::rpc_stream(bytes));

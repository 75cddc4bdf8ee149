//! Messages to a waiting client: `rlock-core/src/store/redis/properties.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|message: &[u8]| rlock_core::__fuzzing::message(message));

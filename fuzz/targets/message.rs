//! Fuzzes the messages to a waiting client.
#![no_main]

libfuzzer_sys::fuzz_target!(|message: &[u8]| rlock_core::__fuzzing::message(message));

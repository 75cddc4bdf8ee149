//! Fuzzes a server's replies and push messages, as bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|reply: &[u8]| rlock_core::__fuzzing::reply(reply));

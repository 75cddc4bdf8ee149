//! Answers and pushes of a server, as they come by the wire.
#![no_main]

libfuzzer_sys::fuzz_target!(|reply: &[u8]| rlock_core::__fuzzing::reply(reply));

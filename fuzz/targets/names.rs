//! What two keys are called on the server.
#![no_main]

libfuzzer_sys::fuzz_target!(|keys: (&str, &str)| rlock_core::__fuzzing::names(keys.0, keys.1));

//! Fuzzes the names of keys on the server: two keys never share one.
#![no_main]

libfuzzer_sys::fuzz_target!(|keys: (&str, &str)| rlock_core::__fuzzing::names(keys.0, keys.1));

//! Fuzzes the parser of store URLs.
#![no_main]

libfuzzer_sys::fuzz_target!(|url: &str| rlock_core::__fuzzing::url(url));

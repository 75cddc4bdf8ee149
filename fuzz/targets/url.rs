//! URLs of servers.
#![no_main]

libfuzzer_sys::fuzz_target!(|url: &str| rlock_core::__fuzzing::url(url));

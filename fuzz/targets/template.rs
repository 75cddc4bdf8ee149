//! Fuzzes the parser of key templates.
#![no_main]

// A crate of macros has nothing that others could call, so its module is taken in here.
#[path = "../../rlock-macros/src"]
mod macros {
    #[allow(dead_code, unused_imports, reason = "the attribute needs more of it")]
    pub(crate) mod template;
}

libfuzzer_sys::fuzz_target!(|text: &str| macros::template::properties::template(text));

//! Fuzzes values in key templates: different ones give different keys.
#![no_main]

// A crate of macros has nothing that others could call, so its module is taken in here.
#[path = "../../rlock-macros/src"]
mod macros {
    #[allow(dead_code, unused_imports, reason = "the attribute needs more of it")]
    pub(crate) mod template;
}

libfuzzer_sys::fuzz_target!(|input: (&str, [&str; 3], [&str; 3])| {
    let (template, one, other) = input;
    macros::template::properties::values(template, one, other, |value| {
        rlock_core::escape(value).to_string()
    });
});

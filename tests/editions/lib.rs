//! `temporaries.rs` has the tests of each edition.

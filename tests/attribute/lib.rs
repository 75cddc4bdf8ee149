//! Cases for the attribute: `ui` has what it rejects (`tests/ui.rs`), and `shapes` functions with it and without.
//! `shapes` has functions with it and without.

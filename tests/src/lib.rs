//! The programs that check the library for longer than a test does: recorded histories, soaks, and known bugs that are put back.

#![allow(clippy::missing_panics_doc)]

pub mod histories;
pub mod mutants;
pub mod soak;

/// The code in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The code in the guide to tests of services compiles and runs, too.
#[cfg(doctest)]
#[doc = include_str!("../../docs/testing.md")]
struct Testing;

/// So does the code in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide.md")]
struct Guide;

/// So does the code in the page on migrating.
#[cfg(doctest)]
#[doc = include_str!("../../docs/migrating.md")]
struct Migrating;

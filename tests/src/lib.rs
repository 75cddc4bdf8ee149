//! Programs that check the library for longer than a test: recorded histories, soaks, and mutants.

#![allow(clippy::missing_panics_doc)]

pub mod histories;
pub mod mutants;
pub mod soak;

/// Compiles and runs the code in the documentation of the attribute.
#[cfg(doctest)]
#[doc = include_str!("../../rlock-macros/docs/attribute.md")]
struct Attribute;

/// Compiles and runs the code in the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// Compiles and runs the code in the guide to testing services.
#[cfg(doctest)]
#[doc = include_str!("../../docs/testing.md")]
struct Testing;

/// Compiles and runs the code in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide.md")]
struct Guide;

/// Compiles and runs the code in the page on migrating.
#[cfg(doctest)]
#[doc = include_str!("../../docs/migrating.md")]
struct Migrating;

/// Compiles and runs the code in the page on leaders.
#[cfg(doctest)]
#[doc = include_str!("../../docs/leaders.md")]
struct Leaders;

/// Compiles and runs the code in the page on scheduled jobs.
#[cfg(doctest)]
#[doc = include_str!("../../docs/jobs.md")]
struct Jobs;

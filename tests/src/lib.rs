//! Programs that check the library for longer than a test: recorded histories, soaks, and mutants.

#![allow(clippy::missing_panics_doc)]

pub mod histories;
pub mod mutants;
pub mod soak;

/// Compiles and runs the code in the documentation of the attribute.
#[cfg(doctest)]
#[doc = include_str!("../../docs/attribute.md")]
struct Attribute;

/// Compiles and runs the code in the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// Compiles the code in the first steps.
#[cfg(doctest)]
#[doc = include_str!("../../docs/getting-started.md")]
struct GettingStarted;

/// Compiles and runs the code in the recipes.
#[cfg(doctest)]
#[doc = include_str!("../../docs/recipes.md")]
struct Recipes;

/// Compiles and runs the code in the page on tests of services.
#[cfg(doctest)]
#[doc = include_str!("../../docs/testing.md")]
struct Testing;

/// Compiles and runs the code in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide.md")]
struct Guide;

/// Compiles and runs the code in the page for users of other libraries.
#[cfg(doctest)]
#[doc = include_str!("../../docs/coming-from.md")]
struct ComingFrom;

/// Compiles the code in the page on jobs and leaders.
#[cfg(doctest)]
#[doc = include_str!("../../docs/jobs-and-leaders.md")]
struct JobsAndLeaders;

/// Compiles the code in the page for operators.
#[cfg(doctest)]
#[doc = include_str!("../../docs/operations.md")]
struct Operations;

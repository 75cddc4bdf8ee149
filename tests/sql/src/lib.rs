//! Fences in real databases: servers, a process that writes, and rounds in which it is paused.

#![allow(clippy::missing_errors_doc, clippy::missing_panics_doc)]

pub mod drivers;
pub mod rounds;
mod servers;
pub mod session;

pub use servers::Server;

/// Compiles the code in the page on database transactions.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/transactions.md")]
struct Transactions;

//! Every signature that a service has, compiled as strictly as can be and run under its lock.
#![deny(warnings, clippy::all, clippy::pedantic)]

// The core by another name, as a renamed dependency has it.
extern crate rlock_core as renamed;

#[path = "signatures/async_traits.rs"]
mod async_traits;
#[path = "signatures/bodies.rs"]
mod bodies;
#[path = "signatures/drops.rs"]
mod drops;
#[path = "signatures/formats.rs"]
mod formats;
#[path = "signatures/futures.rs"]
mod futures;
#[path = "signatures/generics.rs"]
mod generics;
#[path = "signatures/held.rs"]
mod held;
#[path = "signatures/injectivity.rs"]
mod injectivity;
#[path = "signatures/lints.rs"]
mod lints;
#[path = "signatures/names.rs"]
mod names;
#[path = "signatures/parameters.rs"]
mod parameters;
#[path = "signatures/receivers.rs"]
mod receivers;
#[path = "signatures/results.rs"]
mod results;
#[path = "signatures/stacked.rs"]
mod stacked;
#[path = "signatures/synchronous.rs"]
mod synchronous;
#[path = "signatures/tasks.rs"]
mod tasks;

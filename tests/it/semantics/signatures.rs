//! All kinds of signatures, compiled with strict lints and run under a lock.
#![deny(warnings, clippy::all, clippy::pedantic)]

mod async_traits;
mod bodies;
mod drops;
mod expressions;
mod formats;
mod futures;
mod generics;
mod held;
mod holders;
mod injectivity;
mod lints;
mod names;
mod parameters;
mod receivers;
mod results;
mod stacked;
mod synchronous;
mod tasks;

//! Every signature that a service has, compiled as strictly as can be and run under its lock.
#![deny(warnings, clippy::all, clippy::pedantic)]

mod async_traits;
mod bodies;
mod drops;
mod formats;
mod futures;
mod generics;
mod held;
mod injectivity;
mod lints;
mod names;
mod parameters;
mod receivers;
mod results;
mod stacked;
mod synchronous;
mod tasks;

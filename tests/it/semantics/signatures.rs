//! Annotated functions of all kinds, compiled with strict lints, which run under their lock. `tests/attribute/shapes`
//! compares many more functions with and without the attribute.
#![deny(warnings, clippy::all, clippy::pedantic)]

mod drops;
mod functions;
mod futures;
mod held;
mod holders;
mod synchronous;

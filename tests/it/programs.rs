//! The lists and programs that the tests of this repository rely on.

mod catalogue;
mod histories;
mod mutants;

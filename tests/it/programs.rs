//! The lists and programs that other tests rely on.

mod catalogue;
mod histories;
mod mutants;

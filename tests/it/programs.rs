//! The lists and programs that other tests rely on.

mod catalogue;
mod gate;
mod histories;
mod mutants;

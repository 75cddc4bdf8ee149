//! The lists that tests are guided by: failures, mutants and the histories.

mod catalogue;
mod histories;
mod mutants;

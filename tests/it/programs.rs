//! The lists that tests are guided by: failures, mutants, the gate and the histories.

mod catalogue;
mod gate;
mod histories;
mod mutants;

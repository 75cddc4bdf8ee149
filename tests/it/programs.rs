//! What tests are guided by: the lists of failures and mutants, the histories, and the witness of holds.

mod catalogue;
mod histories;
mod mutants;
mod witness;

//! Decides for a quorum: the outcome of a request, from the replies of its members.

mod decisions;
#[cfg(test)]
mod tests;
mod verdict;

pub use self::{decisions::*, verdict::*};

//! Decides for a quorum: the outcome of a request, from the replies of its members.

mod decisions;
mod verdict;

pub use self::{decisions::*, verdict::*};

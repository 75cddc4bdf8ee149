//! The decisions of a quorum of servers: the outcome of a request from the replies of its members.

mod decisions;
mod verdict;

pub use self::{decisions::*, verdict::*};

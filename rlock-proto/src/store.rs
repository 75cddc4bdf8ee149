//! The messages to a store, and from it.

mod hash_slot;
mod notification;
mod reply;
mod request;

pub use self::{hash_slot::HashSlot, notification::*, reply::*, request::*};

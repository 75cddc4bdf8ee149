//! The messages to a store, and from it.

mod hash_slot;
mod limits;
mod notification;
mod reply;
mod request;

pub use self::{hash_slot::HashSlot, limits::*, notification::*, reply::*, request::*};

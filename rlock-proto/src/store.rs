//! The messages between clients and stores: requests, replies and notifications.

mod hash_slot;
mod limits;
mod notification;
mod reply;
mod request;

pub use self::{hash_slot::HashSlot, limits::*, notification::*, reply::*, request::*};

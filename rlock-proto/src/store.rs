//! The messages between clients and stores: requests, replies and notifications.

mod constants;
mod hash_slot;
mod notification;
mod reply;
mod request;

pub use self::{constants::*, hash_slot::HashSlot, notification::*, reply::*, request::*};

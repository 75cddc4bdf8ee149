//! The messages to a store, and from it.

mod notification;
mod reply;
mod request;

pub use self::{notification::*, reply::*, request::*};

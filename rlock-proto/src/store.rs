//! The messages to a store, and from it.

mod event;
mod reply;
mod request;

pub use self::{event::*, reply::*, request::*};

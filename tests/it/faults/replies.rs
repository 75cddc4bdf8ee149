//! Replies that are lost or late.

mod lost;
mod simultaneous;

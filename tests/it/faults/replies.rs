//! Lost and late replies.

mod lost;
mod simultaneous;

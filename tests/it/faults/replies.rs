//! Replies that are lost or late, so that a request is in doubt.

mod batches;
mod lost;
mod several_keys;

//! Lost or late replies, which leave a request in doubt.

mod batches;
mod lost;
mod several_keys;

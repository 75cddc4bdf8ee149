//! Lost or late replies, which leave a request in doubt.

mod lost;
mod several_keys;
mod simultaneous;

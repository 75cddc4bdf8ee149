//! Permissions, TLS, secrets, and hostile input.

pub(crate) mod certificates;
mod credentials;
mod forgery;
mod logs;
mod permissions;
mod tls;

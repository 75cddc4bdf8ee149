//! Permissions, TLS, secrets, and hostile input.

mod certificates;
mod credentials;
mod forgery;
mod hostile_keys;
mod logs;
mod permissions;
mod tls;

//! Permissions, TLS, secrets, and hostile input.

mod certificates;
mod credentials;
mod forgery;
mod logs;
mod permissions;
mod tls;

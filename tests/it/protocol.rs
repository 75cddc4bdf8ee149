//! The scripts on the server.

mod differential;
mod redisson;

//! The scripts on the server.

mod differential;

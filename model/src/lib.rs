//! The locking protocol as a model that is checked exhaustively, and the comparison that holds it
//! together with the stores.
//!
//! [`server`] is what the Lua scripts do. [`protocol`] is that server with clients, a network and time,
//! explored by `stateright`. [`differential`] runs random operations on the same server and on a real
//! store. [`worlds`] are the configurations that are explored.

pub mod check;
pub mod differential;
pub mod protocol;
pub mod server;
pub mod words;
pub mod worlds;

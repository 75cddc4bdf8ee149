//! The locking protocol as a model that is explored exhaustively, and its comparison with the
//! stores.
//!
//! [`server`] models the Lua scripts. [`protocol`] combines that server with clients, a network and
//! time, and `stateright` explores it. [`differential`] runs random operations on the same server
//! and on a real store. [`worlds`] lists the explored configurations.

pub mod check;
pub mod differential;
pub mod protocol;
pub mod server;
pub mod words;
pub mod worlds;

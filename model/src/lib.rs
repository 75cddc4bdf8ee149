//! A model of the locking protocol that is explored exhaustively, and its comparison with the Lua scripts.
//!
//! The clients run [`rlock_proto::machine`], and the [`server`] runs [`rlock_proto::embedded`], as they ship. [`protocol`] combines
//! both with a network and time, and `stateright` explores it. [`differential`] runs random operations on the same server and on a
//! real one. [`worlds`] lists the explored configurations. [`requests`] is what the server has in common with the simulator's.

pub mod check;
pub mod differential;
pub mod protocol;
pub mod requests;
pub mod server;
pub mod worlds;

use rlock_proto::{embedded, few, key, lease, lost, machine, mode, options, owner, store, wait};

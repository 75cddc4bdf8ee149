//! The rules of the embedded store as servers run them, for the simulator and for the comparison with the Lua scripts.
//!
//! [`requests`] executes the requests of clients, at the only server or at a member of a quorum. The program `simulate` runs such
//! servers with the machine of a client. [`differential`] compares a [`server`] with a real one by random operations. [`witness`] has
//! the rules by which the simulator, recorded histories and the tests of real clients judge holds.

pub mod differential;
pub mod requests;
pub mod server;
pub mod witness;

use rlock_proto::{embedded, key, lease, machine, mode, owner, store};

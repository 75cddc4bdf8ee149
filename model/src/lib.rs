//! The locking protocol as a model that is explored exhaustively, and its comparison with the stores.
//!
//! The clients run `rlock-core/src/engine/machine`, the sources that ship. [`server`] models the Lua
//! scripts. [`protocol`] combines both with a network and time, and `stateright` explores it. [`differential`] runs random
//! operations on the same server and on a real store. [`worlds`] lists the explored configurations.

pub mod check;
pub mod differential;
pub mod protocol;
pub mod server;
mod store;
pub mod words;
pub mod worlds;

use self::product::{
    error, escape_control, few, info, key, lease, mode, observe, options, owner, wait,
};

#[expect(
    dead_code,
    unreachable_pub,
    unused_imports,
    unused_macros,
    reason = "the model uses a part of them"
)]
#[path = "../../rlock-core/src"]
mod product {
    pub(crate) mod error;
    pub(crate) mod escape_control;
    pub(crate) mod few;
    pub(crate) mod info;
    pub(crate) mod key;
    pub(crate) mod lease;
    pub(crate) mod mode;
    pub(crate) mod observe;
    pub(crate) mod options;
    pub(crate) mod owner;
    pub(crate) mod wait;

    pub(crate) mod engine {
        pub(crate) mod machine;
    }
}

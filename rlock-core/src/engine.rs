//! The layer between calls and the store. Calls use ownerships of keys one after another; the background renews and
//! releases them.

pub(crate) mod acquire;
pub(crate) mod ask;
pub(crate) mod call_chain;
pub(crate) mod core;
pub(crate) mod driver;
pub(crate) mod entry;
pub(crate) mod holders;
pub(crate) mod messages;
pub(crate) mod ownership;
pub(crate) mod queries;
pub(crate) mod release;
pub(crate) mod thread;
pub(crate) mod watchdog;

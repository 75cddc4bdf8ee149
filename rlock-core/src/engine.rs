//! Connects the machine to calls and the store: the machine decides, and the shell, the calls and the background act.

pub(crate) mod acquire;
pub(crate) mod announcements;
pub(crate) mod background;
pub(crate) mod call;
pub(crate) mod call_chain;
pub(crate) mod core;
pub(crate) mod driver;
pub(crate) mod entries;
pub(crate) mod entry;
mod extension;
pub(crate) mod hold_record;
pub(crate) mod holders;
pub(crate) mod messages;
pub(crate) mod queries;
pub(crate) mod shell;
pub(crate) mod thread;
mod unread;

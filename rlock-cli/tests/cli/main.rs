//! The command `rlock` as its users see it: real processes, real servers.

mod common;

mod cron;
mod environment;
mod holder;
mod loss;
mod output;
mod processes;
mod signals;
mod statuses;
mod stores;
mod terminal;
mod text;
mod wait;

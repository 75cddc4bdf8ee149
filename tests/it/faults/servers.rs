//! Servers that restart, refuse, run out of memory or hold foreign data.

mod clock_jumps;
mod foreign_data;
mod memory;
mod modes;
mod outages;
mod postgres;
mod probes;
mod refusals;
mod replica;
mod starting;
mod states;

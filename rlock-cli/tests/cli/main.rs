//! The command `rlock` from the outside: real processes and real servers.

mod common;

mod cron;
mod doctor;
mod elect;
mod environment;
mod extend;
mod holders;
mod hostile;
mod inspect;
mod loss;
mod ls;
mod modes;
mod once;
mod output;
mod postgres;
mod processes;
mod recipes;
mod release;
mod signals;
mod statuses;
mod stores;
mod terminal;
mod text;
mod timing;
mod top;
mod wait;
mod waiting;

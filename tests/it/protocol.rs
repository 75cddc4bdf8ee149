//! The scripts on a real server: their effects on keys, and what other software may write there.

mod differential;
mod postgres;
mod redisson;

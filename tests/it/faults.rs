//! Locks under faults.

mod clients;
mod combined;
mod network;
mod replies;
mod servers;

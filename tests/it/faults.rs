//! Locks under faults of clients, networks and servers.

mod clients;
mod combined;
mod network;
mod replies;
mod servers;

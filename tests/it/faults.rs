//! What becomes of locks when something fails.

mod clients;
mod combined;
mod network;
mod replies;
mod servers;

//! Ports that stay free.

use std::net::{Ipv4Addr, TcpListener};

/// Listens on a loopback port of its own.
///
/// It lies below the range from which systems number outgoing connections. So no client takes the
/// port while a server is down between kill and restart, and a client that dials a dead port is not
/// connected to itself.
pub(crate) fn listen() -> TcpListener {
    loop {
        let port = fastrand::u16(10_000..32_000);
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener;
        }
    }
}

/// The number of the port that a listener of this process has.
pub(crate) fn number(listener: &TcpListener) -> u16 {
    listener
        .local_addr()
        .expect("a listener has an address")
        .port()
}

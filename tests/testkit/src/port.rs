//! Ports that stay free.

use std::net::{Ipv4Addr, TcpListener};

/// Listens on a loopback port of its own.
///
/// It lies below the range from which systems number outgoing connections. So no client takes the
/// port while a server is down between kill and restart, and a client that dials a dead port is not
/// connected to itself.
#[must_use]
pub fn listen() -> TcpListener {
    loop {
        let port = fastrand::u16(10_000..32_000);
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener;
        }
    }
}

/// The number of the port that a listener of this process has.
#[must_use]
pub fn number(listener: &TcpListener) -> u16 {
    listener
        .local_addr()
        .expect("a listener has an address")
        .port()
}

/// A free port for a node of a cluster, which listens to the others at the port 10,000 further.
#[must_use]
pub fn of_node() -> u16 {
    loop {
        let port = fastrand::u16(10_000..22_000);
        let are_free = [port, port + 10_000]
            .map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
        if are_free == [true, true] {
            return port;
        }
    }
}

//! Reserves ports that stay free until a server of a test listens there, and while it is killed.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    sync::{Mutex, PoisonError},
};

/// Listens on a free loopback port that this process has not used before, because tests find the log lines of their
/// server by its port.
///
/// The port lies below the range of outgoing connections. So no client gets the port between a kill
/// and a restart, and a client that dials a dead port does not reach itself.
#[must_use]
pub fn listen() -> TcpListener {
    loop {
        let port = fastrand::u16(10_000..32_000);
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            && claim(port)
        {
            return listener;
        }
    }
}

/// Reserves a port against other test processes, by the UDP port of this number, until the result is dropped.
pub(crate) fn reserve(port: u16) -> Option<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

/// Claims a port for this process. Returns false if it has used the port before, or another process has reserved it.
fn claim(port: u16) -> bool {
    static USED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    reserve(port).is_some() && used.insert(port)
}

/// Returns the port of a listener of this process.
#[must_use]
pub fn number(listener: &TcpListener) -> u16 {
    listener
        .local_addr()
        .expect("a listener has an address")
        .port()
}

/// Finds a free port for a cluster node, as [`listen`]. Its bus port, 10,000 higher, is free too.
#[must_use]
pub fn of_node() -> u16 {
    loop {
        let port = fastrand::u16(10_000..22_000);
        let are_free = [port, port + 10_000]
            .map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
        if are_free == [true, true] && claim(port) {
            return port;
        }
    }
}

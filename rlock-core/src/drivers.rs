//! Detects a Tokio runtime without timers or I/O, so that an error can name the missing driver. Tokio reports a
//! missing driver only by a panic, so a program whose panics abort tries nothing.

use std::{panic::catch_unwind, time::Duration};

use tokio::{runtime::Handle, time::sleep};

/// Returns whether a connection can live on this runtime, as far as that can be known.
pub(crate) fn drives_connections(runtime: &Handle) -> bool {
    let _entered = runtime.enter();
    let has_both = || {
        drop(sleep(Duration::ZERO));
        registers_a_socket()
    };
    cfg!(panic = "unwind") && catch_unwind(has_both).unwrap_or(false)
}

#[cfg(unix)]
fn registers_a_socket() -> bool {
    tokio::net::UnixDatagram::unbound().is_ok()
}

#[cfg(not(unix))]
fn registers_a_socket() -> bool {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).and_then(|socket| {
        socket.set_nonblocking(true)?;
        tokio::net::UdpSocket::from_std(socket)
    });
    socket.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_needs_timers_and_io() {
        for (io, time) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            if io {
                builder.enable_io();
            }
            if time {
                builder.enable_time();
            }
            let runtime = builder.build().expect("a runtime");
            assert_eq!(drives_connections(runtime.handle()), io && time);
        }
    }
}

//! Detection of a Tokio runtime without timers or I/O. Tokio reports a missing driver only by a panic,
//! so a program whose panics abort tries nothing.

use tokio::runtime::Handle;

/// Returns whether a connection can live on this runtime, as far as that can be known.
pub(crate) fn drive_connections(runtime: &Handle) -> bool {
    cfg!(panic = "unwind") && missing(runtime, true).is_none()
}

/// Returns what the runtime is known to lack: timers or, where the client needs it, I/O.
#[cfg(panic = "unwind")]
pub(crate) fn missing(runtime: &Handle, needs_io: bool) -> Option<&'static str> {
    use std::panic::catch_unwind;

    let _entered = runtime.enter();
    if catch_unwind(|| drop(tokio::time::sleep(std::time::Duration::ZERO))).is_err() {
        return Some("timers");
    }
    let lacks_io = needs_io && !catch_unwind(registers_a_socket).unwrap_or(false);
    lacks_io.then_some("I/O")
}

#[cfg(not(panic = "unwind"))]
pub(crate) fn missing(_: &Handle, _: bool) -> Option<&'static str> {
    None
}

#[cfg(all(panic = "unwind", unix))]
fn registers_a_socket() -> bool {
    tokio::net::UnixDatagram::unbound().is_ok()
}

#[cfg(all(panic = "unwind", not(unix)))]
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
    fn what_a_runtime_lacks_is_named() {
        let build = |io: bool, time: bool| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            if io {
                builder.enable_io();
            }
            if time {
                builder.enable_time();
            }
            builder.build().expect("a runtime")
        };
        for (io, time) in [(true, true), (true, false), (false, true), (false, false)] {
            let runtime = build(io, time);
            let expected = match (time, io) {
                (false, _) => Some("timers"),
                (true, false) => Some("I/O"),
                (true, true) => None,
            };
            assert_eq!(missing(runtime.handle(), true), expected);
            assert_eq!(missing(runtime.handle(), false).is_none(), time);
        }
    }
}

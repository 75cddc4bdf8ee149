//! Wraps what test servers and processes use of Unix. Elsewhere none of them starts.

#![cfg_attr(not(unix), allow(unused_variables, reason = "nothing is done there"))]

use std::{io, path::Path, process::Command};

#[cfg(unix)]
use rustix::process::{Pid, WaitId, WaitIdOptions, geteuid, kill_process, waitid};
#[cfg(unix)]
pub(crate) use {
    rustix::process::Signal, std::os::unix::net::UnixStream as BlockingStream,
    tokio::net::UnixStream,
};
// They take the path of a socket for an address, and fail.
#[cfg(not(unix))]
pub(crate) use {std::net::TcpStream as BlockingStream, tokio::net::TcpStream as UnixStream};

/// The system's unprivileged user, because servers of packages refuse to run as root.
#[cfg(unix)]
const UNPRIVILEGED: u32 = 65_534;

#[cfg(not(unix))]
#[derive(Clone, Copy)]
pub(crate) enum Signal {
    STOP,
    CONT,
    INT,
    QUIT,
}

/// Sends a signal.
#[cfg(unix)]
pub(crate) fn kill(process: u32, signal: Signal) -> io::Result<()> {
    Ok(kill_process(pid(process), signal)?)
}

#[cfg(not(unix))]
pub(crate) fn kill(process: u32, signal: Signal) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns whether a child has stopped, or has ended.
pub(crate) fn has_stopped(child: u32) -> bool {
    #[cfg(unix)]
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    #[cfg(unix)]
    if let Ok(None) = waitid(WaitId::Pid(pid(child)), stopped) {
        return false;
    }
    true
}

#[cfg(unix)]
fn pid(process: u32) -> Pid {
    let id = i32::try_from(process).ok().and_then(Pid::from_raw);
    id.expect("a process id")
}

/// Lets only its owner read a file.
pub(crate) fn hide(file: &Path) {
    #[cfg(unix)]
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("it is ours");
}

/// Gives a file to the user that servers run as.
pub fn give_to_server_user(file: &Path) {
    #[cfg(unix)]
    if geteuid().is_root() {
        let user = Some(UNPRIVILEGED);
        std::os::unix::fs::chown(file, user, user).expect("root may do that");
    }
}

/// Lets a command run as that user.
pub(crate) fn run_as_server_user(command: &mut Command) {
    #[cfg(unix)]
    if geteuid().is_root() {
        use std::os::unix::process::CommandExt as _;

        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
}

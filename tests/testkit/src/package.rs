//! Runs servers of the system's packages: as an unprivileged user, on a free port, in a directory of their own.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

pub use crate::unix::give_to_server_user;
use crate::{LeashedChild, PATIENCE, port, unix::run_as_server_user};

/// The directory of a server, which belongs to the user that it runs as. It is deleted when this is dropped.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Creates an empty directory.
    #[must_use = "it is deleted when it is dropped"]
    #[allow(
        clippy::new_without_default,
        reason = "each call creates another directory"
    )]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("rlock-package-{}-{number}", process::id()));
        fs::create_dir(&path).expect("the directory for temporary files is writable");
        give_to_server_user(&path);
        Self(path)
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns a command of this program in the directory, as the server's user.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(find(program));
        command.current_dir(&self.0);
        run_as_server_user(&mut command);
        command
    }

    /// Launches the command of a free port, and returns the port once `ready` is in the log of the server.
    pub fn launch(&self, ready: &str, command: impl Fn(u16) -> Command) -> (u16, LeashedChild) {
        loop {
            let port = port::number(&port::listen());
            // Another process may take the port before the server does.
            if let Some(child) = self.launch_on(&mut command(port), ready) {
                return (port, child);
            }
        }
    }

    /// Returns the server once `ready` is in its log; `None` if its port is in use.
    pub(crate) fn launch_on(&self, command: &mut Command, ready: &str) -> Option<LeashedChild> {
        let log = self.0.join("log");
        let output = File::create(&log).expect("the directory is writable");
        command.stdin(Stdio::null()).stderr(output);
        let child = LeashedChild::spawn(command, Some(&self.0));
        let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (exited, text) = (child.exited(), fs::read_to_string(&log).unwrap_or_default());
            if let Some(status) = exited {
                assert!(text.contains("in use"), "{command:?}, {status}:\n{text}");
                return None;
            }
            if text.contains(ready) {
                return Some(child);
            }
            assert!(
                Instant::now() < deadline,
                "{command:?} is not ready:\n{text}"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Finds a program, also where Debian hides those of Postgres.
fn find(program: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = env::split_paths(&path).collect();
    directories.push(PathBuf::from("/usr/sbin"));
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        directories.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    let mut programs = directories.iter().map(|directory| directory.join(program));
    let found = programs.find(|path| path.is_file());
    found
        .unwrap_or_else(|| panic!("{program} is not installed: `scripts/test-all sql` installs it"))
}

//! A child process that never outlives the test, not even a test that was killed.

use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::PATIENCE;
use crate::unix::{self, Signal};

/// A child process that is killed when this is dropped, and by a shell if the test process dies before it can drop this.
#[derive(Debug)]
pub struct LeashedChild {
    child: Child,
    leash: Option<Leash>,
    paused: bool,
}

impl LeashedChild {
    /// Starts `command`. `directory` is removed as well if this process dies first.
    ///
    /// # Errors
    ///
    /// Those of [`Command::spawn`].
    pub fn spawn(command: &mut Command, directory: Option<&Path>) -> io::Result<Self> {
        let mut child = command.spawn()?;
        match Leash::tie(child.id(), directory) {
            Ok(leash) => Ok(Self {
                child,
                leash: Some(leash),
                paused: false,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGSTOP and returns once the process is paused.
    pub(crate) fn pause(&mut self) {
        if self.paused || self.exited().is_some() {
            return;
        }
        self.signal(Signal::STOP);
        while !unix::has_stopped(self.pid()) {
            if self.exited().is_some() {
                return;
            }
            thread::sleep(Duration::from_micros(200));
        }
        self.paused = true;
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(crate) fn resume(&mut self) {
        if self.exited().is_none() {
            self.signal(Signal::CONT);
        }
        self.paused = false;
    }

    /// Sends a signal that asks the process to end. Returns false if it has not ended a minute later.
    pub(crate) fn end_by(&mut self, signal: Signal) -> bool {
        if self.exited().is_none() {
            self.signal(signal);
        }
        let deadline = Instant::now() + PATIENCE;
        while self.exited().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        self.exited().is_some()
    }

    /// Sends SIGKILL, which a stopped process obeys too, and reaps the process.
    pub fn kill(&mut self) -> ExitStatus {
        // After the process is reaped, its id may belong to another process.
        self.leash = None;
        let _ = self.child.kill();
        self.child.wait().expect("a child can be waited for")
    }

    /// The exit status, if the process has ended by itself.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("a child can be waited for");
        if status.is_some() {
            self.leash = None;
        }
        status
    }

    fn signal(&self, signal: Signal) {
        unix::kill(self.pid(), signal).expect("a child can be signalled");
    }
}

impl Drop for LeashedChild {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A shell that waits for the end of its input, and then kills the child.
///
/// The input ends when this process ends for any reason. `PR_SET_PDEATHSIG` would not do: it
/// follows the *thread* that started the child, and each test has its own thread.
#[derive(Debug)]
struct Leash(Child);

impl Leash {
    fn tie(pid: u32, directory: Option<&Path>) -> io::Result<Self> {
        // Ctrl-C reaches the whole process group. The shell has to survive it, or a stopped server
        // would stay.
        const WATCH: &str = r#"trap "" HUP INT TERM
            read -r _
            kill -9 "$1"
            if [ -n "$2" ]; then rm -rf -- "$2"; fi"#;
        Command::new("sh")
            .args(["-c", WATCH, "leash", &pid.to_string()])
            .arg(directory.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! Tests under a shell with job control, with its own terminal.

use std::{
    fs,
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use rlock_testkit::{RedisServer, eventually, stop_ignoring_signals};
use rustix::{
    process::Pid,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::tcgetpgrp,
};
use tokio::time::{sleep, timeout};

use crate::common::{LONG, PATIENT, Scratch, is_running, path, state_of, until_queued};

pub(crate) const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// Opens a terminal: the side of the screen and keyboard, and the side of the programs.
pub(crate) fn open_terminal() -> (OwnedFd, OwnedFd) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).expect("it is ours");
    unlockpt(&terminal).expect("it is ours");
    let name = ptsname(&terminal, Vec::new()).expect("it has a name");
    let name = name.to_str().expect("a plain name");
    let device = File::options().read(true).write(true).open(name);
    (terminal, device.expect("the device").into())
}

/// An interactive shell. It is killed when this is dropped.
pub(crate) struct Shell {
    process: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// The number of bytes of the screen that tests have read.
    read: usize,
}

impl Shell {
    /// Starts a shell that finds `rlock`, for locks on this server.
    pub(crate) fn start(server: &RedisServer) -> Self {
        Self::of(
            server,
            &["bash", "--norc", "--noprofile", "--noediting", "-i"],
        )
    }

    /// Starts this program as the leader of a session.
    fn of(server: &RedisServer, words: &[&str]) -> Self {
        stop_ignoring_signals();
        let (terminal, device) = open_terminal();
        let stream = || Stdio::from(device.try_clone().expect("a descriptor"));
        let process = Command::new("setsid")
            .arg("--ctty")
            .args(words)
            .env("PATH", path())
            .envs([PATIENT])
            .env("RLOCK_URL", server.url())
            .env("PS1", "")
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .expect("a shell");
        let mut output = File::from(terminal.try_clone().expect("a descriptor"));
        let screen: Arc<Mutex<String>> = Arc::default();
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 1024];
            // An error: the last process of the terminal has ended.
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]);
                shown
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&text);
            }
        });
        Self {
            process,
            keyboard: File::from(terminal),
            screen,
            read: 0,
        }
    }

    /// Stops the present job by Ctrl-Z, and continues it. Returns when the job has the terminal again, because until then keys go
    /// to the shell. The shell shows this command.
    async fn stop_and_continue(&mut self, command: &str) {
        self.press(CTRL_Z);
        self.shows("Stopped").await;
        self.type_line("fg");
        self.shows(command).await;
        let shell = Pid::from_child(&self.process);
        eventually(LONG, "the job has the terminal", async || {
            tcgetpgrp(&self.keyboard).is_ok_and(|group| group != shell)
        })
        .await;
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("the terminal is there");
    }

    /// Types a line. The terminal echoes it, so tests expect other text.
    pub(crate) fn type_line(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Returns when the screen shows this text, after the part that was already read.
    pub(crate) async fn shows(&mut self, text: &str) {
        let found = async || {
            let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
            screen[self.read..]
                .find(text)
                .map(|at| self.read + at + text.len())
        };
        let mut end = None;
        let wait = async {
            while end.is_none() {
                end = found().await;
                sleep(Duration::from_millis(5)).await;
            }
        };
        let is_shown = timeout(LONG, wait).await.is_ok();
        assert!(is_shown, "no {text:?} on the screen: {:?}", self.screen);
        self.read = end.unwrap_or_default();
    }

    /// Returns the whole text of the screen so far.
    pub(crate) fn screen(&self) -> String {
        let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        screen.clone()
    }

    /// Returns the number before the last character that was read.
    pub(crate) fn last_number(&self) -> i32 {
        let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        let read = &screen[..self.read - 1];
        let start = read.rfind('-').map_or(0, |at| at + 1);
        read[start..].parse().expect("a number")
    }

    /// Returns when the shell reads input again, after a command with this exit status.
    pub(crate) async fn is_back_after(&mut self, status: u8) {
        self.type_line(r#"echo "status-$?-""#);
        self.shows(&format!("status-{status}-")).await;
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Asks for a line, and shows it.
const READER: &str = r#"sh -c 'echo "ready"-; read -r line; echo "got-$line-"'"#;

/// Returns the process id that a command shows as `pid-4711-`.
pub(crate) async fn shown_pid(shell: &mut Shell) -> i32 {
    shell.shows("pid-").await;
    shell.shows("-").await;
    shell.last_number()
}

/// Returns a command that shows `ready-`, and runs until a signal ends it. It is not a shell, because some shells lose a
/// Ctrl-C that arrives while they start a program.
fn shows_ready() -> (Scratch, String) {
    let file = Scratch::new("ready");
    fs::write(file.path(), "ready-\n").expect("a file");
    let command = format!("tail -f {}", file.path().display());
    (file, command)
}

#[tokio::test]
async fn a_command_reads_the_terminal_and_the_shell_gets_it_back() {
    let server = RedisServer::start();
    let mut shell = Shell::start(&server);
    let asker = r#"sh -c 'echo "ready"-; read -r line </dev/tty; echo "got-$line-"'"#;
    for line in [
        format!("rlock run -k a -- {READER}"),
        // It gets the terminal when it reads.
        format!("rlock run -k a -- {READER} | cat"),
        format!("rlock run -k a -- {asker} </dev/null"),
    ] {
        shell.type_line(&line);
        shell.shows("ready-").await;
        shell.type_line("hello");
        shell.shows("got-hello-").await;
        shell.is_back_after(0).await;
    }
}

#[tokio::test]
async fn ctrl_c_interrupts_the_command_and_a_wait() {
    let server = RedisServer::start();
    let mut shell = Shell::start(&server);
    let (_file, shows_ready) = shows_ready();
    shell.type_line(&format!("rlock run -k a -- {shows_ready}"));
    shell.shows("ready-").await;
    assert!(server.exists("lock:{a}").await);
    shell.press(CTRL_C);
    shell.is_back_after(130).await;
    assert!(!server.exists("lock:{a}").await);

    shell.type_line("rlock run -k a -- sleep 600 &");
    eventually(LONG, "it holds", async || server.exists("lock:{a}").await).await;
    shell.type_line("rlock run -k a -- true");
    until_queued(&server, "a").await;
    shell.press(CTRL_C);
    shell.is_back_after(130).await;
    shell.type_line("kill %1; wait %1");
    shell.is_back_after(143).await;
}

#[tokio::test]
async fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let server = RedisServer::start();
    let mut shell = Shell::start(&server);
    let reader = r#"sh -c 'echo "pid"-$$-; read -r line; echo "got-$line-"'"#;
    // Nothing renews the lock of a job that is stopped.
    shell.type_line(&format!("rlock run -k a --lease 1h -- {reader}"));
    let pid = shown_pid(&mut shell).await;
    for _ in 0..2 {
        shell.press(CTRL_Z);
        shell.shows("Stopped").await;
        assert_eq!(state_of(pid), "T");
        shell.type_line(r#"echo "shell"-"#);
        shell.shows("shell-").await;
        assert!(server.exists("lock:{a}").await, "held for its lease");
        shell.type_line("fg");
        // The shell shows which job continues.
        shell.shows("rlock run").await;
        eventually(LONG, "it continues", async || state_of(pid) == "S").await;
    }
    shell.type_line("hello");
    shell.shows("got-hello-").await;
    shell.is_back_after(0).await;
}

#[tokio::test]
async fn a_job_that_was_stopped_for_longer_than_its_lease_is_stopped_before_it_runs_on() {
    let server = RedisServer::start();
    let written = Scratch::new("written");
    let mut shell = Shell::start(&server);
    // Stops as by Ctrl-Z, long before the lease ends.
    let file = written.path().display();
    let writer = format!("sh -c 'kill -TSTP $$; echo written >{file}'");
    shell.type_line(&format!("rlock run -k a --lease 10s -- {writer}"));
    shell.shows("Stopped").await;
    eventually(LONG, "the lease ends", async || {
        !server.exists("lock:{a}").await
    })
    .await;
    shell.type_line("fg");
    shell.shows("stopping the command").await;
    shell.is_back_after(124).await;
    assert!(
        !written.path().exists(),
        "nothing is written without the lock"
    );
}

#[tokio::test]
async fn a_job_in_the_background_that_reads_stops_until_it_is_in_the_foreground() {
    let server = RedisServer::start();
    let mut shell = Shell::start(&server);
    shell.type_line(&format!("rlock run -k a --lease 1h -- {READER} &"));
    shell.shows("ready-").await;
    // A shell reports that a job has stopped before its next command.
    eventually(LONG, "it stops", async || {
        shell.type_line("jobs");
        sleep(Duration::from_millis(50)).await;
        let screen = shell.screen.lock().unwrap_or_else(PoisonError::into_inner);
        screen.contains("Stopped")
    })
    .await;
    shell.type_line("fg");
    shell.shows("rlock run").await;
    shell.type_line("hello");
    shell.shows("got-hello-").await;
    shell.is_back_after(0).await;
}

#[tokio::test]
async fn ctrl_z_stops_a_script_around_it_too_and_the_script_gets_the_terminal_back() {
    let server = RedisServer::start();
    let mut shell = Shell::start(&server);
    let job = r#"rlock run -k a --lease 1h -- sh -c "echo ready-; read -r line; exit 3""#;
    let script = format!(r#"{job}; status=$?; read -r line; echo "after-$status-$line-""#);
    shell.type_line(&format!("sh -c '{script}'"));
    shell.shows("ready-\r").await;
    shell.stop_and_continue("sh -c").await;
    shell.type_line("hello");
    shell.type_line("bye");
    shell.shows("after-3-bye-").await;
    shell.is_back_after(0).await;
}

/// A pager: it reads from the terminal, and shows what it gets from its input.
const PAGER: &str = r#"sh -c 'read -r key </dev/tty; echo "pager-$key-"; cat'"#;

#[tokio::test]
async fn a_pager_behind_it_reads_the_terminal_and_ctrl_c_interrupts_both() {
    let server = RedisServer::start();
    let mut shell = Shell::start(&server);
    let (_file, shows_ready) = shows_ready();
    shell.type_line(&format!("rlock run -k a -- {shows_ready} | {PAGER}"));
    eventually(LONG, "it holds", async || server.exists("lock:{a}").await).await;
    shell.type_line("key");
    shell.shows("pager-key-").await;
    shell.shows("ready-").await;
    shell.press(CTRL_C);
    shell.is_back_after(130).await;
    eventually(LONG, "released", async || !server.exists("lock:{a}").await).await;
}

#[tokio::test]
async fn ctrl_z_stops_all_commands_of_a_pipeline_and_one_fg_continues_them() {
    let server = RedisServer::start();
    let mut shell = Shell::start(&server);
    let first = r#"rlock run -k a --lease 1h -- sh -c 'echo "pid"-$$- >/dev/tty; exec sleep 600'"#;
    let second = r#"rlock run -k b --lease 1h -- sh -c 'echo "pid"-$$- >/dev/tty; exec cat'"#;
    shell.type_line(&format!("{first} | {second} | cat"));
    let pids = [shown_pid(&mut shell).await, shown_pid(&mut shell).await];
    for _ in 0..2 {
        shell.press(CTRL_Z);
        shell.shows("Stopped").await;
        assert_eq!(pids.map(state_of), ["T", "T"]);
        shell.type_line("fg");
        eventually(LONG, "both continue", async || {
            pids.map(state_of) == ["S", "S"]
        })
        .await;
    }
    shell.press(CTRL_C);
    shell.is_back_after(130).await;
    assert_eq!(pids.map(is_running), [false, false]);
}

#[tokio::test]
async fn without_a_shell_that_could_continue_it_ctrl_z_does_nothing() {
    let server = RedisServer::start();
    let script = format!("exec rlock run -k a -- {READER}");
    let mut terminal = Shell::of(&server, &["sh", "-c", &script]);
    terminal.shows("ready-\r").await;
    terminal.press(CTRL_Z);
    terminal.type_line("hello");
    terminal.shows("got-hello-").await;
    let status = terminal.process.wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn ctrl_c_ends_an_election_with_its_command_and_ctrl_z_stops_it_between_terms() {
    let server = RedisServer::start();
    let mut shell = Shell::start(&server);
    let (_file, shows_ready) = shows_ready();
    shell.type_line(&format!("rlock elect a -- {shows_ready}"));
    shell.shows("ready-").await;
    shell.stop_and_continue("rlock elect").await;
    shell.press(CTRL_C);
    shell.is_back_after(130).await;
    assert!(!server.exists("lock:{a}").await, "it has resigned");

    shell.type_line("rlock elect a -- false");
    // Long enough for the keys.
    shell.shows("after=\"3s 200ms\"").await;
    shell.stop_and_continue("rlock elect").await;
    shell.press(CTRL_C);
    shell.is_back_after(130).await;
}

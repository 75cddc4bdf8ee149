//! Runs `rlock` and checks its output and its effects.

use std::{
    env, fs,
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rlock_testkit::{Proxy, RedisCluster, RedisServer, Trio, Worker, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::time::timeout;

/// The limit after which a test counts as hanging.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The variable that makes `rlock` wait for replies that a busy machine delays.
pub(crate) const PATIENT: (&str, &str) = ("RLOCK_RESPONSE_TIMEOUT", "10s");

/// What names a store: a server, or a URL.
pub(crate) trait Store {
    fn to_url(&self) -> String;
}

macro_rules! stores {
    ($($kind:ty => $url:ident),*) => {
        $(impl Store for $kind {
            fn to_url(&self) -> String {
                self.$url()
            }
        })*
    };
}

stores!(RedisServer => url, RedisCluster => url, Trio => url, Proxy => url, str => to_owned, String => clone);

impl<T: Store + ?Sized> Store for &T {
    fn to_url(&self) -> String {
        (**self).to_url()
    }
}

/// Returns a command `rlock` for this store, without options from the tests' environment, and without their terminal.
pub(crate) fn rlock(store: &(impl Store + ?Sized), words: &[&str]) -> Command {
    let mut command = Command::new("setsid");
    command.arg(env!("CARGO_BIN_EXE_rlock"));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("RLOCK_") {
            command.env_remove(name);
        }
    }
    command.env("RLOCK_URL", store.to_url()).args(words);
    command.envs([PATIENT]);
    command
}

/// Returns a search path on which shells find `rlock`.
pub(crate) fn path() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_rlock"));
    let directory = program.parent().expect("a directory").display();
    format!("{directory}:{}", env::var("PATH").unwrap_or_default())
}

/// Starts `rlock`.
pub(crate) fn start(store: &(impl Store + ?Sized), words: &[&str]) -> Running {
    Running::start(rlock(store, words))
}

/// Runs `rlock` to its end.
pub(crate) async fn run(store: &(impl Store + ?Sized), words: &[&str]) -> Outcome {
    start(store, words).end().await
}

/// Runs `rlock` again and again, until its output or its log contains this text, and returns the results. One run may not
/// describe the holder, which counts as silent if a busy machine delays its answer by 200 ms.
pub(crate) async fn run_until(
    store: &(impl Store + ?Sized),
    words: &[&str],
    text: &str,
) -> Outcome {
    let mut latest = None;
    let found = async {
        loop {
            let outcome = run(store, words).await;
            let is_shown = |line: &String| line.contains(text);
            if is_shown(&outcome.log) || outcome.output.iter().any(is_shown) {
                return outcome;
            }
            latest = Some(outcome);
        }
    };
    let found = timeout(LONG, found).await;
    found.unwrap_or_else(|_| panic!("no {text:?} from {words:?}: {latest:?}"))
}

/// Starts `rlock run`, and returns when its command holds the lock, until its input ends.
pub(crate) async fn hold(server: &RedisServer, options: &[&str]) -> Running {
    let script = ["--", "sh", "-c", "echo held; read -r line; echo $line"];
    let mut holder = start(&server, &[&["run"], options, &script].concat());
    holder.expect("held").await;
    holder
}

/// Holds as [`hold`] does, with a command that ignores the request to stop, and runs until its input ends.
pub(crate) async fn hold_stubbornly(server: &RedisServer, options: &[&str]) -> Running {
    let run = ["run", "--kill-after", "1h"];
    let script = ["--", "sh", "-c", "trap '' TERM; echo held; read -r line"];
    let mut holder = start(&server, &[&run[..], options, &script].concat());
    holder.expect("held").await;
    holder
}

/// A running process. Dropping it kills the process.
pub(crate) struct Running {
    command: String,
    worker: Worker,
    log: Scratch,
}

/// The results of a process.
#[derive(Debug)]
pub(crate) struct Outcome {
    #[expect(dead_code, reason = "a failed test shows it")]
    command: String,
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// The lines of standard output that no test has read before.
    pub(crate) output: Vec<String>,
    /// Standard error.
    pub(crate) log: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let log = Scratch::new("log");
        let file = File::create(log.path()).expect("the directory is writable");
        Self {
            command: format!("{:?}", command.get_args()),
            worker: Worker::start(command.stderr(file)),
            log,
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.worker.pid()).expect("a process id fits")
    }

    /// Reads standard output until this line.
    pub(crate) async fn expect(&mut self, line: &str) {
        self.worker.expect_line(LONG, line).await;
    }

    /// Reads the next line of standard output.
    pub(crate) async fn line(&mut self) -> String {
        self.worker.line(LONG).await.expect("a line")
    }

    /// Reads the next line of standard output, which is a number.
    pub(crate) async fn number(&mut self) -> i32 {
        let line = self.line().await;
        line.parse().unwrap_or_else(|_| panic!("no number: {line}"))
    }

    /// Writes a line to standard input.
    pub(crate) fn send(&mut self, line: &str) {
        self.worker.send(line);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send_signal(self.pid(), signal);
    }

    /// Stops `rlock` (SIGSTOP), and returns when all of its threads have stopped. The tests can wait for that, because `setsid`
    /// has become `rlock`, which is their child.
    pub(crate) fn stop(&mut self) {
        self.worker.pause();
    }

    /// Lets `rlock` continue.
    pub(crate) fn resume(&mut self) {
        self.worker.resume();
    }

    /// Kills `rlock` alone.
    pub(crate) fn kill(&mut self) {
        self.worker.kill();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log.path()).expect("the log is there")
    }

    /// Returns when the log contains this text.
    pub(crate) async fn logs(&self, text: &str) {
        eventually(LONG, text, async || self.log().contains(text)).await;
    }

    /// Ends the input, and waits for the end of the process.
    pub(crate) async fn end(mut self) -> Outcome {
        self.worker.close_input();
        let status = self.worker.wait(LONG).await;
        Outcome {
            command: self.command.clone(),
            code: status.code(),
            output: self.worker.remaining_lines(LONG).await,
            log: self.log(),
        }
    }
}

impl Outcome {
    /// Asserts that the process ended with this status, and returns the outcome.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Returns the lines of standard error as objects.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        self.log.lines().map(parse).collect()
    }
}

/// Waits until an owner is queued for the lock.
pub(crate) async fn until_queued(server: &RedisServer, key: &str) {
    let queue = format!("lock:{{{key}}}:queue");
    eventually(LONG, "an owner is queued", async || {
        server.exists(&queue).await
    })
    .await;
}

pub(crate) fn send_signal(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("a process id");
    kill_process(pid, signal).expect("the process is there");
}

/// Stops a process of one thread (SIGSTOP), which need not be a child of the tests. Returns when it has stopped.
pub(crate) async fn stop_process(pid: i32) {
    send_signal(pid, Signal::STOP);
    eventually(LONG, "it stops", async || state_of(pid) == "T").await;
}

/// Returns whether the process runs. A zombie does not.
pub(crate) fn is_running(pid: i32) -> bool {
    !["", "Z", "X"].contains(&&*state_of(pid))
}

/// Returns the state of a process as the system shows it, for example `T` for stopped.
pub(crate) fn state_of(pid: i32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which is in parentheses.
    let state = stat.rsplit_once(") ").map(|(_, rest)| &rest[..1]);
    state.unwrap_or_default().to_owned()
}

/// A file or directory that is deleted with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rlock-{}-{number}-{name}", std::process::id());
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

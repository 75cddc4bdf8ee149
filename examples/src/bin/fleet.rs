//! Several processes add to one balance in a file, by reading, waiting a little and writing. The lock keeps their
//! critical sections apart, so no addition is lost, and no two processes are inside at once.
//!
//! Runs on the server of `REDIS_URL`, or starts a `redis-server` of its own.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, ErrorKind},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rlock_core::{LockClient, LockError, current, distributed_lock};

const WORKERS: u32 = 4;
const ROUNDS: u32 = 100;

#[derive(Debug, thiserror::Error)]
enum FleetError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("{0}")]
    Broken(String),
}

#[tokio::main]
async fn main() -> Result<(), FleetError> {
    let args: Vec<String> = env::args().collect();
    match args.as_slice() {
        [_, worker, url, folder] => work(worker, url, Path::new(folder)).await,
        _ => lead().await,
    }
}

/// One worker process: adds to the balance again and again.
async fn work(worker: &str, url: &str, folder: &Path) -> Result<(), FleetError> {
    LockClient::connect(url).await?.install();
    for _ in 0..ROUNDS {
        add_one(folder, worker).await?;
    }
    println!("worker {worker} is done");
    Ok(())
}

/// The critical section. Its entry in the log shows who was inside under which token.
#[distributed_lock(key = "account:1", wait = "60s")]
async fn add_one(folder: &Path, worker: &str) -> Result<(), FleetError> {
    let inside = folder.join("inside");
    // Fails if another worker is inside.
    let met =
        |error: io::Error| FleetError::Broken(format!("worker {worker} met another: {error}"));
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&inside)
        .map_err(met)?;
    let balance = read_number(&folder.join("balance"))?;
    tokio::time::sleep(Duration::from_millis(1)).await;
    fs::write(folder.join("balance"), (balance + 1).to_string())?;
    let token = current().map_or(0, |hold| hold.token().as_u64());
    let last = read_number(&folder.join("token"))?;
    if token <= last {
        return Err(FleetError::Broken(format!(
            "token {token} came after {last}"
        )));
    }
    fs::write(folder.join("token"), token.to_string())?;
    fs::remove_file(inside)?;
    Ok(())
}

fn read_number(path: &Path) -> Result<u64, FleetError> {
    match fs::read_to_string(path) {
        Ok(text) => text
            .parse()
            .map_err(|_| FleetError::Broken(format!("`{text}` is not a number"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// The parent: starts the workers, and looks at what they left.
async fn lead() -> Result<(), FleetError> {
    let server = Server::of_environment().await?;
    let folder = Folder::new()?;
    println!(
        "{WORKERS} processes add {ROUNDS} times each to one balance, on {}",
        server.url
    );
    let started = Instant::now();
    let mut workers = Vec::new();
    for worker in 1..=WORKERS {
        let worker = worker.to_string();
        workers.push(
            tokio::process::Command::new(env::current_exe()?)
                .args([&worker, &server.url, &folder.0.display().to_string()])
                .kill_on_drop(true)
                .spawn()?,
        );
    }
    for worker in &mut workers {
        if !worker.wait().await?.success() {
            return Err(FleetError::Broken("a worker failed".to_owned()));
        }
    }
    let balance = read_number(&folder.0.join("balance"))?;
    let expected = u64::from(WORKERS * ROUNDS);
    println!(
        "the balance is {balance} of {expected} after {:.1?}",
        started.elapsed()
    );
    if balance != expected {
        return Err(FleetError::Broken(
            "critical sections overlapped: an addition was lost".to_owned(),
        ));
    }
    println!(
        "no two processes were inside at once, no addition was lost, and the tokens only grew"
    );
    Ok(())
}

/// A folder of our own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let folder = env::temp_dir().join(format!("rlock-fleet-{}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The server to use; stopped at the end if it is ours.
struct Server {
    url: String,
    own: Option<Child>,
}

impl Server {
    async fn of_environment() -> Result<Self, FleetError> {
        if let Ok(url) = env::var("REDIS_URL") {
            return Ok(Self { url, own: None });
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let started = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn();
        let own = started.map_err(|error| {
            FleetError::Broken(format!(
                "no REDIS_URL, and redis-server did not start: {error}"
            ))
        })?;
        let server = Self {
            url: format!("redis://127.0.0.1:{port}/"),
            own: Some(own),
        };
        for _ in 0..100 {
            if LockClient::connect(&server.url).await.is_ok() {
                return Ok(server);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err(FleetError::Broken(
            "redis-server did not reply within 5 s".to_owned(),
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(own) = &mut self.own {
            let _ = own.kill();
            let _ = own.wait();
        }
    }
}

//! The place of one client process: the current process, its proxies, and its faults.

use std::{
    env,
    process::{Command, ExitStatus},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    client::IDLE,
    clock,
    collect::Recorder,
    network::{self, Front},
    options::ClientOptions,
    record::{Fault, FaultKind, Record},
    schedule::Lane,
    text::Reader,
};
use rlock_testkit::{Proxy, Worker};

/// The limit for a process to finish its calls.
const PATIENCE: Duration = Duration::from_secs(60);
/// Another event ends the wait.
const FOR_EVER: Duration = Duration::from_secs(24 * 60 * 60);

/// The options that all processes of a run share.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// Each process has its own URLs, number and seed.
    pub(super) options: ClientOptions,
    pub(super) recorder: Recorder,
    /// The number of processes so far.
    pub(super) started: Arc<AtomicU32>,
}

/// How a process connects to its store.
#[derive(Clone, Debug)]
pub(super) enum Way {
    Embedded,
    /// By its own proxies, one for each server with these URLs.
    Proxied(Arc<[String]>),
    /// By this URL, which leads to shared proxies.
    Shared(String),
}

/// The current process.
struct Process {
    number: u32,
    worker: Worker,
}

/// A place for one client process at a time.
pub(super) struct Slot {
    order: Order,
    way: Way,
    process: Process,
    front: Arc<Mutex<Front>>,
}

impl Slot {
    pub(super) fn open(order: Order, way: Way) -> Self {
        let (process, front) = start(&order, &way);
        let front = Arc::new(Mutex::new(front));
        Self {
            order,
            way,
            process,
            front,
        }
    }

    /// Applies faults to the network of the current process.
    pub(super) fn strike_network(&self, lane: Lane) -> impl Future<Output = ()> + Send + 'static {
        network::strike(Arc::clone(&self.front), lane, self.order.recorder.clone())
    }

    /// Applies faults to the process, and reads its output. Stops the faults at `over`.
    pub(super) async fn strike(&mut self, lane: Lane, mut over: watch::Receiver<bool>) {
        for step in lane {
            self.read_for(step.pause).await;
            if *over.borrow() {
                return;
            }
            let (start, process) = (clock::now(), self.process.number);
            match step.kind {
                FaultKind::ProcessPaused => {
                    self.process.worker.pause();
                    self.read_for(step.lasts).await;
                    self.process.worker.resume();
                }
                FaultKind::ProcessKilled => self.kill().await,
                FaultKind::ProcessRetired => {
                    self.stop().await;
                    // During an outage it may be unable to release everything.
                    let _ = self.await_end().await;
                    self.replace();
                }
                kind => unreachable!("{kind} is not a fault of a process"),
            }
            self.order.recorder.note(Record::Fault(Fault {
                process: Some(process),
                ..Fault::new(step.kind, start, clock::now())
            }));
        }
        let over = async move {
            let _ = over.wait_for(|over| *over).await;
        };
        self.read_until(over).await;
    }

    async fn kill(&mut self) {
        let at = clock::now();
        self.process.worker.kill();
        self.read_rest().await;
        self.order.recorder.note(Record::Killed {
            process: self.process.number,
            at,
        });
        self.replace();
    }

    fn replace(&mut self) {
        let (process, front) = start(&self.order, &self.way);
        *self.front.lock().unwrap_or_else(PoisonError::into_inner) = front;
        self.process = process;
    }

    /// Waits until the process has finished its calls.
    pub(super) async fn stop(&mut self) {
        self.process.worker.send("stop");
        let end = Instant::now() + PATIENCE;
        while let Ok(Some(line)) = timeout_at(end, self.process.worker.line(FOR_EVER)).await {
            if line == IDLE {
                return;
            }
            self.note(&line);
        }
        self.complain("did not come to rest");
    }

    /// Ends the process. Without faults it has to end properly.
    pub(super) async fn end(&mut self) {
        if let Some(status) = self.await_end().await
            && !status.success()
        {
            self.complain(&format!("ended with {status}"));
        }
    }

    async fn await_end(&mut self) -> Option<ExitStatus> {
        self.process.worker.close_input();
        if timeout(PATIENCE, self.read_rest()).await.is_err() {
            self.process.worker.kill();
            self.complain("did not end");
            return None;
        }
        Some(self.process.worker.wait(PATIENCE).await)
    }

    async fn read_rest(&mut self) {
        while let Some(line) = self.process.worker.line(FOR_EVER).await {
            self.note(&line);
        }
    }

    async fn read_for(&mut self, pause: Duration) {
        self.read_until(sleep(pause)).await;
    }

    async fn read_until(&mut self, end: impl Future<Output = ()>) {
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return,
                line = self.process.worker.line(FOR_EVER) => match line {
                    Some(line) => self.note(&line),
                    None => self.replace_ended().await,
                },
            }
        }
    }

    /// Replaces a process that ended although nothing asked for that, so that the run goes on and is checked.
    async fn replace_ended(&mut self) {
        let at = clock::now();
        let process = self.process.number;
        let status = self.process.worker.wait(PATIENCE).await;
        self.complain(&format!("ended by itself with {status}"));
        self.order.recorder.note(Record::Killed { process, at });
        self.replace();
    }

    fn complain(&self, what: &str) {
        let what = format!("process {} {what}", self.process.number);
        self.order.recorder.note(Record::Leftover { what });
    }

    fn note(&self, line: &str) {
        match Reader::default().read(line) {
            Ok(record) => record
                .into_iter()
                .for_each(|record| self.order.recorder.note(record)),
            // The last line of a killed process may be cut off.
            Err(error) => eprintln!("{error}"),
        }
    }
}

fn start(order: &Order, way: &Way) -> (Process, Front) {
    let number = order.started.fetch_add(1, Ordering::Relaxed);
    let mut proxies = Vec::new();
    let urls = match way {
        Way::Embedded => vec!["memory:histories".to_owned()],
        Way::Shared(url) => vec![url.clone()],
        Way::Proxied(servers) => {
            proxies.extend(servers.iter().map(|url| Arc::new(Proxy::before(url))));
            proxies.iter().map(|proxy| proxy.url()).collect()
        }
    };
    let options = ClientOptions {
        urls,
        process: number,
        seed: order.options.seed.wrapping_add(number.into()),
        ..order.options.clone()
    };
    let options = serde_json::to_string(&options).expect("it can be written");
    let program = env::current_exe().expect("a program knows its path");
    let mut command = Command::new(program);
    command.args(["client", &options]);
    let worker = Worker::start(&mut command);
    let front = Front {
        process: number,
        proxies,
    };
    (Process { number, worker }, front)
}

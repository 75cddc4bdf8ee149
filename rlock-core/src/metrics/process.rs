//! Counts the requests, renewals, connections and elections of a process: the metrics without the label `lock`.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, Recorder, with_recorder};
use rlock_proto::options::Site;
use tokio::time::Instant;

use super::{counter, gauge, handles, histogram, label, list};

pub(super) struct Process {
    /// By result: ok, late, failed, gone.
    renewals: [Counter; 4],
    lease_margin: OnceLock<Histogram>,
    /// By operation and result.
    requests: Mutex<BTreeMap<(&'static str, &'static str), Histogram>>,
    pending_releases: Gauge,
    pause: OnceLock<Histogram>,
}

impl Process {
    pub(super) fn new(recorder: &dyn Recorder) -> Self {
        let renewals = ["ok", "late", "failed", "gone"]
            .map(|result| counter(recorder, list::RENEWALS, vec![label("result", result)]));
        Self {
            renewals,
            lease_margin: OnceLock::new(),
            requests: Mutex::default(),
            pending_releases: gauge(recorder, list::PENDING_RELEASES, Vec::new()),
            pause: OnceLock::new(),
        }
    }
}

/// Counts renewals by result: in time, after the next attempt was due, failed, and those that found their lock lost.
pub(crate) fn renewals(counts: [usize; 4]) {
    for (counter, count) in handles().process.renewals.iter().zip(counts) {
        counter.increment(count as u64);
    }
}

/// Records the rest of a lease when its renewal arrived.
pub(crate) fn lease_margin(remaining: Duration) {
    let margin = &handles().process.lease_margin;
    margin
        .get_or_init(|| histogram(list::LEASE_MARGIN, Vec::new()))
        .record(remaining);
}

/// Records how much later than planned the watchdog woke up.
pub(crate) fn overslept(by: Duration) {
    let pause = &handles().process.pause;
    pause
        .get_or_init(|| histogram(list::PROCESS_PAUSE, Vec::new()))
        .record(by);
}

/// A leadership of this process, which is counted until it is dropped.
pub(crate) struct Leads(Gauge);

impl Leads {
    /// Shows 0 for an election in which this process is a candidate. Otherwise an alert could not tell an election without a
    /// leader from one that does not exist.
    pub(crate) fn campaigns(site: Site) {
        Self::gauge(site).increment(0.0);
    }

    pub(crate) fn begin(site: Site) -> Self {
        let gauge = Self::gauge(site);
        gauge.increment(1.0);
        Self(gauge)
    }

    fn gauge(site: Site) -> Gauge {
        // Describes the metrics, if nothing was recorded before.
        handles();
        let lock = label("lock", site.in_place_of_key());
        with_recorder(|recorder| gauge(recorder, list::LEADER, vec![lock]))
    }
}

impl Drop for Leads {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// One request to one server. Counts as cancelled when it is dropped without a result.
pub(crate) struct RequestTimer {
    operation: &'static str,
    started: Instant,
    result: &'static str,
}

impl RequestTimer {
    pub(crate) fn begin(operation: &'static str, started: Instant) -> Self {
        Self {
            operation,
            started,
            result: "cancelled",
        }
    }

    pub(crate) fn replied(mut self, is_ok: bool) {
        self.result = if is_ok { "ok" } else { "error" };
    }

    pub(crate) fn timed_out(mut self) {
        self.result = "timeout";
    }
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        let requests = &handles().process.requests;
        let requests = || requests.lock().unwrap_or_else(PoisonError::into_inner);
        let by = (self.operation, self.result);
        let known = requests().get(&by).cloned();
        let histogram = known.unwrap_or_else(|| {
            let labels = vec![
                label("operation", self.operation),
                label("result", self.result),
            ];
            // No lock is held while the recorder runs.
            let made = histogram(list::REQUEST_DURATION, labels);
            requests().entry(by).or_insert(made).clone()
        });
        histogram.record(took);
    }
}

/// A release that the background has to do.
pub(crate) struct PendingRelease(&'static Process);

impl PendingRelease {
    pub(crate) fn begin() -> Self {
        let process = &handles().process;
        process.pending_releases.increment(1.0);
        Self(process)
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        self.0.pending_releases.decrement(1.0);
    }
}

/// The connections of this process to one server of the configuration.
#[derive(Default, Clone, Copy)]
struct Connections {
    count: usize,
    up: usize,
}

type Servers = BTreeMap<usize, Connections>;

fn servers() -> MutexGuard<'static, Servers> {
    static SERVERS: Mutex<Servers> = Mutex::new(BTreeMap::new());
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the metrics of connections that exist already, for a recorder that was installed later.
pub(super) fn publish_connections(recorder: &dyn Recorder) {
    for (server, connections) in &*servers() {
        publish(recorder, *server, *connections);
    }
}

fn publish(recorder: &dyn Recorder, server: usize, connections: Connections) {
    let is_up = connections.up == connections.count;
    let gauge = gauge(recorder, list::CONNECTION_UP, labels(server));
    gauge.set(if is_up { 1.0 } else { 0.0 });
    // So that it begins with 0.
    let _ = counter(recorder, list::RECONNECTS, labels(server));
}

fn labels(server: usize) -> Vec<metrics::Label> {
    vec![label("server", server.to_string())]
}

pub(crate) struct ConnectionMetrics {
    server: usize,
    is_up: AtomicBool,
}

impl ConnectionMetrics {
    /// Counts a connection to the server with this index in the configuration. It is not up yet.
    pub(crate) fn new(server: usize) -> Self {
        let connection = Self {
            server,
            is_up: AtomicBool::new(false),
        };
        connection.change(|connections| connections.count += 1);
        connection
    }

    fn change(&self, change: impl FnOnce(&mut Connections)) {
        // Describes the metrics, if nothing was recorded before.
        handles();
        let mut servers = servers();
        let connections = servers.entry(self.server).or_default();
        change(connections);
        with_recorder(|recorder| publish(recorder, self.server, *connections));
    }

    pub(crate) fn is_up(&self, is_up: bool) {
        if self.is_up.swap(is_up, Ordering::AcqRel) != is_up {
            self.change(|connections| {
                if is_up {
                    connections.up += 1;
                } else {
                    connections.up -= 1;
                }
            });
        }
    }

    pub(crate) fn reconnected(&self) {
        with_recorder(|recorder| counter(recorder, list::RECONNECTS, labels(self.server)))
            .increment(1);
    }
}

impl Drop for ConnectionMetrics {
    fn drop(&mut self) {
        let was_up = *self.is_up.get_mut();
        self.change(|connections| {
            connections.count -= 1;
            connections.up -= usize::from(was_up);
        });
    }
}

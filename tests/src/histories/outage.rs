//! The servers of a run, and their faults.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    sync::{RwLock, RwLockReadGuard, watch},
    time::{Instant, sleep},
};

use super::{
    clock,
    collect::Recorder,
    fronts::Fronts,
    record::{Fault, FaultKind, Record},
    schedule::{Lane, Step},
    steps::Steps,
    watch::name_of,
};
use rlock_testkit::{Proxy, RedisServer, Request, Trio};

/// The silence of a master after which its replica replaces it.
const SILENCE: Duration = Duration::from_millis(1_500);

/// A server that may be down. Callers wait until it is up.
#[derive(Debug)]
pub(super) struct Server {
    place: RwLock<Place>,
    /// The last time when the expected server was the master.
    looked: AtomicU64,
    /// The number of failovers by then, as Sentinels count them.
    epoch: AtomicU64,
}

/// All servers of a run.
pub(super) type Servers = Arc<[Arc<Server>]>;

/// The number of a server, if there are several.
pub(super) fn number_of(server: usize, servers: usize) -> Option<usize> {
    (servers > 1).then_some(server)
}

#[derive(Debug)]
enum Place {
    One(Box<RedisServer>),
    /// The current master of these servers.
    Master(Box<Trio>),
}

impl Place {
    fn master(&self) -> &RedisServer {
        match self {
            Self::One(server) => server,
            Self::Master(trio) => &trio.master,
        }
    }
}

impl Server {
    pub(super) fn start() -> Self {
        Self::at(Place::One(Box::new(RedisServer::start())))
    }

    fn at(place: Place) -> Self {
        Self {
            place: RwLock::new(place),
            looked: AtomicU64::new(clock::now()),
            epoch: AtomicU64::new(0),
        }
    }

    /// Starts independent servers. They keep their acknowledged data when they are killed.
    pub(super) fn start_several(how_many: usize) -> Servers {
        let server = || {
            RedisServer::builder()
                .config("appendonly", "yes")
                .config("appendfsync", "always")
        };
        let start = |_| Arc::new(Self::at(Place::One(Box::new(server().start()))));
        (0..how_many).map(start).collect()
    }

    /// Returns also the URL for clients, and the proxies.
    pub(super) async fn start_with_sentinels() -> (Arc<Self>, String, Fronts) {
        let trio = Trio::builder().silence(SILENCE).behind_proxies();
        let trio = trio.start().await;
        let (url, epoch) = (trio.url(), trio.epoch().await);
        let proxies = [&trio.master, &trio.replica].map(|server| Arc::clone(server.front()));
        let server = Arc::new(Self::at(Place::Master(Box::new(trio))));
        server.epoch.store(epoch, Ordering::Relaxed);
        let fronts = Fronts {
            proxies: proxies.to_vec(),
            master: Some(Arc::clone(&server)),
        };
        (server, url, fronts)
    }

    /// Returns when a busy machine caused an unplanned failover: from the earliest time to the
    /// latest, and when the new master was named. Then the roles are swapped.
    async fn was_replaced(&self) -> Option<(u64, u64, Option<u64>)> {
        let mut place = self.place.write().await;
        let now = clock::now();
        let Place::Master(trio) = &mut *place else {
            return None;
        };
        if trio.is_led_by(&trio.replica).await {
            trio.failed_over().await;
            let (end, named) = self.replace(trio, clock::now()).await;
            return Some((self.looked.swap(end, Ordering::Relaxed), end, named));
        }
        let looked = self.looked.swap(now, Ordering::Relaxed);
        let epoch = trio.epoch().await;
        // A failover, and another one back.
        let was_away = self.epoch.swap(epoch, Ordering::Relaxed) != epoch;
        was_away.then(|| (looked, clock::now(), None))
    }

    /// Demotes the former master, and waits until all Sentinels agree. Returns when there was one
    /// master again, and when it was named, unless it was replaced, too.
    async fn replace(&self, trio: &mut Trio, named: u64) -> (u64, Option<u64>) {
        trio.swap().await;
        let mut end = (clock::now(), Some(named));
        if trio.settle().await {
            end = (clock::now(), None);
        }
        self.epoch.store(trio.epoch().await, Ordering::Relaxed);
        end
    }

    /// Returns the server, and keeps it up until the result is dropped.
    pub(super) async fn up(&self) -> RwLockReadGuard<'_, RedisServer> {
        RwLockReadGuard::map(self.place.read().await, Place::master)
    }
}

/// Applies one fault after the other until the run ends. A failover may take longer than planned.
pub(super) async fn strike(
    servers: Servers,
    lane: Lane,
    recorder: Recorder,
    over: watch::Receiver<bool>,
) {
    let mut steps = Steps::new(lane, over);
    while let Some(step) = steps.next().await {
        let struck = step.servers.iter().map(|n| {
            let number = number_of(*n, servers.len());
            strike_and_note(&servers[*n], number, &step, &recorder)
        });
        join_all(struck).await;
    }
}

pub(super) async fn strike_and_note(
    server: &Server,
    number: Option<usize>,
    step: &Step,
    recorder: &Recorder,
) {
    let start = clock::now();
    let key = (step.kind == FaultKind::LockDeleted).then(|| format!("k{}", step.number));
    if let Some((end, named)) = strike_one(server, step).await {
        let fault = Fault {
            key,
            server: number,
            named,
            ..Fault::new(step.kind, start, end)
        };
        recorder.note(Record::Fault(fault));
    }
    note_replacement(server, recorder).await;
}

/// Records an unplanned failover, if there was one.
pub(super) async fn note_replacement(server: &Server, recorder: &Recorder) {
    if let Some((start, end, named)) = server.was_replaced().await {
        let fault = Fault::new(FaultKind::MasterPaused, start, end);
        recorder.note(Record::Fault(Fault { named, ..fault }));
    }
}

/// Applies a fault. Returns its end, and when another master was named; `None` if it had no effect.
async fn strike_one(server: &Server, step: &Step) -> Option<(u64, Option<u64>)> {
    let struck = match step.kind {
        FaultKind::ServerPaused => {
            let place = server.place.write().await;
            place.master().pause();
            sleep(step.lasts).await;
            place.master().resume();
            true
        }
        FaultKind::ServerSlowed => {
            let place = server.place.write().await;
            slow_down(place.master(), step.lasts).await;
            true
        }
        FaultKind::ServerRestarted => {
            let place = server.place.write().await;
            place.master().kill();
            sleep(step.lasts).await;
            tokio::task::block_in_place(|| place.master().restart_with_data());
            place.master().loaded().await;
            true
        }
        FaultKind::ServerKilled => {
            let place = server.place.write().await;
            place.master().kill();
            sleep(step.lasts).await;
            restart(place.master());
            true
        }
        FaultKind::MasterKilled
        | FaultKind::MasterPaused
        | FaultKind::MasterCutOff
        | FaultKind::MasterReplaced
        | FaultKind::MasterUnseen => {
            let mut place = server.place.write().await;
            let Place::Master(trio) = &mut *place else {
                unreachable!("one server has no replica")
            };
            let named = fail_over(trio, step).await;
            return Some(server.replace(trio, named).await);
        }
        FaultKind::ClientsKilled => {
            let redis = server.up().await;
            redis.kill_all_clients().await > 0
        }
        FaultKind::ScriptsFlushed => {
            server.up().await.script_flush().await;
            true
        }
        FaultKind::AllFlushed => {
            let () = server.up().await.command(&["FLUSHALL"]).await;
            true
        }
        FaultKind::LockDeleted => server.up().await.del(&name_of(step.number)).await,
        kind => unreachable!("{kind} is not a fault of a server"),
    };
    struck.then(|| (clock::now(), None))
}

/// Makes the replica replace the master, which returns as a replica. Returns when all Sentinels named the replica.
async fn fail_over(trio: &Trio, step: &Step) -> u64 {
    match step.kind {
        FaultKind::MasterKilled => {
            trio.master.kill();
            let named = named(trio).await;
            sleep(step.lasts).await;
            restart(&trio.master);
            named
        }
        FaultKind::MasterReplaced => {
            trio.order_failover().await;
            let named = named(trio).await;
            sleep(step.lasts).await;
            named
        }
        FaultKind::MasterPaused => {
            trio.master.pause();
            sleep(step.lasts).await;
            let named = named(trio).await;
            trio.master.resume();
            named
        }
        FaultKind::MasterCutOff => {
            let way = trio.master.front();
            cut(way, step.number);
            let named = named(trio).await;
            sleep(step.lasts).await;
            way.pass();
            // Sentinels need some time for the announcement.
            sleep(step.lasts).await;
            named
        }
        FaultKind::MasterUnseen => {
            let way = trio.master.front();
            way.drop_requests_if(u64::MAX, is_of_sentinel);
            let named = named(trio).await;
            sleep(step.lasts).await;
            way.pass();
            named
        }
        kind => unreachable!("{kind} is not a failover"),
    }
}

/// Returns when all Sentinels name the replica.
async fn named(trio: &Trio) -> u64 {
    trio.failed_over().await;
    clock::now()
}

/// Cuts both directions, or one of them.
fn cut(way: &Proxy, how: u32) {
    match how {
        1 => way.black_hole(),
        2 => way.black_hole_requests(),
        _ => way.black_hole_replies(),
    }
}

/// Returns whether the request starts a Sentinel's connection or is its heartbeat. No client sends
/// these.
fn is_of_sentinel(request: &Request) -> bool {
    let names_itself = || {
        let name = request.words.get(2);
        name.is_some_and(|name| name.starts_with(b"sentinel-"))
    };
    request.is("PING") || (request.is("CLIENT SETNAME") && names_itself())
}

/// Leaves the server a fifth of its time.
async fn slow_down(redis: &RedisServer, lasts: Duration) {
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        redis.pause();
        sleep(Duration::from_millis(40)).await;
        redis.resume();
        sleep(Duration::from_millis(10)).await;
    }
}

/// A launch blocks for a while.
fn restart(redis: &RedisServer) {
    tokio::task::block_in_place(|| redis.restart());
}

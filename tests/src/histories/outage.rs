//! The servers of a run, and what befalls them.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::{
    sync::{RwLock, RwLockReadGuard, watch},
    time::{Instant, sleep},
};

use super::{
    clock,
    collect::Recorder,
    record::{Fault, FaultKind, Record},
    schedule::{Lane, Step},
    watch::name_of,
};
use crate::{RedisServer, Trio};

/// How long a master is silent before its replica takes its place.
const SILENCE: Duration = Duration::from_millis(1_500);

/// A server that may be away. Who wants to ask it waits until it is back.
#[derive(Debug)]
pub(super) struct Server(RwLock<Place>);

/// All of a run.
pub(super) type Servers = Arc<[Arc<Server>]>;

/// The number of a server, where there are several.
pub(super) fn number_of(server: usize, servers: usize) -> Option<usize> {
    (servers > 1).then_some(server)
}

#[derive(Debug)]
enum Place {
    One(Box<RedisServer>),
    /// The master of these.
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
        Self(RwLock::new(Place::One(Box::new(RedisServer::start()))))
    }

    /// Servers that know nothing of each other. What each has answered it still knows after it was killed.
    pub(super) fn start_several(how_many: usize) -> Servers {
        let server = || {
            RedisServer::builder()
                .config("appendonly", "yes")
                .config("appendfsync", "always")
        };
        let start = |_| Arc::new(Self(RwLock::new(Place::One(Box::new(server().start())))));
        (0..how_many).map(start).collect()
    }

    /// And the URL by which clients find it.
    pub(super) async fn start_with_sentinels() -> (Self, String) {
        let trio = Trio::builder().silence(SILENCE).start().await;
        let url = trio.url();
        (Self(RwLock::new(Place::Master(Box::new(trio)))), url)
    }

    /// Whether a busy machine let a master seem gone that was not meant to. Then the other is the one from
    /// here on.
    async fn was_replaced(&self) -> bool {
        let mut place = self.0.write().await;
        let Place::Master(trio) = &mut *place else {
            return false;
        };
        let replaced = trio.is_led_by(&trio.replica).await;
        if replaced {
            trio.failed_over().await;
            trio.swap().await;
        }
        replaced
    }

    /// The server, which stays up as long as the answer is kept.
    pub(super) async fn up(&self) -> RwLockReadGuard<'_, RedisServer> {
        RwLockReadGuard::map(self.0.read().await, Place::master)
    }
}

/// Strikes one fault after the other, until the run is over: a failover takes longer than was planned.
pub(super) async fn strike(
    servers: Servers,
    lane: Lane,
    recorder: Recorder,
    over: watch::Receiver<bool>,
) {
    for step in lane {
        sleep(step.pause).await;
        if *over.borrow() {
            return;
        }
        let struck = step.servers.iter().map(|n| {
            let number = number_of(*n, servers.len());
            strike_and_note(&servers[*n], number, &step, &recorder)
        });
        join_all(struck).await;
    }
}

async fn strike_and_note(server: &Server, number: Option<usize>, step: &Step, recorder: &Recorder) {
    let start = clock::now();
    let key = (step.kind == FaultKind::LockDeleted).then(|| format!("k{}", step.number));
    let struck = strike_one(server, step).await;
    let note = |kind, key| {
        recorder.note(Record::Fault(Fault {
            kind,
            start,
            end: clock::now(),
            key,
            process: None,
            server: number,
            messages: None,
        }));
    };
    if struck {
        note(step.kind, key);
    }
    if server.was_replaced().await {
        note(FaultKind::MasterPaused, None);
    }
}

/// Whether it had any effect.
async fn strike_one(server: &Server, step: &Step) -> bool {
    match step.kind {
        FaultKind::ServerPaused => {
            let place = server.0.write().await;
            place.master().pause();
            sleep(step.lasts).await;
            place.master().resume();
            true
        }
        FaultKind::ServerSlowed => {
            let place = server.0.write().await;
            slow_down(place.master(), step.lasts).await;
            true
        }
        FaultKind::ServerRestarted => {
            let place = server.0.write().await;
            place.master().kill();
            sleep(step.lasts).await;
            tokio::task::block_in_place(|| place.master().restart_with_data());
            place.master().loaded().await;
            true
        }
        FaultKind::ServerKilled => {
            let place = server.0.write().await;
            place.master().kill();
            sleep(step.lasts).await;
            restart(place.master());
            true
        }
        FaultKind::MasterKilled | FaultKind::MasterPaused => {
            let mut place = server.0.write().await;
            let Place::Master(trio) = &mut *place else {
                unreachable!("one server has no replica")
            };
            fail_over(trio, step).await;
            true
        }
        FaultKind::ClientsKilled => {
            let redis = server.up().await;
            redis.kill_clients("normal").await + redis.kill_clients("pubsub").await > 0
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
        kind => unreachable!("{kind} is no fault of a server"),
    }
}

/// The replica takes the place of the master, which comes back as its replica.
async fn fail_over(trio: &mut Trio, step: &Step) {
    if step.kind == FaultKind::MasterKilled {
        trio.master.kill();
        trio.failed_over().await;
        sleep(step.lasts).await;
        restart(&trio.master);
    } else {
        trio.master.pause();
        sleep(step.lasts).await;
        trio.failed_over().await;
        trio.master.resume();
    }
    trio.swap().await;
}

/// A fifth of its time is left to it.
async fn slow_down(redis: &RedisServer, lasts: Duration) {
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        redis.pause();
        sleep(Duration::from_millis(40)).await;
        redis.resume();
        sleep(Duration::from_millis(10)).await;
    }
}

/// Launching takes a while, and blocks.
fn restart(redis: &RedisServer) {
    tokio::task::block_in_place(|| redis.restart());
}

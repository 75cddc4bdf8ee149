//! The server of a run, and what befalls it.

use std::sync::Arc;

use tokio::{
    sync::{RwLock, RwLockReadGuard},
    time::sleep,
};

use super::{
    clock,
    collect::Recorder,
    record::{Fault, FaultKind, Record},
    schedule::{Lane, Step},
    watch::name_of,
};
use crate::RedisServer;

/// A server that may be away. Who wants to ask it waits until it is back.
#[derive(Debug)]
pub(super) struct Server(RwLock<RedisServer>);

impl Server {
    pub(super) fn start() -> Self {
        Self(RwLock::new(RedisServer::start()))
    }

    /// The server, which stays up as long as the answer is kept.
    pub(super) async fn up(&self) -> RwLockReadGuard<'_, RedisServer> {
        self.0.read().await
    }
}

/// Strikes one fault after the other.
pub(super) async fn strike(server: Arc<Server>, lane: Lane, recorder: Recorder) {
    for step in lane {
        sleep(step.pause).await;
        let start = clock::now();
        let key = (step.kind == FaultKind::LockDeleted).then(|| format!("k{}", step.number));
        let struck = strike_one(&server, &step).await;
        if struck {
            recorder.note(Record::Fault(Fault {
                kind: step.kind,
                start,
                end: clock::now(),
                key,
                process: None,
                messages: None,
            }));
        }
    }
}

/// Whether it had any effect.
async fn strike_one(server: &Server, step: &Step) -> bool {
    match step.kind {
        FaultKind::ServerPaused => {
            let redis = server.0.write().await;
            redis.pause();
            sleep(step.lasts).await;
            redis.resume();
            true
        }
        FaultKind::ServerKilled => {
            let redis = server.0.write().await;
            redis.kill();
            sleep(step.lasts).await;
            restart(&redis);
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

/// Launching takes a while, and blocks.
fn restart(redis: &RedisServer) {
    tokio::task::block_in_place(|| redis.restart());
}

//! The lock clients of a process of a history, which may end during use.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use rlock_core::{LockClient, LockClientBuilder, Reentry, StoreUrl};
use tokio::sync::watch;

use super::{
    Phase,
    caller::{Caller, print},
    session::Session,
};
use crate::histories::{
    clock,
    mode::Usage,
    options::ClientOptions,
    record::{Fault, FaultKind, Record, client_of},
};

/// The time-out for replicas.
const REPLICATED: Duration = Duration::from_millis(500);

/// The pause between two short-lived clients of a process. Four processes together connect one about every 100 ms.
const VISITS: Duration = Duration::from_millis(350);

pub(super) struct Clients {
    options: ClientOptions,
    places: Vec<Mutex<Place>>,
}

struct Place {
    client: LockClient,
    id: String,
}

impl Clients {
    pub(super) async fn connect(options: &ClientOptions, rng: &mut Rng) -> Self {
        let mut places = Vec::new();
        for _ in 0..options.clients {
            let place = Place::connect(options, rng).await;
            places.push(Mutex::new(place));
        }
        Self {
            options: options.clone(),
            places,
        }
    }

    /// Returns whether the store is embedded in this process.
    pub(super) fn embedded(&self) -> bool {
        is_embedded(self.url())
    }

    /// Returns whether Sentinels name the server.
    pub(super) fn has_sentinels(&self) -> bool {
        self.url().contains("-sentinel://")
    }

    /// The URL of the store, or of its first server.
    pub(super) fn url(&self) -> &str {
        &self.options.urls[0]
    }

    /// Returns the modes of the calls of the key with this number.
    pub(super) fn usage_of(&self, number: u32) -> Usage {
        match *self.options.urls {
            [_] => Usage::of(number),
            _ => Usage::of(number).on_quorum(),
        }
    }

    pub(super) fn number(&self) -> usize {
        self.places.len()
    }

    pub(super) fn at(&self, place: usize) -> LockClient {
        self.place(place).client.clone()
    }

    fn place(&self, place: usize) -> MutexGuard<'_, Place> {
        self.places[place]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Shuts all clients down. Returns whether everything was released.
    pub(super) async fn shut_down(&self) -> bool {
        let mut clean = true;
        for place in 0..self.places.len() {
            clean &= self.at(place).shutdown().await.is_ok();
        }
        clean
    }
}

fn is_embedded(url: &str) -> bool {
    url.starts_with("memory:")
}

impl Place {
    /// Connects a client with random options. Waits while a server is down.
    async fn connect(given: &ClientOptions, rng: &mut Rng) -> Self {
        let process = given.process;
        let mut builder = options(rng);
        if let replicas @ 1.. = given.replicas {
            builder = builder.wait_for_replicas(replicas as usize, REPLICATED);
        }
        let protocol = if given.urls[0].starts_with("redis") && rng.u8(..4) == 0 {
            "?protocol=resp2"
        } else {
            ""
        };
        let urls = given.urls.iter().map(|url| format!("{url}{protocol}"));
        let urls: Vec<String> = urls.collect();
        loop {
            if let Some(client) = try_to_connect(builder.clone(), &urls).await {
                let id = id_of(&client, process).await;
                print(&Record::Started {
                    process,
                    client: id.clone(),
                });
                return Self { client, id };
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn options(rng: &mut Rng) -> LockClientBuilder {
    const TIMEOUTS: [u64; 3] = [300, 1_000, 2_000];
    let reentry = if rng.u8(..3) == 0 {
        Reentry::Local
    } else {
        Reentry::Counted
    };
    LockClient::builder()
        .connect_timeout(Duration::from_secs(1))
        .response_timeout(Duration::from_millis(TIMEOUTS[rng.usize(..3)]))
        .reentry(reentry)
        .max_local_handovers(if rng.u8(..3) == 0 { 0 } else { 16 })
        .second_connection(rng.u8(..4) > 0)
}

async fn try_to_connect(builder: LockClientBuilder, urls: &[String]) -> Option<LockClient> {
    let client = match urls {
        [url] => builder.connect(url).await,
        urls => builder.connect(StoreUrl::quorum(urls)).await,
    };
    client.ok()
}

/// Identifies a client by its owners.
async fn id_of(client: &LockClient, process: u32) -> String {
    let lock = client.lock(format!("hello-{process}"));
    loop {
        let lock = lock.clone().lease(Duration::from_millis(500));
        if let Ok(guard) = lock.acquire().await {
            let owner = guard.owner();
            drop(guard);
            return client_of(&owner).to_owned();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Ends clients of an embedded store during use, and replaces them. The store continues, like a
/// server when a process dies.
pub(super) async fn replace(clients: Arc<Clients>, phase: watch::Receiver<Phase>, mut rng: Rng) {
    let mut until_next = 0;
    while *phase.borrow() == Phase::Work {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if until_next > 0 {
            until_next -= 1;
            continue;
        }
        until_next = rng.u32(10..40);
        let place = rng.usize(..clients.places.len());
        let next = Place::connect(&clients.options, &mut rng).await;
        let before = std::mem::replace(&mut *clients.place(place), next);
        end(before, clients.options.process).await;
    }
}

/// Connects one client after the other, each of which makes one call and ends. A new client connects to the master that the
/// Sentinels name now, while a connected one may still be at the former master.
pub(super) async fn visit(
    options: ClientOptions,
    caller: Caller,
    phase: watch::Receiver<Phase>,
    mut rng: Rng,
) {
    let options = ClientOptions {
        clients: 1,
        ..options
    };
    while *phase.borrow() == Phase::Work {
        tokio::time::sleep(VISITS).await;
        let clients = Arc::new(Clients::connect(&options, &mut rng).await);
        let mut session = Session {
            caller: caller.clone(),
            clients: Arc::clone(&clients),
            place: 0,
            keys: options.keys,
            rng: rng.fork(),
        };
        session.calls().await;
        drop(session);
        if let Some(Clients { places, .. }) = Arc::into_inner(clients) {
            for place in places {
                let place = place.into_inner().unwrap_or_else(PoisonError::into_inner);
                end(place, options.process).await;
            }
        }
    }
}

async fn end(place: Place, process: u32) {
    let start = clock::now();
    let closed = Record::Closed {
        client: place.id.clone(),
        at: start,
    };
    print(&closed);
    // Blocking bodies may prevent the release. Then their leases end.
    let _ = place.client.shutdown().await;
    print(&Record::Ended {
        client: place.id,
        at: clock::now(),
    });
    print(&Record::Fault(Fault {
        process: Some(process),
        ..Fault::new(FaultKind::ClientShutDown, start, clock::now())
    }));
}

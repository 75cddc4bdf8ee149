//! Compares the replies of the SQL functions on a real server with the rules of the embedded store, which the model runs.

use std::{collections::BTreeMap, future::poll_fn, time::Duration};

use rlock_model::{
    differential::{CLIENTS, KEYS, KeyView, Observed, Operation, Reply, Subject, run},
    server::{client, key},
};
use rlock_proto::{
    key::Key,
    lease::Time,
    store::{AcquireRequest, Acquired, Applied, Notification, QUEUE_LIFETIME, StoredLock, TakenBy},
};
use rlock_testkit::PostgresServer;
use tokio::{runtime::Runtime, sync::mpsc};
use tokio_postgres::{AsyncMessage, Client, NoTls, Row, types::ToSql};

use super::differential::{less_a_second, lock, notification, parse, place, renewed};
use crate::common::connect;

/// How long the server keeps a fence after a lease (ms).
const RETENTION: i64 = 60_000;

/// A client that listens, and what it has received.
struct Listening {
    session: Client,
    received: mpsc::UnboundedReceiver<String>,
}

struct Functions<'a> {
    server: &'a PostgresServer,
    runtime: Runtime,
    session: Client,
    /// The end of the names of the functions.
    version: String,
    listening: Vec<Option<Listening>>,
    /// The number of checks that the listeners have received everything.
    rounds: u64,
    now: Duration,
    /// When each wait queue ends in the model, unless an owner joins it.
    queues: BTreeMap<Key, Duration>,
}

fn millis(time: Duration) -> i64 {
    time.as_millis().try_into().expect("it is short")
}

fn signed(fence: u64) -> i64 {
    fence.try_into().expect("it is a fence")
}

fn unsigned(number: i64) -> u64 {
    number.try_into().expect("it is not negative")
}

fn done(is_done: bool) -> Reply {
    Reply::Applied(if is_done {
        Applied::Done
    } else {
        Applied::NotHeld
    })
}

impl<'a> Functions<'a> {
    fn new(server: &'a PostgresServer) -> Self {
        let runtime = Runtime::new().expect("threads");
        let (session, version) = runtime.block_on(async {
            // It creates the schema.
            drop(connect(server.url()).await);
            let session = server.session().await;
            let version = "SELECT substr(proname, 8) FROM pg_proc WHERE proname LIKE 'acquire%'";
            let version = session.query_one(version, &[]).await;
            (session, version.expect("one version").get(0))
        });
        Self {
            server,
            runtime,
            session,
            version,
            listening: (0..CLIENTS).map(|_| None).collect(),
            rounds: 0,
            now: Duration::ZERO,
            queues: BTreeMap::new(),
        }
    }

    fn rows(&self, statement: &str, parameters: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        let statement = if statement.contains("rlock.") {
            &statement.replacen('(', &format!("{}(", self.version), 1)
        } else {
            statement
        };
        let rows = self.session.query(statement, parameters);
        let rows = self.runtime.block_on(rows);
        rows.unwrap_or_else(|error| panic!("{statement}: {error:?}"))
    }

    fn row(&self, statement: &str, parameters: &[&(dyn ToSql + Sync)]) -> Row {
        self.rows(statement, parameters).pop().expect("a row")
    }

    fn listen(&self, number: u8) -> Listening {
        let (client, url) = (client(number), self.server.url());
        self.runtime.block_on(async {
            let opened = tokio_postgres::connect(&url, NoTls).await;
            let (session, mut connection) = opened.expect("it runs");
            let (sender, received) = mpsc::unbounded_channel();
            tokio::spawn(async move {
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    if let AsyncMessage::Notification(it) = message {
                        let _ = sender.send(it.payload().to_owned());
                    }
                }
            });
            let (_, low) = client.as_u64_pair();
            let listen = format!("LISTEN \"rlock:{client}\"");
            session.batch_execute(&listen).await.expect("it may");
            let low = i64::from_be_bytes(low.to_be_bytes());
            let proof = format!("SELECT pg_advisory_lock_shared({low})");
            session.batch_execute(&proof).await.expect("it may");
            Listening { session, received }
        })
    }

    fn leave(&mut self, number: u8) {
        let Some(listening) = self.listening[usize::from(number)].take() else {
            return;
        };
        let process = self.runtime.block_on(async {
            let process = listening
                .session
                .query_one("SELECT pg_backend_pid()", &[])
                .await;
            process.expect("it runs").get::<_, i32>(0)
        });
        drop(listening);
        let there = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1";
        while !self.rows(there, &[&process]).is_empty() {}
    }

    fn acquire(&mut self, ask: &AcquireRequest, floor: u64) -> Acquired {
        let keys: Vec<String> = ask.claims.iter().map(|claim| lock(&claim.key)).collect();
        let owners = ask.claims.iter().map(|claim| claim.owner.to_string());
        let owners: Vec<String> = owners.collect();
        let row = self.row(
            "SELECT * FROM rlock.acquire($1, $2, $3, $4, $5, $6)",
            &[
                &keys,
                &owners,
                &millis(ask.lease),
                &RETENTION,
                &ask.waits,
                &signed(less_a_second(floor)),
            ],
        );
        let fences: Vec<i64> = row.get("fences");
        let fences = fences.into_iter().map(unsigned);
        let (taken, sent_at): (Option<i32>, _) = (row.get("taken"), Time::default());
        let Some(taken) = taken else {
            let wanted = row.get("wanted");
            return Acquired::Granted {
                fences: fences.collect(),
                wanted,
                sent_at,
            };
        };
        let claim = usize::try_from(taken).expect("not negative");
        let (ttl, queued): (Option<i64>, i32) = (row.get("ttl"), row.get("queued"));
        if queued > 0 {
            let key = ask.claims[claim].key.clone();
            self.queues.insert(key, self.now + QUEUE_LIFETIME);
        }
        Acquired::Taken {
            claim,
            ttl: Some(Duration::from_millis(unsigned(ttl.unwrap_or_default()))),
            queued: place(queued.into()),
            sent_at,
            past_fences: fences.map(|fence| (fence > 0).then_some(fence)).collect(),
            retired: false,
            by: TakenBy::Unnamed,
        }
    }

    /// Moves the deadlines of all locks into the past.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        let by = millis(time);
        for (table, column) in [("holder", "expires_at"), ("waiter", "since")] {
            let sooner =
                format!("UPDATE rlock.{table} SET {column} = {column} - interval '{by} ms'");
            self.rows(&sooner, &[]);
        }
        let (over, going_on) =
            (self.queues.clone().into_iter()).partition(|(_, ends)| *ends <= self.now);
        self.queues = going_on;
        for key in BTreeMap::into_keys(over) {
            self.rows("DELETE FROM rlock.waiter WHERE key = $1", &[&lock(&key)]);
        }
    }

    fn view(&self, key: &Key) -> KeyView {
        let row = self.row("SELECT * FROM rlock.inspect($1)", &[&lock(key)]);
        let owners: Option<Vec<String>> = row.get("owners");
        let owners = owners.unwrap_or_default();
        let queue: Vec<String> = row.get("queue");
        let entry = owners.split_first().map(|(owner, others)| StoredLock {
            owner: owner.clone(),
            count: row.get::<_, i32>("entries").try_into().expect("few"),
            ttl: Some(Duration::from_millis(unsigned(row.get("ttl")))),
            fence: Some(unsigned(row.get("last_fence"))),
            other_fences: Vec::new(),
            queue: Vec::new(),
            holders: row.get::<_, i32>("holders").try_into().expect("few"),
            permits_taken: unsigned(row.get("permits_taken")),
            others: others.iter().map(|name| parse(name)).collect(),
        });
        KeyView {
            entry,
            queue: queue.iter().map(|name| parse(name)).collect(),
        }
    }

    /// Returns the notifications since the last call.
    fn notified(&mut self) -> Vec<Notification> {
        self.rounds += 1;
        let last = format!("round {}", self.rounds);
        let mut notified = Vec::new();
        for number in 0..CLIENTS {
            let channel = format!("rlock:{}", client(number));
            let Some(listening) = &mut self.listening[usize::from(number)] else {
                continue;
            };
            let received = &mut listening.received;
            self.runtime.block_on(async {
                let marker: [&(dyn ToSql + Sync); 2] = [&channel, &last];
                let sent = self.session.execute("SELECT pg_notify($1, $2)", &marker);
                sent.await.expect("no error");
                loop {
                    let text = received.recv().await.expect("it listens");
                    if text == last {
                        break;
                    }
                    notified.push(notification(&text));
                }
            });
        }
        notified
    }
}

impl Subject for Functions<'_> {
    fn reset(&mut self) {
        self.rows("DELETE FROM rlock.lock", &[]);
        self.queues.clear();
        self.notified();
        for number in 0..CLIENTS {
            if self.listening[usize::from(number)].is_none() {
                self.listening[usize::from(number)] = Some(self.listen(number));
            }
        }
    }

    fn is_member(&self) -> bool {
        false
    }

    fn refuses_late_acquires(&self) -> bool {
        false
    }

    fn restores(&self) -> bool {
        false
    }

    fn apply(&mut self, operation: &Operation) -> Observed {
        let mut reply = Reply::None;
        match operation {
            Operation::Acquire(ask, floor) => reply = Reply::Acquired(self.acquire(ask, *floor)),
            Operation::SetCount(ask) => {
                let row = self.row(
                    "SELECT rlock.set_count($1, $2, $3, $4, $5)",
                    &[
                        &lock(&ask.key),
                        &ask.owner.to_string(),
                        &i32::try_from(ask.count).expect("few"),
                        &millis(ask.lease),
                        &RETENTION,
                    ],
                );
                reply = done(row.get(0));
            }
            Operation::Downgrade(ask, floor) => {
                let row = self.row(
                    "SELECT rlock.downgrade($1, $2, $3, $4, $5)",
                    &[
                        &lock(&ask.key),
                        &ask.owner.to_string(),
                        &signed(ask.fence),
                        &RETENTION,
                        &signed(less_a_second(*floor)),
                    ],
                );
                reply = done(row.get(0));
            }
            Operation::Release(ask, floor) => {
                let row = self.row(
                    "SELECT rlock.release($1, $2, $3, $4, $5, $6)",
                    &[
                        &lock(&ask.key),
                        &ask.owner.to_string(),
                        &signed(ask.fence),
                        &millis(ask.min_hold),
                        &RETENTION,
                        &signed(less_a_second(*floor)),
                    ],
                );
                reply = done(row.get(0));
            }
            Operation::Renew(renewals, lease) => {
                let claims = renewals.iter().map(|renewal| &renewal.claim);
                let keys: Vec<String> = claims.clone().map(|claim| lock(&claim.key)).collect();
                let owners: Vec<String> = claims.map(|claim| claim.owner.to_string()).collect();
                let fences = renewals.iter().map(|renewal| signed(renewal.fence));
                let fences: Vec<i64> = fences.collect();
                let row = self.row(
                    "SELECT rlock.renew($1, $2, $3, $4, $5)",
                    &[&keys, &owners, &fences, &millis(*lease), &RETENTION],
                );
                let replies: Vec<i64> = row.get(0);
                reply = Reply::Renewed(replies.into_iter().map(renewed).collect());
            }
            Operation::Pass(time) => self.pass(*time),
            Operation::Leave(number) => self.leave(*number),
            Operation::Restart => {
                self.rows("DELETE FROM rlock.lock", &[]);
                self.queues.clear();
            }
            Operation::Restore(..) | Operation::LoseFence(_) => {
                panic!("{operation:?} is for the members of a quorum")
            }
        }
        Observed {
            reply,
            notifications: self.notified(),
            keys: (0..KEYS).map(|number| self.view(&key(number))).collect(),
        }
    }
}

#[test]
fn the_functions_reply_as_the_model_does() {
    let server = PostgresServer::start();
    let tally = run(Functions::new(&server));
    println!("{tally:?}");
    assert!(
        tally.granted > 100 && tally.taken > 100 && tally.notifications > 20,
        "{tally:?}"
    );
}

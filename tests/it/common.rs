//! Helpers that several test files share.

pub(crate) mod acl;
pub(crate) mod alone;
pub(crate) mod connections;
pub(crate) mod log;
pub(crate) mod recorder;
pub(crate) mod spans;

use std::{
    env,
    fmt::Debug,
    future::{Future, pending, poll_fn},
    panic::Location,
    pin::pin,
    process::Command,
    task::Poll,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rlock_core::{
    CurrentHold, Lock, LockClient, LockClientBuilder, LockError, LockGuard, LostCause, StoreUrl,
    current,
    election::{Election, LeaderChange, LeaderChanges, LeaderInfo},
    testing::use_tokio_clock,
};
use rlock_proto::store::fence_at;
use rlock_testkit::{RedisServer, Worker, eventually, leftovers::stays, within};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use self::{
    log::{keep_log, logged_of},
    recorder::{keep_metrics, metric},
};

/// The limit after which a test counts as hanging.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Longer than a busy machine stalls.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A lease that neither ends nor is renewed within a test: longer than [`LONG`], so a lock that is soon free was released.
pub(crate) const LASTING: Duration = Duration::from_secs(600);

/// Returns how often to repeat a test that depends on the order of events. `scripts/test-all`
/// multiplies the number.
pub(crate) fn rounds(few: u64) -> u64 {
    let times = env::var("RLOCK_TEST_ROUNDS").ok();
    few * times.map_or(1, |times| times.parse().expect("a number"))
}

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Returns the fence that a server sets first for a key.
pub(crate) fn fence_by_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.expect("a clock").as_micros();
    fence_at(u64::try_from(micros).expect("a date"))
}

/// Returns a builder with the default options, except for longer time-outs, because a busy machine may stall for seconds. Its clients
/// have a connection on the test's runtime.
pub(crate) fn builder() -> LockClientBuilder {
    let builder = LockClient::builder().connect_timeout(LONG);
    builder.response_timeout(RESPONSE_TIMEOUT)
}

/// Connects with the options of [`builder`].
pub(crate) async fn connect(store: impl Into<StoreUrl>) -> LockClient {
    builder().connect(store).await.expect("the store is up")
}

pub(crate) async fn client(server: &RedisServer) -> LockClient {
    connect(&server.url()).await
}

/// Connects two clients to one store.
pub(crate) async fn two_clients(url: &str) -> [LockClient; 2] {
    [connect(url).await, connect(url).await]
}

/// Connects to an embedded store that runs by the clock of the test's runtime. Without a name, the store is the client's own.
pub(crate) async fn on_tokio_clock(store: &str) -> LockClient {
    let client = use_tokio_clock(builder()).connect(store).await;
    client.expect("it needs no server")
}

/// Connects with this response time-out.
pub(crate) async fn connect_with(
    response_timeout: Duration,
    store: impl Into<StoreUrl>,
) -> LockClient {
    let builder = builder().response_timeout(response_timeout);
    builder.connect(store).await.expect("the store is up")
}

/// Like [`client`], over RESP2: without client tracking, and with a second connection for messages.
pub(crate) async fn resp2_client(server: &RedisServer) -> LockClient {
    connect(&resp2(&server.url())).await
}

pub(crate) fn resp2(url: &str) -> String {
    format!("{url}?protocol=resp2")
}

/// Returns the name on the server of a lock whose key has no braces.
pub(crate) fn name(key: &str) -> String {
    format!("lock:{{{key}}}")
}

/// Returns the name on the server of a lock's last fence.
pub(crate) fn fence(key: &str) -> String {
    format!("{}:fence", name(key))
}

/// Acquires a free lock with a lease that lasts for the whole test.
pub(crate) async fn hold(client: &LockClient, key: &str) -> LockGuard {
    let lock = client.lock(key).lease(LASTING);
    lock.acquire().await.expect("free")
}

/// Returns the innermost hold that the caller is inside.
pub(crate) fn here() -> CurrentHold {
    current().expect("inside a lock")
}

/// A task that acquires a lock.
pub(crate) type Acquiring = JoinHandle<Result<LockGuard, LockError>>;

pub(crate) fn acquiring(lock: Lock) -> Acquiring {
    tokio::spawn(async move { lock.acquire().await })
}

/// Runs a body that does not end. Returns its call, and what the body returned at its start.
pub(crate) async fn running<T: Send + 'static>(
    lock: &Lock,
    begins: impl FnOnce() -> T + Send + 'static,
) -> (JoinHandle<Result<(), LockError>>, T) {
    let (sender, begun) = oneshot::channel();
    let call = tokio::spawn(lock.run(async move {
        assert!(sender.send(begins()).is_ok(), "the test waits");
        pending::<()>().await;
    }));
    (call, begun.await.expect("it begins"))
}

/// Waits until the task has acquired its lock. Panics with the caller's location otherwise.
#[track_caller]
pub(crate) fn its_turn<T>(waiting: JoinHandle<Result<T, LockError>>) -> impl Future<Output = T> {
    let what = format!("its turn, at {}", Location::caller());
    async move {
        let outcome = within(LONG, &what, waiting).await;
        let outcome = outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
        outcome.unwrap_or_else(|error| panic!("{what}: {error}"))
    }
}

/// Releases the lock to the waiter, which gets a larger token and releases the lock, too.
pub(crate) async fn assert_passed_on(guard: LockGuard, waiting: Acquiring) {
    let before = guard.token();
    guard.release().await.expect("held");
    let next = its_turn(waiting).await;
    assert!(next.token() > before);
    next.release().await.expect("held");
}

/// Makes the store hand a lock off to a waiter of another client. Returns `message` if a message notified the waiter, and otherwise
/// `timer`. `template` is the name of the locks of one test.
pub(crate) async fn hand_off(
    (one, other): (&LockClient, &LockClient),
    key: &str,
    template: &'static str,
) -> &'static str {
    keep_metrics();
    let of = |by| {
        let labels = [("lock", template), ("by", by)];
        metric("rlock_arrivals_total", &labels).unwrap_or(0.0)
    };
    let before = of("message");
    let held = hold(one, key).await;
    let lock = other.lock(key).label(template).lease(LASTING).wait(LONG);
    let waiting = acquiring(lock);
    eventually(LONG, "it waits", async || {
        metric("rlock_waiting", &[("lock", template)]).is_some_and(|waiting| waiting > 0.0)
    })
    .await;
    held.release().await.expect("released all the same");
    its_turn(waiting).await.release().await.expect("held");
    if of("message") > before {
        "message"
    } else {
        "timer"
    }
}

/// Asserts that messages notify the waiters of the lock. On a busy machine a timer may be first, but not every time.
pub(crate) async fn assert_notified(
    clients: (&LockClient, &LockClient),
    key: &str,
    template: &'static str,
) {
    for _ in 0..5 {
        if hand_off(clients, key, template).await == "message" {
            return;
        }
    }
    panic!("the waiter for `{key}` is not notified: {template}");
}

/// Deletes a lock, and waits until its holder has noticed the loss. Asserts that the server reported the loss, or that it did not.
pub(crate) async fn assert_notices_a_loss(
    server: &RedisServer,
    client: &LockClient,
    is_reported: bool,
) {
    keep_log();
    // A renewal finds a loss that the server does not report.
    let lease = if is_reported { LASTING } else { ms(6000) };
    let lock = client.lock("lost").lease(lease);
    let guard = lock.acquire().await.expect("free");
    assert!(server.del(&name("lost")).await);
    within(LONG, "the loss is noticed", guard.lost()).await;
    let reported = async || {
        let lines = logged_of(&guard.owner());
        let change = "another client changed the lock";
        lines.iter().any(|line| line.contains(change))
    };
    if is_reported {
        eventually(LONG, "the report is logged", reported).await;
    } else {
        assert!(!reported().await);
    }
}

/// Returns the server's count of entries for the owner of this guard.
pub(crate) async fn count(server: &RedisServer, guard: &LockGuard) -> Option<u32> {
    let entries = server.hgetall(&name(guard.key())).await;
    let count = entries.get(&guard.owner())?;
    Some(count.parse().expect("a number"))
}

/// Waits until the server shows this number of entries of a hold.
pub(crate) async fn assert_soon_counted(server: &RedisServer, guard: &LockGuard, entries: u32) {
    eventually(LONG, "the server counts the entries", async || {
        count(server, guard).await == Some(entries)
    })
    .await;
}

/// Returns the remaining milliseconds of a lock in this database of the server; -2 without it.
pub(crate) async fn pttl_in(server: &RedisServer, database: u8, key: &str) -> i64 {
    const LOOK: &str = "redis.call('SELECT', ARGV[1]) return redis.call('PTTL', KEYS[1])";
    let database = database.to_string();
    server
        .command(&["EVAL", LOOK, "1", &name(key), &database])
        .await
}

pub(crate) async fn assert_soon_free(server: &RedisServer, key: &str) {
    eventually(LONG, "the lock is released", async || {
        !server.exists(&name(key)).await
    })
    .await;
}

/// Waits until the server has no keys of locks but those that stay.
pub(crate) async fn assert_nothing_left(server: &RedisServer) {
    eventually(LONG, "only tokens are left", async || {
        only_tokens_are_left(server).await
    })
    .await;
}

pub(crate) async fn only_tokens_are_left(server: &RedisServer) -> bool {
    let keys = server.keys("*").await;
    keys.iter().all(|key| stays(key))
}

/// Pauses the replica, and cuts it off from all later writes of the master.
pub(crate) async fn leave_behind(replica: &RedisServer, master: &RedisServer) {
    replica.catch_up_with(master).await;
    replica.pause();
    // A resumed replica would still read what its connection has received.
    assert_eq!(master.kill_clients("replica").await, 1);
}

/// Returns the name of a lock's wait queue on the server.
pub(crate) fn queue(key: &str) -> String {
    format!("{}:queue", name(key))
}

/// Returns the owners in the wait queue, in order.
pub(crate) async fn wait_queue(server: &RedisServer, key: &str) -> Vec<String> {
    server.command(&["ZRANGE", &queue(key), "0", "-1"]).await
}

/// Waits until this many owners are in the wait queue.
pub(crate) async fn assert_soon_queued(server: &RedisServer, key: &str, waiting: u64) {
    let queue = queue(key);
    eventually(LONG, "the waiters are queued", async || {
        server.command::<u64>(&["ZCARD", &queue]).await == waiting
    })
    .await;
}

/// Waits until this many owners are queued for the lock, as the store shows them to this client.
pub(crate) async fn assert_soon_waits(client: &LockClient, key: &str, waiting: usize) {
    eventually(LONG, "the waiters are queued", async || {
        let info = client.inspect(key).await.expect("a reply");
        info.is_some_and(|info| info.queued_owners.len() == waiting)
    })
    .await;
}

/// Waits until this many clients have subscribed to their channels.
pub(crate) async fn assert_soon_listening(server: &RedisServer, clients: usize) {
    eventually(LONG, "the clients have subscribed", async || {
        server.listening_clients().await == clients
    })
    .await;
}

/// Waits until the guard reports the loss of its lock.
pub(crate) async fn assert_lost(guard: &LockGuard, bound: Duration, cause: LostCause) {
    let reported = within(bound, "the guard reports the loss", guard.lost()).await;
    assert_eq!(reported, cause);
    assert!(!guard.is_valid(), "a lost guard is not valid");
    assert_eq!(guard.valid_for(), Duration::ZERO);
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the outcome of a call is at hand, not a reference to it"
)]
pub(crate) fn cause_of<T>(outcome: Result<T, LockError>) -> Option<LostCause> {
    match outcome {
        Err(LockError::Lost { cause, .. }) => Some(cause),
        _ => None,
    }
}

/// Asserts that the store did not reply in time, or refuses for a while. Returns the text of the error.
#[track_caller]
pub(crate) fn assert_unavailable<T: Debug>(outcome: Result<T, LockError>, why: &str) -> String {
    let is_meant = |error: &_| matches!(error, LockError::Unavailable { .. });
    assert_fails(outcome, why, is_meant)
}

/// Asserts that the store refuses the call for good. Returns the text of the error.
#[track_caller]
pub(crate) fn assert_refused<T: Debug>(outcome: Result<T, LockError>, why: &str) -> String {
    let is_meant = |error: &_| matches!(error, LockError::Refused { .. });
    assert_fails(outcome, why, is_meant)
}

/// Asserts that an option is refused. Returns the text of the error.
#[track_caller]
pub(crate) fn assert_invalid<T: Debug>(outcome: Result<T, LockError>, why: &str) -> String {
    let is_meant = |error: &_| matches!(error, LockError::InvalidOption { .. });
    assert_fails(outcome, why, is_meant)
}

#[track_caller]
fn assert_fails<T: Debug>(
    outcome: Result<T, LockError>,
    why: &str,
    is_meant: fn(&LockError) -> bool,
) -> String {
    let error = outcome.expect_err(why);
    assert!(is_meant(&error), "{why}: {error:?}");
    format!("{error:#}")
}

/// Drops the future right after this many polls, unless it completes before.
pub(crate) async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Pending if left == 0 => Poll::Ready(None),
            poll => poll.map(Some),
        }
    })
    .await
}

/// Polls the future once, so that it joins its queues.
pub(crate) async fn begin<F: Future + Unpin>(future: &mut F) {
    poll_fn(|context| {
        let poll = std::pin::Pin::new(&mut *future).poll(context);
        assert!(poll.is_pending(), "it has to wait");
        Poll::Ready(())
    })
    .await;
}

/// Starts `tests/src/bin/worker.rs`.
pub(crate) fn worker(words: &[&str]) -> Worker {
    Worker::start(Command::new(env!("CARGO_BIN_EXE_worker")).args(words))
}

/// Starts a worker that acquires a lock and then reads commands. Returns once it holds the lock.
pub(crate) async fn holder(server: &RedisServer, key: &str, lease: Duration) -> Worker {
    let mut worker = worker(&["hold", &server.url(), key, &lease.as_millis().to_string()]);
    worker.expect_line(LONG, "holding").await;
    worker
}

/// Starts a worker that waits for the lock `k`, at this place in the queue.
pub(crate) async fn waiting_process(server: &RedisServer, place: u64) -> Worker {
    let lease = LASTING.as_millis().to_string();
    let worker = worker(&["hold", &server.url(), "k", &lease]);
    assert_soon_queued(server, "k", place).await;
    worker
}

/// Starts a call that waits for the lock, and returns once it is the only one in the queue.
pub(crate) async fn enqueued(server: &RedisServer, lock: Lock) -> Acquiring {
    let key = lock.key().to_owned();
    let waiting = acquiring(lock);
    assert_soon_queued(server, &key, 1).await;
    waiting
}

/// Returns the output, and how long it took.
pub(crate) async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let started = Instant::now();
    let output = future.await;
    (output, started.elapsed())
}

/// Reads the changes of an election in a task.
pub(crate) fn observed(election: &Election) -> mpsc::UnboundedReceiver<LeaderChange> {
    let mut changes = election.changes().expect("a valid name");
    let (sender, observed) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(change) = changes.next().await {
            let _ = sender.send(change);
        }
    });
    observed
}

/// Returns the next leader that is observed.
pub(crate) async fn next_leader(
    observed: &mut mpsc::UnboundedReceiver<LeaderChange>,
) -> LeaderInfo {
    leader_among(async || observed.recv().await).await
}

/// Reads changes up to the next leader. Nothing else reads them, so changes in between may be merged.
pub(crate) async fn leader_of(changes: &mut LeaderChanges) -> LeaderInfo {
    leader_among(async || changes.next().await).await
}

async fn leader_among(mut next: impl AsyncFnMut() -> Option<LeaderChange>) -> LeaderInfo {
    let leader = async {
        loop {
            let change = next().await.expect("the client lives");
            if let LeaderChange::Leader(leader) = change {
                return leader;
            }
        }
    };
    within(LONG, "a leader is observed", leader).await
}

/// Waits until an observer learns that no process leads.
pub(crate) async fn nobody_leads(observed: &mut mpsc::UnboundedReceiver<LeaderChange>) {
    let nobody =
        async { while observed.recv().await.expect("the client lives") != LeaderChange::Nobody {} };
    within(LONG, "it is observed that nobody leads", nobody).await;
}

//! Lost locks: the holder is notified, its body stops, and other clients are not affected.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rlock_core::{CurrentHold, LockClient, LockError, LostCause, current, distributed_lock};
use rlock_testkit::{RedisServer, eventually, within};
use tokio::sync::{mpsc, oneshot};

use crate::common::{
    LASTING, LONG, assert_lost, assert_soon_free, begin, cause_of, client, count, holder, ms, name,
    resp2_client, timed,
};

/// Far less than the ten seconds until the renewal of a lease of thirty.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Sets a flag when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A body in its own task, which waits for a message before its second step.
struct Running {
    steps: Arc<AtomicU32>,
    dropped: Arc<AtomicBool>,
    go: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<Result<(), LockError>>,
}

impl Running {
    async fn start(client: &LockClient, lease: Duration) -> Self {
        let (steps, dropped) = (Arc::new(AtomicU32::new(0)), Arc::default());
        let (go, word) = oneshot::channel();
        let (inside, entered) = oneshot::channel();
        let lock = client.lock("k").lease(lease);
        let values = Dropped(Arc::clone(&dropped));
        let task = tokio::spawn({
            let steps = Arc::clone(&steps);
            async move {
                let body = async move {
                    let _values = values;
                    steps.fetch_add(1, Ordering::SeqCst);
                    inside.send(()).expect("the test waits");
                    let _ = word.await;
                    steps.fetch_add(1, Ordering::SeqCst);
                };
                lock.run(body).await
            }
        });
        entered.await.expect("the body runs");
        Self {
            steps,
            dropped,
            go,
            task,
        }
    }

    /// The message never arrives while the body runs.
    async fn assert_stopped(self, bound: Duration, cause: LostCause) {
        let outcome = within(bound, "the body is stopped", self.task).await;
        let error = outcome.expect("no panic").expect_err("it never ended");
        assert!(self.dropped.load(Ordering::SeqCst), "its values are gone");
        assert_eq!(self.steps.load(Ordering::SeqCst), 1);
        assert!(self.go.send(()).is_err(), "the body has ended");
        assert!(error.to_string().contains("lock `k` was lost"), "{error}");
        assert_eq!(cause_of::<()>(Err(error)), Some(cause));
    }
}

#[tokio::test]
async fn a_deleted_lock_is_noticed_long_before_its_renewal() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("k").lease(LASTING);
    let guard = guard.acquire().await.expect("free");
    assert!(server.del(&name("k")).await);
    assert_lost(&guard, AT_ONCE, LostCause::Removed).await;
    let outcome = guard.release().await;
    assert_eq!(cause_of(outcome), Some(LostCause::Removed));
}

#[tokio::test]
async fn whatever_takes_the_lock_away_stops_the_body() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = name("k");
    let ways: [&[&[&str]]; 5] = [
        &[&["DEL", &lock]],
        &[&["FLUSHALL"]],
        &[&["RENAME", &lock, "elsewhere"]],
        &[&["DEL", &lock], &["HSET", &lock, "somebody:1", "1"]],
        &[&["SET", &lock, "of another type"]],
    ];
    for way in ways {
        let running = Running::start(&client, LASTING).await;
        for command in way {
            let _: redis::Value = server.command(command).await;
        }
        running.assert_stopped(AT_ONCE, LostCause::Removed).await;
        server.del(&lock).await;
    }
}

#[tokio::test]
async fn a_loss_is_noticed_at_once_after_every_kind_of_own_change() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(4500));
    for change in ["nested entry", "nested release", "renewal"] {
        let guard = lock.acquire().await.expect("free");
        let mut watch = server.watch_commands().await;
        let mut nested = None;
        if change == "renewal" {
            eventually(LONG, "it is renewed", async || {
                watch.count_of("EVALSHA").await > 0
            })
            .await;
        } else {
            nested = Some(guard.scope(lock.acquire()).await.expect("enters"));
        }
        if change == "nested release"
            && let Some(nested) = nested.take()
        {
            nested.release().await.expect("held");
        }
        assert!(guard.is_valid(), "{change}: own changes are no loss");
        assert!(server.del(&name("k")).await);
        // The next renewal is a second and a half away.
        assert_lost(&guard, ms(1000), LostCause::Removed).await;
        if let Some(nested) = nested {
            assert_lost(&nested, ms(1000), LostCause::Removed).await;
        }
    }
}

#[tokio::test]
async fn without_a_report_the_next_renewal_finds_the_loss() {
    let server = RedisServer::start();
    let client = resp2_client(&server).await;
    for command in [vec!["DEL", "lock:{k}"], vec!["FLUSHALL"]] {
        let running = Running::start(&client, ms(900)).await;
        let _: redis::Value = server.command(&command).await;
        running.assert_stopped(AT_ONCE, LostCause::Removed).await;
    }
}

#[tokio::test]
async fn a_lock_that_is_not_renewed_is_missed_too() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("k").lease(LASTING).watchdog(false);
    let guard = guard.acquire().await.expect("free");
    assert!(server.del(&name("k")).await);
    assert_lost(&guard, AT_ONCE, LostCause::Removed).await;
}

/// The body works without an await while the lock is lost, and then awaits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_body_is_stopped_at_its_next_await() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let steps = Arc::new(Mutex::new(Vec::new()));
    let (inside, entered) = oneshot::channel::<CurrentHold>();
    let (go, word) = std::sync::mpsc::channel::<()>();
    let task = tokio::spawn({
        let (lock, steps) = (client.lock("k").lease(LASTING), Arc::clone(&steps));
        async move {
            let body = async move {
                let hold = current().expect("inside");
                inside.send(hold).expect("the test waits");
                // Without `block_in_place` the runtime would not wake the test either.
                let word = tokio::task::block_in_place(|| word.recv());
                word.expect("the test sends a signal");
                steps.lock().expect("no panic").push("the work in hand");
                tokio::task::yield_now().await;
                steps.lock().expect("no panic").push("the next step");
            };
            lock.run(body).await
        }
    });
    let hold = entered.await.expect("the body runs");
    assert!(server.del(&name("k")).await);
    let cause = within(AT_ONCE, "the loss is noticed", hold.lost()).await;
    assert_eq!(cause, LostCause::Removed);
    assert!(!hold.is_valid());
    go.send(()).expect("the body waits");
    let outcome = within(LONG, "the body is stopped", task).await;
    assert_eq!(
        cause_of(outcome.expect("no panic")),
        Some(LostCause::Removed)
    );
    assert_eq!(*steps.lock().expect("no panic"), ["the work in hand"]);
}

/// Takes a step every few milliseconds, and records the time of each.
async fn stroll(steps: Arc<Mutex<Vec<Instant>>>, first: oneshot::Sender<()>) {
    let mut first = Some(first);
    loop {
        steps.lock().expect("no panic").push(Instant::now());
        if let Some(first) = first.take() {
            first.send(()).expect("the test waits");
        }
        tokio::time::sleep(ms(5)).await;
    }
}

async fn a_body_stops_before_its_lease_ends_when(strikes: impl AsyncFn(&RedisServer)) {
    const LEASE: Duration = Duration::from_millis(1200);
    let server = RedisServer::start();
    let client = client(&server).await;
    let steps = Arc::new(Mutex::new(Vec::new()));
    let (first, started) = oneshot::channel();
    let (hold, holding) = oneshot::channel();
    let task = tokio::spawn({
        let (lock, steps) = (client.lock("k").lease(LEASE), Arc::clone(&steps));
        async move {
            let body = async move {
                let _ = hold.send(current().expect("inside"));
                stroll(steps, first).await;
            };
            lock.run(body).await
        }
    });
    started.await.expect("the body runs");
    let hold = holding.await.expect("the body runs");
    tokio::time::sleep(LEASE).await;
    assert!(hold.is_valid(), "renewed until now");

    strikes(&server).await;
    let struck = Instant::now();
    let outcome = within(LONG, "the body is stopped", task).await;
    let stopped = struck.elapsed();
    assert_eq!(
        cause_of(outcome.expect("no panic")),
        Some(LostCause::Expired)
    );
    assert!(!hold.is_valid());
    assert!(
        stopped <= LEASE + ms(1000),
        "stopped only after {stopped:?}"
    );
    // No lease was granted after the fault, so none lasts longer than this.
    let last = *steps.lock().expect("no panic").last().expect("steps");
    assert!(
        last <= struck + LEASE + ms(500),
        "the last step came {:?} after the stroke",
        last - struck
    );
    let before = steps.lock().expect("no panic").len();
    tokio::time::sleep(ms(100)).await;
    assert_eq!(steps.lock().expect("no panic").len(), before);
}

#[tokio::test]
async fn a_frozen_server_stops_the_body_by_the_end_of_its_lease() {
    a_body_stops_before_its_lease_ends_when(async |server| server.pause()).await;
}

#[tokio::test]
async fn a_killed_server_stops_the_body_by_the_end_of_its_lease() {
    a_body_stops_before_its_lease_ends_when(async |server| server.kill()).await;
}

#[tokio::test]
async fn a_server_that_was_paused_past_the_lease_grants_the_lock_to_another() {
    let server = RedisServer::start();
    let (client, other) = (client(&server).await, client(&server).await);
    let guard = client.lock("k").lease(ms(700));
    let guard = guard.acquire().await.expect("free");
    server.pause();
    assert_lost(&guard, LONG, LostCause::Expired).await;
    tokio::time::sleep(ms(100)).await;
    server.resume();
    // The server executes the renewals of the pause, but they are too late.
    let next = other.lock("k").wait(LONG).acquire().await.expect("free");
    assert!(next.fencing_token() > guard.fencing_token());
    tokio::time::sleep(ms(300)).await;
    assert!(!guard.is_valid(), "a lost lock does not come back");
    assert_eq!(cause_of(guard.release().await), Some(LostCause::Expired));
    next.release().await.expect("held");
}

/// The clock shows that the lease has ended, so no request is needed.
#[tokio::test]
async fn a_release_after_the_leases_end_does_not_wait_for_the_server() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(500));
    let guard = lock.acquire().await.expect("free");
    server.pause();
    tokio::time::sleep(ms(600)).await;
    assert!(!guard.is_valid(), "by the clock");
    let (outcome, took) = timed(guard.release()).await;
    assert_eq!(cause_of(outcome), Some(LostCause::Expired));
    assert!(took < ms(2500), "it took {took:?}");
    server.resume();
    assert_soon_free(&server, "k").await;
}

#[tokio::test]
async fn a_release_after_the_loss_leaves_the_next_owner_alone() {
    let server = RedisServer::start();
    // No notification reaches this client before it releases.
    let (client, other) = (resp2_client(&server).await, client(&server).await);
    for drop_it in [false, true] {
        let guard = client.lock("k").lease(LASTING);
        let guard = guard.acquire().await.expect("free");
        assert!(server.del(&name("k")).await);
        let next = other.lock("k").acquire().await.expect("free");
        assert!(guard.is_valid(), "it does not know yet");
        if drop_it {
            let mut watch = server.watch_commands().await;
            drop(guard);
            eventually(LONG, "the release is sent", async || {
                watch.count_of("EVALSHA").await > 0
            })
            .await;
        } else {
            let outcome = guard.release().await;
            assert_eq!(cause_of(outcome), Some(LostCause::Removed));
        }
        assert_eq!(count(&server, &next).await, Some(1), "still the next's");
        next.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_loss_that_is_noticed_after_the_body_is_reported_at_the_end() {
    let server = RedisServer::start();
    let client = resp2_client(&server).await;
    let body = async {
        assert!(server.del(&name("k")).await);
    };
    let outcome = client.lock("k").lease(LASTING).run(body).await;
    assert_eq!(cause_of(outcome), Some(LostCause::Removed));
}

#[distributed_lock(key = "k", lease = "30s", on_lost = "continue")]
async fn carries_on(server: &RedisServer) -> Result<LostCause, LockError> {
    let hold = current().expect("inside");
    assert!(server.del(&name("k")).await);
    let cause = within(AT_ONCE, "the loss is noticed", hold.lost()).await;
    for _ in 0..10 {
        tokio::time::sleep(ms(10)).await;
        assert!(!hold.is_valid());
    }
    Ok(cause)
}

#[tokio::test]
async fn a_body_that_is_to_continue_ends_by_itself_and_returns_its_value() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let cause = client.scope(carries_on(&server)).await;
    assert_eq!(cause.expect("its own value"), LostCause::Removed);
    assert!(!server.exists(&name("k")).await);
}

#[tokio::test]
async fn an_annotated_body_is_stopped_by_default() {
    #[distributed_lock(key = "k", lease = "30s")]
    async fn stops(server: &RedisServer) -> Result<(), LockError> {
        assert!(server.del(&name("k")).await);
        std::future::pending().await
    }
    let server = RedisServer::start();
    let client = client(&server).await;
    let outcome = within(AT_ONCE, "it is stopped", client.scope(stops(&server))).await;
    assert_eq!(cause_of(outcome), Some(LostCause::Removed));
}

/// A process can always be paused. When it resumes, it knows of the loss before its next step.
#[tokio::test]
async fn a_process_that_was_stopped_past_its_lease_finds_out_before_its_next_step() {
    const LEASE: Duration = Duration::from_secs(1);
    let server = RedisServer::start();
    let mut worker = holder(&server, "k", LEASE).await;
    worker.send("valid?");
    worker.expect_line(LONG, "valid true").await;
    worker.send("step");
    worker.expect_line(LONG, "step").await;

    worker.pause();
    let other = client(&server).await;
    let next = other.lock("k").wait(LONG).acquire().await;
    let next = next.expect("the lease has ended");
    // Both lines are ready when the process resumes.
    worker.send("valid?");
    worker.send("step");
    worker.resume();
    worker.close_input();
    let said = worker.remaining_lines(LONG).await;
    assert!(said.contains(&"valid false".to_owned()), "{said:?}");
    assert!(said.contains(&"lost Expired".to_owned()), "{said:?}");
    assert!(!said.contains(&"step".to_owned()), "{said:?}");
    assert_eq!(count(&server, &next).await, Some(1), "the next is unharmed");
    next.release().await.expect("held");
}

#[tokio::test]
async fn a_loss_passes_the_turn_to_the_next_local_waiter() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(LASTING).wait(LONG);
    let lost = lock.acquire().await.expect("free");
    let mut waiting = Box::pin(lock.acquire());
    begin(&mut waiting).await;
    assert!(server.del(&name("k")).await);
    let (next, waited) = timed(waiting).await;
    let next = next.expect("its turn");
    assert!(waited < AT_ONCE, "it waited {waited:?}");
    assert!(!lost.is_valid(), "the first loss was notified before");
    assert!(next.fencing_token() > lost.fencing_token());
    // The old guard does not affect the new one.
    drop(lost);
    tokio::time::sleep(ms(200)).await;
    assert!(next.is_valid());
    assert_eq!(count(&server, &next).await, Some(1));
    next.release().await.expect("held");
    assert_soon_free(&server, "k").await;
}

#[tokio::test]
async fn a_loss_is_reported_to_every_listener() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(LASTING);
    let outer = lock.acquire().await.expect("free");
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    let (sender, mut causes) = mpsc::unbounded_channel();
    let body = async {
        let hold = current().expect("inside");
        tokio::spawn(async move { sender.send(hold.lost().await) });
        server.del(&name("k")).await;
        std::future::pending::<()>().await;
    };
    let outcome = Box::pin(outer.scope(lock.run(body))).await;
    assert_eq!(cause_of(outcome), Some(LostCause::Removed));
    let cause = within(
        LONG,
        "the loss is notified to the spawned task",
        causes.recv(),
    )
    .await;
    assert_eq!(cause, Some(LostCause::Removed));
    assert_lost(&outer, AT_ONCE, LostCause::Removed).await;
    assert_lost(&inner, AT_ONCE, LostCause::Removed).await;
    // A nested acquire of a lost hold fails instead of acquiring the lock again.
    let nested = outer.scope(lock.acquire()).await;
    assert_eq!(cause_of(nested), Some(LostCause::Removed));
    assert!(!server.exists(&name("k")).await);
}

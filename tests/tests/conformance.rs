//! What every store does alike.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rlock_core::{Lock, LockClient, LockError, LockGuard, LostCause, distributed_lock, escape};
use rlock_tests::{Exclusion, RedisServer, eventually, within};
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_secs(20);

/// A store that any number of clients can be made of.
struct Place {
    url: String,
    _server: Option<RedisServer>,
}

impl Place {
    fn all() -> Vec<Self> {
        static NAMES: AtomicU32 = AtomicU32::new(0);
        let name = NAMES.fetch_add(1, Ordering::Relaxed);
        let memory = Self {
            url: format!("memory:conformance-{name}"),
            _server: None,
        };
        let server = RedisServer::start();
        let resp3 = Self {
            url: server.url(),
            _server: Some(server),
        };
        let server = RedisServer::start();
        let url = format!("{}?protocol=resp2", server.url());
        vec![
            memory,
            resp3,
            Self {
                url,
                _server: Some(server),
            },
        ]
    }

    async fn client(&self) -> LockClient {
        LockClient::connect(&self.url)
            .await
            .expect("the store is there")
    }
}

#[tokio::test]
async fn a_lock_is_held_by_one_client_at_a_time() {
    for place in Place::all() {
        let (one, other) = (place.client().await, place.client().await);
        let guard = one.lock("order:42").acquire().await.expect("free");
        assert!(
            other
                .lock("order:42")
                .try_acquire()
                .await
                .expect("an answer")
                .is_none()
        );
        assert!(
            one.lock("order:42")
                .try_acquire()
                .await
                .expect("an answer")
                .is_none()
        );
        let free = other
            .lock("order:43")
            .try_acquire()
            .await
            .expect("an answer");
        assert!(free.is_some(), "another key is another lock");
        guard.release().await.expect("held");
        assert!(
            other
                .lock("order:42")
                .try_acquire()
                .await
                .expect("an answer")
                .is_some()
        );
    }
}

#[tokio::test]
async fn a_waiter_gets_the_lock_when_it_is_released() {
    for place in Place::all() {
        let (one, other) = (place.client().await, place.client().await);
        let guard = one.lock("order:42").acquire().await.expect("free");
        let lock = other.lock("order:42").wait(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!waiter.is_finished());
        guard.release().await.expect("held");
        let served = within(LONG, "the waiter is served", waiter).await;
        drop(served.expect("no panic").expect("granted"));
    }
}

#[tokio::test]
async fn tokens_grow_with_every_hold_and_stay_the_same_within_one() {
    for place in Place::all() {
        let clients = [place.client().await, place.client().await];
        let mut last = 0;
        for n in 0..20 {
            let lock = clients[n % 2].lock("order:42");
            let guard = lock.acquire().await.expect("free");
            assert!(guard.fencing_token() > last);
            last = guard.fencing_token();
            let inner = guard.scope(lock.acquire()).await.expect("enters");
            assert_eq!(inner.fencing_token(), last);
            inner.release().await.expect("held");
            guard.release().await.expect("held");
        }
    }
}

#[tokio::test]
async fn owners_are_never_used_again() {
    for place in Place::all() {
        let client = place.client().await;
        let mut owners = std::collections::HashSet::new();
        for _ in 0..50 {
            let guard = client.lock("order:42").acquire().await.expect("free");
            assert!(owners.insert(guard.owner()));
            guard.release().await.expect("held");
        }
    }
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_ends() {
    for place in Place::all() {
        let (one, other) = (place.client().await, place.client().await);
        let lock = one
            .lock("order:42")
            .lease(Duration::from_millis(300))
            .watchdog(false);
        let guard = lock.acquire().await.expect("free");
        assert!(guard.is_valid() && guard.valid_for() < Duration::from_millis(300));
        let cause = within(LONG, "the holder is told", guard.lost()).await;
        assert!(
            matches!(cause, LostCause::Expired | LostCause::Removed),
            "{cause:?}"
        );
        assert!(!guard.is_valid() && guard.valid_for().is_zero());
        let next = other
            .lock("order:42")
            .wait(LONG)
            .acquire()
            .await
            .expect("free in the end");
        let lost = guard.release().await.expect_err("lost");
        assert!(
            matches!(lost, LockError::Lost { ref key, .. } if key == "order:42"),
            "{lost:?}"
        );
        assert!(
            next.is_valid(),
            "the late release did not touch the successor's lock"
        );
        assert!(
            one.lock("order:42")
                .try_acquire()
                .await
                .expect("an answer")
                .is_none()
        );
    }
}

#[tokio::test]
async fn the_watchdog_renews_for_as_long_as_the_lock_is_held() {
    for place in Place::all() {
        let (one, other) = (place.client().await, place.client().await);
        let lock = one.lock("order:42").lease(Duration::from_millis(600));
        let body = async {
            for _ in 0..6 {
                tokio::time::sleep(Duration::from_millis(300)).await;
                assert!(
                    other
                        .lock("order:42")
                        .try_acquire()
                        .await
                        .expect("an answer")
                        .is_none()
                );
            }
        };
        lock.run(body).await.expect("kept");
    }
}

#[tokio::test]
async fn inspect_tells_who_holds_the_lock() {
    for place in Place::all() {
        let (one, other) = (place.client().await, place.client().await);
        assert!(
            other
                .inspect("order:42")
                .await
                .expect("an answer")
                .is_none()
        );
        let lock = one.lock("order:42").lease(Duration::from_secs(60));
        let guard = lock.acquire().await.expect("free");
        let inner = guard.scope(lock.acquire()).await.expect("enters");
        let info = other
            .inspect("order:42")
            .await
            .expect("an answer")
            .expect("held");
        assert_eq!(info.owner, guard.owner().to_string());
        assert_eq!(info.count, 2);
        assert_eq!(info.token, Some(guard.fencing_token()));
        let ttl = info.ttl.expect("a lease");
        assert!(
            ttl > Duration::from_secs(30) && ttl <= Duration::from_secs(60),
            "{ttl:?}"
        );
        drop((inner, guard));
        eventually(LONG, "it is given back", async || {
            other
                .inspect("order:42")
                .await
                .expect("an answer")
                .is_none()
        })
        .await;
    }
}

#[tokio::test]
async fn options_out_of_bounds_are_errors_that_name_the_option_and_the_value() {
    for place in Place::all() {
        let client = place.client().await;
        let lock = || client.lock("order:42");
        let day = Duration::from_secs(24 * 60 * 60);
        let cases = [
            (lock().lease(Duration::ZERO), "`lease`", "0ns"),
            (lock().lease(Duration::from_millis(9)), "`lease`", "9ms"),
            (
                lock().lease(day + Duration::from_millis(1)),
                "`lease`",
                "86400.001s",
            ),
            (
                lock().lease(Duration::MAX),
                "`lease`",
                "18446744073709551615",
            ),
            (lock().wait(Duration::MAX), "`wait`", "18446744073709551615"),
            (lock().max_hold(Duration::ZERO), "`max_hold`", "0ns"),
            (
                lock().at_least(Duration::MAX),
                "`at_least`",
                "18446744073709551615",
            ),
        ];
        for (lock, option, value) in cases {
            let error = lock.acquire().await.expect_err(option);
            assert!(
                matches!(error, LockError::InvalidOption { .. }),
                "{error:?}"
            );
            let text = error.to_string();
            assert!(text.contains(option) && text.contains(value), "{text}");
        }
        for key in [
            String::new(),
            "x".repeat(1025),
            "a{".to_owned(),
            "{}".to_owned(),
        ] {
            let error = client.lock(key.clone()).acquire().await.expect_err(&key);
            assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");
        }
        for lease in [Duration::from_millis(10), day] {
            let guard = lock().lease(lease).acquire().await;
            guard.expect("within bounds").release().await.expect("held");
        }
    }
}

#[tokio::test]
async fn keys_with_hash_tags_and_hostile_values_are_locks_of_their_own() {
    for place in Place::all() {
        let client = place.client().await;
        let hostile = [
            "1:2", "1", "%", "}", "{x}", "a\nb", "\u{0}", "ü", "", "*", "' or 1=1",
        ];
        let mut keys: Vec<String> = hostile
            .iter()
            .map(|value| format!("order:{}", escape(value)))
            .collect();
        keys.extend(["order:1:2", "{order}:1", "{order:1}", "order:1:fence"].map(str::to_owned));
        let mut guards = Vec::new();
        for key in &keys {
            let guard = client.lock(key).try_acquire().await.expect("an answer");
            guards.push(guard.unwrap_or_else(|| panic!("{key:?} is another's lock")));
        }
        for guard in guards {
            guard.release().await.expect("held");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_of_two_clients_are_inside_one_at_a_time() {
    for place in Place::all() {
        let clients = [place.client().await, place.client().await];
        let inside = Exclusion::new();
        let mut tasks = Vec::new();
        for n in 0..40 {
            let lock = clients[n % 2].lock("hot").wait(Duration::from_secs(60));
            let inside = inside.clone();
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let body = async {
                        let _inside = inside.enter(n.to_string());
                        tokio::task::yield_now().await;
                    };
                    lock.run(body).await.expect("granted");
                }
            }));
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(inside.entries(), 200);
        inside.assert_held();
    }
}

#[tokio::test]
async fn a_client_is_refused_options_that_make_no_sense() {
    let cases = [
        ("http://localhost/", "`http:…`"),
        ("", "``"),
        ("redis://", "redis"),
        ("redis://127.0.0.1:99999/", "redis"),
    ];
    for (url, named) in cases {
        let error = LockClient::connect(url).await.expect_err(url);
        assert!(
            matches!(error, LockError::InvalidOption { option: "url", .. }),
            "{error:?}"
        );
        assert!(
            error.to_string().contains(named.trim_matches('`')),
            "{error}"
        );
    }
    let builders = [
        LockClient::builder().default_lease(Duration::ZERO),
        LockClient::builder().default_wait(Duration::MAX),
        LockClient::builder().response_timeout(Duration::ZERO),
        LockClient::builder().connect_timeout(Duration::MAX),
        LockClient::builder().prefix("{x}"),
    ];
    for builder in builders {
        let error = builder.clone().in_memory().expect_err("out of bounds");
        assert!(
            matches!(error, LockError::InvalidOption { .. }),
            "{error:?}"
        );
        builder.connect("memory:").await.expect_err("out of bounds");
    }
}

#[tokio::test]
async fn who_waits_for_a_kept_lock_is_served_when_at_least_is_over() {
    for place in Place::all() {
        let (one, other) = (place.client().await, place.client().await);
        let lock = one.lock("order:42").at_least(Duration::from_secs(1));
        let guard = lock.acquire().await.expect("free");
        let lock = other.lock("order:42").wait(Duration::from_secs(4));
        let waiter = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(Duration::from_millis(200)).await;
        guard.release().await.expect("held");
        drop(waiter.await.expect("no panic").expect("granted in time"));
    }
}

/// A task that waits for the lock. Stands in line when this returns.
async fn in_line(client: &LockClient, key: &str) -> JoinHandle<LockGuard> {
    let lock = client.lock(key).wait(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await.expect("its turn") });
    tokio::time::sleep(Duration::from_millis(150)).await;
    waiting
}

async fn served(waiting: JoinHandle<LockGuard>) -> LockGuard {
    within(LONG, "it has its turn", waiting)
        .await
        .expect("no panic")
}

async fn owner(client: &LockClient, key: &str) -> Option<String> {
    let info = client.inspect(key).await.expect("an answer");
    info.map(|info| info.owner)
}

#[tokio::test]
async fn clients_are_served_in_the_order_of_asking_and_nobody_overtakes() {
    for place in Place::all() {
        let clients = [
            place.client().await,
            place.client().await,
            place.client().await,
        ];
        let newcomer = place.client().await;
        let mut held = clients[0].lock("k").acquire().await.expect("free");
        let mut waiting = vec![in_line(&clients[1], "k").await];
        waiting.push(in_line(&clients[2], "k").await);
        for round in 0..6 {
            // Behind the others, although it has the lock.
            waiting.push(in_line(&clients[round % 3], "k").await);
            let (token, before) = (held.fencing_token(), held.owner().to_string());
            held.release().await.expect("held");
            let given = owner(&newcomer, "k").await.expect("never free");
            assert_ne!(given, before);
            let overtakes = newcomer.lock("k").try_acquire().await;
            assert!(overtakes.expect("an answer").is_none());
            held = served(waiting.remove(0)).await;
            assert_eq!(held.owner().to_string(), given);
            assert!(held.fencing_token() > token);
        }
        held.release().await.expect("held");
        for waiting in waiting {
            served(waiting).await.release().await.expect("held");
        }
        assert_eq!(owner(&newcomer, "k").await, None);
    }
}

#[tokio::test]
async fn whoever_stands_in_line_comes_before_others_when_a_lease_has_ended() {
    for place in Place::all() {
        let (one, other) = (place.client().await, place.client().await);
        let newcomer = place.client().await;
        for _ in 0..3 {
            let lease = Duration::from_millis(700);
            let brief = one.lock("k").lease(lease).watchdog(false);
            let held = brief.acquire().await.expect("free");
            let waiting = in_line(&other, "k").await;
            let before = held.owner().to_string();
            eventually(LONG, "it has ended", async || {
                // Asks as often as it can, and is never served.
                let overtakes = newcomer.lock("k").try_acquire().await;
                assert!(overtakes.expect("an answer").is_none());
                owner(&newcomer, "k").await.is_some_and(|now| now != before)
            })
            .await;
            served(waiting).await.release().await.expect("held");
            drop(held);
        }
    }
}

#[tokio::test]
async fn a_waiter_that_gives_up_or_is_shut_down_leaves_its_place_to_the_next() {
    for place in Place::all() {
        let (one, other) = (place.client().await, place.client().await);
        for way in ["cancelled", "after it was given the lock", "shut down"] {
            let goes = place.client().await;
            let held = one.lock("k").acquire().await.expect("free");
            let lock = goes.lock("k").wait(LONG);
            let mut going = Box::pin(lock.acquire());
            let soon = tokio::time::timeout(Duration::from_millis(150), going.as_mut()).await;
            assert!(soon.is_err(), "it has to wait");
            let waiting = in_line(&other, "k").await;
            let released = Instant::now();
            match way {
                "cancelled" => {
                    drop(going);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    held.release().await.expect("held");
                }
                "shut down" => {
                    let (ended, refused) = tokio::join!(goes.shutdown(), going);
                    ended.expect("nothing is left");
                    assert!(matches!(refused, Err(LockError::Closed { .. })));
                    held.release().await.expect("held");
                }
                _ => {
                    held.release().await.expect("held");
                    drop(going);
                }
            }
            served(waiting).await.release().await.expect("held");
            let took = released.elapsed();
            assert!(took < Duration::from_secs(3), "{way}: {took:?}");
            eventually(LONG, way, async || owner(&one, "k").await.is_none()).await;
        }
    }
}

#[tokio::test]
async fn the_last_handle_of_a_waiting_client_takes_its_place_along() {
    for place in Place::all() {
        let (one, other) = (place.client().await, place.client().await);
        let goes = place.client().await;
        let held = one.lock("k").acquire().await.expect("free");
        let going = in_line(&goes, "k").await;
        let waiting = in_line(&other, "k").await;
        drop(goes);
        going.abort();
        let _ = going.await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        held.release().await.expect("held");
        let released = Instant::now();
        served(waiting).await.release().await.expect("held");
        let took = released.elapsed();
        assert!(took < Duration::from_millis(900), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_come_back_at_once_let_another_client_in() {
    const TASKS: usize = 12;
    for place in Place::all() {
        let (many, single) = (place.client().await, place.client().await);
        let log = Arc::new(Mutex::new(Vec::new()));
        let first = single.lock("k").acquire().await.expect("free");
        let enter = |lock: Lock, who: usize, times: usize| {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                for _ in 0..times {
                    let guard = lock.acquire().await.expect("its turn");
                    let entry = (who, guard.fencing_token());
                    log.lock().expect("no panic").push(entry);
                    tokio::task::yield_now().await;
                    guard.release().await.expect("held");
                }
            })
        };
        let mut tasks: Vec<_> = (0..TASKS)
            .map(|who| enter(many.lock("k").wait(LONG * 3), who, 60))
            .collect();
        tokio::time::sleep(Duration::from_millis(200)).await;
        tasks.push(enter(single.lock("k").wait(LONG * 3), TASKS, 20));
        tokio::time::sleep(Duration::from_millis(50)).await;
        first.release().await.expect("held");
        for task in tasks {
            within(LONG * 3, "all are served", task)
                .await
                .expect("no panic");
        }
        let log = log.lock().expect("no panic");
        assert!(log.is_sorted_by(|(_, one), (_, next)| one < next));
        let single: Vec<usize> = (0..log.len()).filter(|at| log[*at].0 == TASKS).collect();
        let between: Vec<usize> = single
            .windows(2)
            .map(|pair| pair[1] - pair[0] - 1)
            .collect();
        // On a busy machine it may be late itself now and then, and miss a turn.
        let missed = between.iter().filter(|many| **many > 20).count();
        assert!(missed <= between.len() / 4, "{between:?}");
        // The many are let in as well.
        let last = log
            .iter()
            .rposition(|(who, _)| *who != TASKS)
            .expect("some");
        assert!(*single.last().expect("some") < last, "{single:?}");
        let twice = between.iter().filter(|many| **many == 0).count();
        assert!(twice <= 4, "{between:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_wants_several_keys_is_served_in_whatever_order_they_are_named() {
    #[distributed_lock(key = ["a", "b", "c"], wait = "60s", client = client)]
    async fn forwards(client: &LockClient, inside: &Exclusion) -> Result<(), LockError> {
        let _inside = inside.enter("forwards");
        tokio::task::yield_now().await;
        Ok(())
    }
    #[distributed_lock(key = ["c", "b", "a"], wait = "60s", client = client)]
    async fn backwards(client: &LockClient, inside: &Exclusion) -> Result<(), LockError> {
        let _inside = inside.enter("backwards");
        tokio::task::yield_now().await;
        Ok(())
    }
    for place in Place::all() {
        let inside = Exclusion::new();
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let client = place.client().await;
            for who in 0..5 {
                let (client, inside) = (client.clone(), inside.clone());
                tasks.push(tokio::spawn(async move {
                    for _ in 0..20 {
                        let outcome = match who {
                            0 => forwards(&client, &inside).await,
                            1 => backwards(&client, &inside).await,
                            one => {
                                let key = ["a", "b", "c"][one - 2];
                                let lock = client.lock(key).wait(LONG * 3);
                                lock.run(tokio::task::yield_now()).await
                            }
                        };
                        outcome.expect("its turn");
                    }
                }));
            }
        }
        for task in tasks {
            within(LONG * 3, "all are served", task)
                .await
                .expect("no panic");
        }
        inside.assert_held();
        assert_eq!(inside.entries(), 80);
        let client = place.client().await;
        for key in ["a", "b", "c"] {
            assert_eq!(owner(&client, key).await, None);
        }
    }
}

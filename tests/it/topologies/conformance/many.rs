//! Many callers at once.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rlock_core::{Lock, LockClient, LockError, distributed_lock};
use rlock_testkit::{Exclusion, Place, within};

use super::{LONG, owner};

pub(crate) async fn many_tasks_of_two_clients_are_inside_one_at_a_time(place: Place) {
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

pub(crate) async fn tasks_that_come_back_at_once_let_another_client_in(place: Place) {
    const TASKS: usize = 12;
    let (many, single) = (place.client().await, place.client().await);
    let log = Arc::new(Mutex::new(Vec::new()));
    let first = single.lock("k").acquire().await.expect("free");
    let is_over = Arc::new(AtomicBool::new(false));
    // The many tasks run until the single one has finished.
    let enter = |lock: Lock, who: usize, times: usize| {
        let (log, is_over) = (Arc::clone(&log), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            for _ in 0..times {
                if is_over.load(Ordering::Acquire) {
                    break;
                }
                let asked = Instant::now();
                let guard = lock.acquire().await.expect("its turn");
                longest = longest.max(asked.elapsed());
                let entry = (who, guard.fencing_token());
                log.lock().expect("no panic").push(entry);
                tokio::task::yield_now().await;
                guard.release().await.expect("held");
            }
            if who == TASKS {
                is_over.store(true, Ordering::Release);
            }
            longest
        })
    };
    let many: Vec<_> = (0..TASKS)
        .map(|who| enter(many.lock("k").wait(LONG * 3), who, usize::MAX))
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let alone = enter(single.lock("k").wait(LONG * 3), TASKS, 20);
    tokio::time::sleep(Duration::from_millis(50)).await;
    first.release().await.expect("held");
    let longest = within(LONG * 3, "the single one is served", alone)
        .await
        .expect("no panic");
    // Less than the timer of a waiter without a notification.
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    for task in many {
        within(LONG * 3, "all are served", task)
            .await
            .expect("no panic");
    }
    let log = log.lock().expect("no panic");
    assert!(log.is_sorted_by(|(_, one), (_, next)| one < next));
    let single: Vec<usize> = (0..log.len()).filter(|at| log[*at].0 == TASKS).collect();
    let mut between: Vec<usize> = single
        .windows(2)
        .map(|pair| pair[1] - pair[0] - 1)
        .collect();
    // The many tasks are served as well. The single task may queue again before the next of the many is
    // polled.
    let twice = between.iter().filter(|many| **many == 0).count();
    assert!(twice <= 10 || !place.keeps_strict_order(), "{between:?}");
    // Until the single client has queued again, the many hand the lock over without a limit.
    between.sort_unstable();
    assert!(between[between.len() / 2] <= 100, "{between:?}");
}

pub(crate) async fn a_call_of_several_keys_is_served_in_any_order_of_their_names(place: Place) {
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
    let inside = Exclusion::new();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let client = place.client().await;
        for who in 0..5 {
            let (client, inside) = (client.clone(), inside.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..10 {
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
    assert_eq!(inside.entries(), 40);
    let client = place.client().await;
    for key in ["a", "b", "c"] {
        assert_eq!(owner(&client, key).await, None);
    }
}

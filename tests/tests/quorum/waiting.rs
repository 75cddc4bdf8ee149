//! Waiting for a lock on several servers, one of which keeps the line.

use rlock_core::{LockClient, LockError, LockGuard};
use rlock_tests::{RedisServer, within};
use tokio::task::JoinHandle;

use crate::{
    common::{LASTING, LONG, ms, timed},
    five::{ALL, SOON, Servers},
};

#[tokio::test]
async fn waiters_send_no_scripts_and_are_served_in_the_order_of_asking() {
    let five = Servers::five();
    let holder = five.client().await;
    let guard = holder
        .lock("k")
        .lease(LASTING)
        .acquire()
        .await
        .expect("free");
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let client = five.client().await;
        waiting.push(tokio::spawn(async move {
            client.lock("k").lease(LASTING).wait(LONG).acquire().await
        }));
        tokio::time::sleep(ms(200)).await;
    }
    let mut watches = Vec::new();
    for server in &five.0 {
        watches.push(server.watch_commands().await);
    }
    tokio::time::sleep(ms(1500)).await;
    for watch in &mut watches {
        assert_eq!(watch.count_of("EVALSHA").await, 0, "nobody polls");
        // The server that keeps the line is asked whether it is there, by each client.
        assert!(watch.count().await <= 4 * 10);
    }
    let mut held = guard;
    for waiter in waiting {
        held.release().await.expect("held");
        let (served, took) = timed(within(LONG, "it has its turn", waiter)).await;
        assert!(took < SOON, "{took:?}");
        held = served.expect("no panic").expect("its turn");
    }
    held.release().await.expect("held");
    for watch in &mut watches {
        // A hold costs a server an acquire and a release, a waiter another acquire or two.
        let scripts = watch.count_of("EVALSHA").await;
        assert!(scripts < 5 * 8, "{scripts}");
    }
    five.assert_soon_clean("k", &ALL).await;
}

#[tokio::test]
async fn a_user_who_may_not_ask_whether_a_server_is_there_waits_without_polling() {
    let builder = RedisServer::builder();
    let builder = builder.acl_user("locker", "on >secret ~lock:* &lock:* +@all -ping");
    let three: Vec<_> = (0..3).map(|_| builder.clone().start()).collect();
    let urls: Vec<_> = three.iter().map(|s| s.url_as("locker", "secret")).collect();
    let one = LockClient::quorum(urls.clone()).await.expect("three");
    let other = LockClient::quorum(urls).await.expect("three");
    let guard = one.lock("k").lease(LASTING).acquire().await.expect("free");
    let waiting =
        tokio::spawn(async move { other.lock("k").lease(LASTING).wait(LONG).acquire().await });
    tokio::time::sleep(ms(500)).await;
    let mut watches = Vec::new();
    for server in &three {
        watches.push(server.watch_commands().await);
    }
    tokio::time::sleep(ms(1500)).await;
    for watch in &mut watches {
        assert_eq!(watch.count_of("EVALSHA").await, 0, "nobody polls");
    }
    guard.release().await.expect("held");
    let (next, took) = timed(within(LONG, "its turn", waiting)).await;
    assert!(took < SOON, "{took:?}");
    let next = next.expect("no panic").expect("its turn");
    next.release().await.expect("held");
}

#[tokio::test]
async fn waiters_go_on_when_the_server_that_keeps_the_line_is_gone_or_stands_still() {
    for killed in [true, false] {
        let five = Servers::five();
        let holder = five.client().await;
        let guard = holder
            .lock("k")
            .lease(LASTING)
            .acquire()
            .await
            .expect("free");
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let client = five.client().await;
            waiting.push(tokio::spawn(async move {
                let guard = client.lock("k").lease(LASTING).wait(LONG).acquire().await;
                let guard = guard.expect("its turn");
                guard.release().await.expect("held");
            }));
        }
        tokio::time::sleep(ms(300)).await;
        if killed {
            five.0[0].kill();
        } else {
            five.0[0].pause();
        }
        guard.release().await.expect("held");
        for waiter in waiting {
            let (served, took) = timed(within(LONG, "it is served", waiter)).await;
            served.expect("no panic");
            assert!(took < SOON * 2, "killed {killed}: {took:?}");
        }
        if !killed {
            five.0[0].resume();
        }
        five.assert_soon_clean("k", if killed { &[1, 2, 3, 4] } else { &ALL })
            .await;
    }
}

#[tokio::test]
async fn waiters_that_went_elsewhere_are_served_when_the_first_server_is_back() {
    let five = Servers::five();
    let (holder, other) = (five.client().await, five.client().await);
    let guard = holder
        .lock("k")
        .lease(LASTING)
        .acquire()
        .await
        .expect("free");
    five.0[0].kill();
    let waiting = other.lock("k").lease(LASTING).wait(LONG);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    tokio::time::sleep(ms(300)).await;
    five.0[0].restart();
    let late = five.client().await.lock("k").lease(LASTING).wait(LONG);
    let late = tokio::spawn(async move { late.acquire().await });
    tokio::time::sleep(ms(700)).await;
    guard.release().await.expect("held");
    let (_, took) = timed(within(LONG, "both are served", async {
        tokio::join!(pass_on(waiting), pass_on(late))
    }))
    .await;
    assert!(took < SOON * 2, "{took:?}");
    five.assert_soon_clean("k", &ALL).await;
}

async fn pass_on(waiting: JoinHandle<Result<LockGuard, LockError>>) {
    let guard = waiting.await.expect("no panic").expect("its turn");
    guard.release().await.expect("held");
}

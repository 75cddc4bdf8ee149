//! What a time-out says about the holder of the lock and about its own call, and how to avoid it.

use std::time::Duration;

use rlock_core::{LockClient, LockError, distributed_lock};
use rlock_testkit::{RedisServer, eventually, within};

use crate::common::{LASTING, LONG, begin, client, hold, holder, ms, name, on_tokio_clock};

const HINT: &str = "`guard.scope(…)`, or in a spawned task by `in_current_scope()`";

/// Returns the error of a call that waits for the lock in vain.
async fn timed_out(client: &LockClient, key: &str, wait: Duration) -> String {
    let outcome = client.lock(key).wait(wait).acquire().await;
    let error = outcome.expect_err("it is held");
    let LockError::Taken {
        key: asked,
        waited,
        remaining,
        details,
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(asked, key);
    assert!(*waited >= wait);
    assert!(remaining.is_some_and(|left| left <= LASTING));
    // The text for other programs has neither the holder nor hints for the programmer.
    let held_or_more = ["held", "(pid", "scope", "this call", "polled"];
    assert_says(&error.to_string(), &[key, "try again later"], &held_or_more);
    assert!(format!("{error:?}").starts_with("Taken { key: "));
    let said = format!("{error:#}");
    assert!(said.contains(&**details), "{said}");
    // The field and the text name the same holder.
    match error.holder() {
        Some(holder) => assert!(said.contains(&format!(", for {}.", holder.held_for.as_secs()))),
        None => assert!(!said.contains("; it is held by"), "{said}"),
    }
    said
}

/// Repeats the call until the holder replies in time, and returns the error that names it.
async fn named(client: &LockClient, key: &str) -> String {
    let named = async {
        loop {
            let said = timed_out(client, key, ms(500)).await;
            if said.contains("; it is held by") {
                return said;
            }
        }
    };
    within(LONG, "the holder replies", named).await
}

/// Asserts that the text has each of the former parts, and none of the latter.
fn assert_says(said: &str, parts: &[&str], others: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
    for other in others {
        assert!(!said.contains(other), "{other}: {said}");
    }
}

fn assert_own(said: &str) {
    let parts = ["; it is held by another call of this client, ", HINT];
    assert_says(said, &parts, &["this call holds", "lock_all"]);
}

fn assert_other_of_process(said: &str) {
    let this_process = format!("(pid {})", std::process::id());
    let parts = [
        "; it is held by another client of this process, ",
        &this_process,
    ];
    assert_says(said, &parts, &["this client", "scope", "this call"]);
}

#[tokio::test(start_paused = true)]
async fn a_guard_an_annotated_call_and_a_bare_spawn_get_a_hint() {
    #[distributed_lock(key = "k", wait = "100ms")]
    async fn pay() -> Result<(), LockError> {
        Ok(())
    }
    let client = on_tokio_clock("memory:").await;
    let guard = client.lock("k").acquire().await.expect("free");
    for wait in [ms(0), ms(50), ms(300)] {
        assert_own(&timed_out(&client, "k", wait).await);
    }
    let error = client.scope(pay()).await.expect_err("it is held");
    assert_own(&format!("{error:#}"));
    client.scope(guard.scope(pay())).await.expect("the way out");
    guard.release().await.expect("held");

    let lock = client.lock("k");
    let body = async {
        let nested = client.lock("k").wait(ms(100));
        tokio::spawn(async move { nested.acquire().await.map(drop) }).await
    };
    let spawned = lock.run(body).await.expect("free").expect("no panic");
    let error = spawned.expect_err("it is held");
    assert_own(&format!("{error:#}"));

    // A guard of another lock does not suppress the hint.
    let body = async {
        let _guard = hold(&client, "k").await;
        timed_out(&client, "k", ms(50)).await
    };
    let said = client.lock("a").run(body).await.expect("free");
    assert_says(&said, &[HINT, "this call holds `a`"], &[]);
}

/// The holds of readers and of permits are not those that the next call of their client can take over.
#[tokio::test(start_paused = true)]
async fn readers_and_permits_of_this_client_are_named_and_the_hint_fits_the_mode() {
    let client = on_tokio_clock("memory:").await;
    let no_entry = "if this call runs inside that hold, it deadlocks with itself: acquire the exclusive lock from the start";
    let _reader = client
        .lock("data")
        .shared()
        .lease(LASTING)
        .acquire()
        .await
        .expect("free");
    let said = timed_out(&client, "data", ms(300)).await;
    let parts = [
        "; it is held by another call of this client, shared, for ",
        no_entry,
    ];
    assert_says(&said, &parts, &["scope"]);

    let permits = client
        .lock("exports")
        .label("export")
        .permits(2)
        .lease(LASTING);
    let _permits = [
        permits.acquire().await.expect("free"),
        permits.acquire().await.expect("free"),
    ];
    let who = "; it is held by another call of this client, one of 2 permits, in `export`, for ";
    let said = timed_out(&client, "exports", ms(300)).await;
    assert_says(&said, &[who, no_entry], &["scope"]);
    let third = permits
        .wait(ms(300))
        .acquire()
        .await
        .expect_err("both are taken");
    assert_says(
        &format!("{third:#}"),
        &[who, HINT],
        &["deadlocks with itself"],
    );
}

#[tokio::test(start_paused = true)]
async fn another_client_of_this_process_is_named_by_its_present_hold() {
    let [one, other] = [
        on_tokio_clock("memory:own").await,
        on_tokio_clock("memory:own").await,
    ];
    // A lock of the same key in another store does not matter.
    let elsewhere = on_tokio_clock("memory:").await;
    let _held = elsewhere.lock("k").acquire().await.expect("free");
    for name in ["first", "second"] {
        let lock = one.lock("k").label(name).lease(LASTING);
        let guard = lock.acquire().await.expect("free");
        // Waiters behind the first get the same error.
        let both = async {
            tokio::join!(
                timed_out(&other, "k", ms(400)),
                timed_out(&other, "k", ms(300))
            )
        };
        let (first, second) = both.await;
        let own = timed_out(&one, "k", ms(300)).await;
        for said in [&first, &second] {
            assert_other_of_process(said);
        }
        for said in [&first, &second, &own] {
            assert!(said.contains(&format!("in `{name}`")), "{said}");
        }
        guard.release().await.expect("held");
    }

    let body = timed_out(&other, "k", ms(400));
    let said = one.lock("k").lease(LASTING).run(body).await.expect("free");
    let hint = "this call runs inside that hold, and enters it only with the same client";
    assert_says(
        &said,
        &["another client of this process, ", hint],
        &["scope"],
    );
}

#[tokio::test]
async fn on_a_server_a_client_of_this_process_and_another_process_are_named() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = hold(&one, "k").await;
    assert_other_of_process(&named(&other, "k").await);
    guard.release().await.expect("held");

    let _same_key = hold(&LockClient::in_memory(), "k").await;
    let _process = holder(&server, "k", LASTING).await;
    let said = named(&other, "k").await;
    let this_process = format!("(pid {})", std::process::id());
    assert_says(
        &said,
        &["try again later", "; it is held by `", " (pid "],
        &[
            "this client",
            "this process",
            &this_process,
            "scope",
            "this call",
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_holds_another_lock_says_so_and_how_to_avoid_a_deadlock() {
    let [one, other] = [
        on_tokio_clock("memory:orders").await,
        on_tokio_clock("memory:orders").await,
    ];
    for (holder, who) in [
        (&one, "another call of this client, for "),
        (&other, "another client of this process, `"),
    ] {
        let (client, outer) = (one.clone(), one.lock("a"));
        let waits = async move { outer.run(timed_out(&client, "k", ms(400))).await };
        let held = holder.lock("k").lease(LASTING);
        let said = held.run(async { tokio::spawn(waits).await }).await;
        let said = said.expect("free").expect("no panic").expect("free");
        let parts = [
            who,
            "; this call holds `a`: ",
            "`lock_all`, or in one order",
        ];
        assert_says(&said, &parts, &["scope"]);
    }
    let _held = hold(&one, "k").await;
    let of_other = other.lock("a").run(timed_out(&one, "k", ms(400))).await;
    let said = of_other.expect("free");
    assert_says(&said, &["; it is held by "], &["this call holds"]);
}

/// The hint is for calls that may run inside the hold. A hold that began during the wait is not one.
#[tokio::test(start_paused = true)]
async fn a_call_that_waited_longer_than_the_hold_lasts_gets_no_hint() {
    let client = on_tokio_clock("memory:").await;
    let first = hold(&client, "k").await;
    let second = client.lock("k").lease(LASTING).wait(LONG);
    let mut second = Box::pin(second.acquire());
    begin(&mut second).await;
    let third = timed_out(&client, "k", ms(600));
    let release = async {
        tokio::time::sleep(ms(300)).await;
        first.release().await.expect("held");
        second.await.expect("its turn")
    };
    let (said, _second) = tokio::join!(third, release);
    assert_says(
        &said,
        &["; it is held by another call of this client, "],
        &["scope"],
    );
}

#[tokio::test(start_paused = true)]
async fn a_time_out_behind_a_call_that_is_not_polled_says_so() {
    let client = on_tokio_clock("memory:").await;
    let held = hold(&client, "k").await;
    let lock = client.lock("k").wait(LONG).lease(LASTING);
    let mut call = std::pin::pin!(lock.acquire());
    begin(&mut call).await;
    held.release().await.expect("held");
    let said = timed_out(&client, "k", ms(700)).await;
    let parts = ["; an earlier call of this client", "is not being polled"];
    assert_says(&said, &parts, &["is held by", "scope"]);
    let guard = call.await.expect("the lease has not ended");
    guard.release().await.expect("held");
}

/// The holder of a process that was killed: no client listens.
#[tokio::test]
async fn a_time_out_says_that_the_holder_does_not_reply() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let (lock, owner) = (name("k"), "00000000-0000-4000-8000-000000000001:1");
    let _: u64 = server.command(&["HSET", &lock, owner, "1"]).await;
    let ttl = LASTING.as_millis().to_string();
    let _: u64 = server.command(&["PEXPIRE", &lock, &ttl]).await;
    // The client asks the holder near the end of the wait, when a busy machine may leave no time for that.
    eventually(
        LONG,
        "the error says that the holder does not reply",
        async || {
            let said = timed_out(&client, "k", ms(600)).await;
            assert_says(&said, &[], &["held by"]);
            said.contains("its holder does not reply")
        },
    )
    .await;
}

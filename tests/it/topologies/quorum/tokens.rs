//! Fencing tokens grow from hold to hold, whichever majority grants them.

use rlock_core::{LockClient, LockError, distributed_lock};
use rlock_testkit::{RedisServer, assert_taken};

use super::five::{ALL, Servers};
use crate::common::{LASTING, LONG, acquiring, assert_soon_free, hold, its_turn, ms, name};

#[tokio::test]
async fn tokens_grow_across_changing_majorities() {
    let five = Servers::five();
    let clients = [five.client().await, five.client().await];
    let mut last = 0;
    for round in 0..10 {
        let down = [round % 5, (round * 2 + 1) % 5];
        five.pause(down);
        // Several holds in a row, so that some servers are far behind.
        for n in 0..4 {
            let lock = clients[n % 2].lock("k").lease(LASTING);
            let guard = lock.acquire().await.expect("free");
            assert!(guard.fencing_token() > last, "round {round}");
            last = guard.fencing_token();
            let seen = clients[1].inspect("k").await.expect("a reply");
            assert_eq!(seen.expect("held").token, Some(last));
            guard.release().await.expect("held");
        }
        five.resume(down);
    }
    five.assert_soon_clean("k", &ALL).await;
}

/// A server whose clock is ahead gives such tokens.
#[tokio::test]
async fn a_token_of_one_server_far_ahead_is_where_all_continue() {
    let five = Servers::five();
    let client = five.client().await;
    let year = 365 * 24 * 60 * 60 * 1_000_000;
    let lock = client.lock("k").lease(LASTING);
    let first = lock.acquire().await.expect("free");
    let ahead = first.fencing_token() + year;
    first.release().await.expect("held");
    let fence = format!("{}:fence", name("k"));
    let () = five.0[2]
        .command(&["SET", &fence, &ahead.to_string()])
        .await;
    // The other four do not need this server.
    five.pause([0, 1]);
    let second = lock.acquire().await.expect("free");
    assert!(second.fencing_token() > ahead);
    let last = second.fencing_token();
    second.release().await.expect("held");
    five.resume([0, 1]);
    five.0[2].pause();
    for _ in 0..3 {
        let next = lock.acquire().await.expect("free");
        assert!(next.fencing_token() > last);
        next.release().await.expect("held");
        tokio::time::sleep(ms(20)).await;
    }
}

/// A server whose clock runs fast ends leases early.
#[tokio::test]
async fn a_server_that_ends_a_lease_early_ends_no_hold() {
    let five = Servers::five();
    let (client, other) = (five.client().await, five.client().await);
    let guard = hold(&client, "k").await;
    five.assert_soon_count(&guard, &ALL, 1).await;
    for _ in 0..5 {
        let () = five.0[1].command(&["PEXPIRE", &name("k"), "1"]).await;
        tokio::time::sleep(ms(20)).await;
        assert_taken(&other, "k").await;
    }
    assert!(guard.is_valid());
    five.assert_soon_count(&guard, &ALL, 1).await;
    guard.release().await.expect("held");
}

#[distributed_lock(key = ["a", "b", "c"], lease = "30s", wait = "500ms", client = client)]
async fn with_three_locks(client: &LockClient) -> Result<(), LockError> {
    Ok(())
}

/// Each server has the highest token of another lock, and learns none of the others.
#[tokio::test]
async fn locks_whose_tokens_no_majority_can_know_are_released() {
    let rules = "on >s3cret ~* &* +@all -hexists";
    let server = || RedisServer::builder().acl_user("app", rules).start();
    let three = Servers(vec![server(), server(), server()]);
    let keys = ["a", "b", "c"];
    for (server, key) in three.0.iter().zip(keys) {
        let fence = format!("{}:fence", name(key));
        let () = server.command(&["SET", &fence, "9000000000000000"]).await;
    }
    let urls = three.0.iter().map(|server| server.url_as("app", "s3cret"));
    let client = LockClient::quorum(urls).await.expect("all servers are up");
    let error = with_three_locks(&client).await;
    let error = error.expect_err("no token is certain");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    for server in &three.0 {
        for key in keys {
            assert_soon_free(server, key).await;
        }
    }
}

/// Tokens beyond the exact range of Lua's numbers would repeat on every server raised to one.
#[tokio::test]
async fn a_server_with_an_invalid_token_affects_no_other_and_is_not_needed() {
    let three = Servers(vec![
        RedisServer::start(),
        RedisServer::start(),
        RedisServer::start(),
    ]);
    let (client, other) = (three.client().await, three.client().await);
    let fence = format!("{}:fence", name("k"));
    let mut last = 0;
    for spoilt_server in 0..3 {
        for invalid in [
            "9007199254740991",
            "9007199254740993",
            "9223372036854775807",
            "no number",
        ] {
            let server = &three.0[spoilt_server];
            let sound: Option<String> = server.command(&["GET", &fence]).await;
            let () = server.command(&["SET", &fence, invalid]).await;
            for client in [&client, &other, &client] {
                let lock = client.lock("k").lease(LASTING).wait(LONG);
                let guard = lock.acquire().await.expect("the others are sound");
                assert!(guard.fencing_token() > last, "{invalid}");
                last = guard.fencing_token();
                let waiting = acquiring(lock.clone());
                guard.release().await.expect("held");
                let next = its_turn(waiting).await;
                assert!(next.fencing_token() > last, "{invalid}");
                last = next.fencing_token();
                next.release().await.expect("held");
            }
            for (n, server) in three.0.iter().enumerate() {
                let known: String = server.command(&["GET", &fence]).await;
                if n == spoilt_server {
                    assert_eq!(known, invalid, "it is as it was");
                } else {
                    let known: u64 = known.parse().expect("a token");
                    assert!(known < 9_000_000_000_000_000, "{invalid}: {known}");
                }
            }
            match sound {
                Some(sound) => server.command(&["SET", &fence, &sound]).await,
                None => assert!(server.del(&fence).await),
            }
        }
    }
    // With two invalid tokens of three, no majority has a token.
    for server in &three.0[1..] {
        let () = server.command(&["SET", &fence, "9007199254740993"]).await;
    }
    let error = client.lock("k").wait(LONG).acquire().await;
    let error = error.expect_err("no majority has a token");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    assert!(error.to_string().contains(&fence), "{error}");
    assert_soon_free(&three.0[0], "k").await;
}

/// A server with an invalid token does not get the hold's token.
#[tokio::test]
async fn a_server_that_gets_a_hold_keeps_its_invalid_token() {
    let three = Servers(vec![
        RedisServer::start(),
        RedisServer::start(),
        RedisServer::start(),
    ]);
    let client = three.client().await;
    let guard = client.lock("k").lease(ms(900)).acquire().await;
    let guard = guard.expect("free");
    let fence = format!("{}:fence", name("k"));
    let server = &three.0[2];
    assert!(server.del(&name("k")).await);
    let () = server.command(&["SET", &fence, "9007199254740993"]).await;
    tokio::time::sleep(ms(1500)).await;
    assert!(guard.is_valid(), "the other two servers have the lock");
    let known: String = server.command(&["GET", &fence]).await;
    assert_eq!(known, "9007199254740993");
    guard.release().await.expect("held");
}

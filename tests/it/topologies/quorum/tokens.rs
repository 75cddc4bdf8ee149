//! Fencing tokens grow from hold to hold, whichever majority grants them.

use super::five::{ALL, Servers};
use crate::common::{LASTING, ms, name};

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
    // Fences count 64 µs.
    let year = 365 * 24 * 60 * 60 * 1_000_000 / 64;
    let lock = client.lock("k").lease(LASTING);
    let first = lock.acquire().await.expect("free");
    let ahead = first.fencing_token() / 128 + year;
    first.release().await.expect("held");
    let fence = format!("{}:fence", name("k"));
    let () = five.0[2]
        .command(&["SET", &fence, &ahead.to_string()])
        .await;
    // The other four do not need this server.
    five.pause([0, 1]);
    let second = lock.acquire().await.expect("free");
    assert!(second.fencing_token() / 128 > ahead);
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

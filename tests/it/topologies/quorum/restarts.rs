//! Members that lose their data one after another.

use rlock_testkit::assert_taken;

use super::five::{ALL, Servers};
use crate::common::{LASTING, hold, ms};

#[tokio::test]
async fn a_rolling_restart_of_all_servers_loses_no_hold() {
    let five = Servers::five();
    let (client, other) = (five.client().await, five.client().await);
    let lock = client.lock("k").lease(LASTING);
    let outer = lock.acquire().await.expect("free");
    let token = outer.fencing_token();
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    for n in ALL {
        five.0[n].restart();
        // Long before the next renewal is due.
        five.assert_soon_count(&outer, &[n], 2).await;
        assert!(outer.is_valid());
        assert_taken(&other, "k").await;
    }
    inner.release().await.expect("held");
    outer.release().await.expect("held");
    five.assert_soon_clean("k", &ALL).await;
    let next = other.lock("k").acquire().await.expect("free");
    assert!(next.fencing_token() > token);
}

#[tokio::test]
async fn a_server_that_was_restarted_has_a_say_again() {
    let five = Servers::five();
    let client = five.impatient().await;
    five.0[0].restart();
    five.0[1].restart();
    tokio::time::sleep(ms(1000)).await;
    five.pause(3..5);
    let guard = hold(&client, "k").await;
    five.assert_soon_count(&guard, &[0, 1, 2], 1).await;
    guard.release().await.expect("held");
}

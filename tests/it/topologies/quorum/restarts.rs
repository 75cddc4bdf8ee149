//! Members that lose their data.

use super::five::Servers;
use crate::common::{hold, ms};

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

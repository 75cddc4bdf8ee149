//! What annotated functions do at run time.

mod hold;
mod modes;
mod unrendered;

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use rlock_core::{LockClient, LockError, current, distributed_lock};
use rlock_testkit::{RedisServer, within};

use crate::common::{LONG, alone::alone, assert_soon_queued, begin, client, hold};

/// Returns the key of the innermost hold.
fn inside() -> String {
    current().expect("inside a lock").key().to_owned()
}

struct OrderId(u64);

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}", self.0)
    }
}

struct Order {
    id: OrderId,
    lines: (u8, String),
}

impl Order {
    fn tenant(&self) -> String {
        format!("acme:{}", self.lines.0)
    }
}

#[tokio::test]
async fn placeholders_are_arguments_fields_calls_indices_and_constants() {
    struct Shop {
        name: &'static str,
    }
    impl Shop {
        #[distributed_lock(
            key = "<self.name>:<order.id>:<order.tenant()>:<order.lines.1>:<pair.0>"
        )]
        async fn ship(&self, order: Order, pair: (u8, u8)) -> Result<String, LockError> {
            drop(order);
            let _ = pair;
            Ok(inside())
        }
    }

    #[distributed_lock(key = "{tenant:<id>}:order")]
    async fn tagged(id: u8) -> Result<String, LockError> {
        let _ = id;
        Ok(inside())
    }

    LockClient::in_memory()
        .scope(async {
            let order = Order {
                id: OrderId(7),
                lines: (1, "x{y}".to_owned()),
            };
            let shop = Shop { name: "north" };
            let key = shop.ship(order, (5, 6)).await.expect("free");
            assert_eq!(key, "north:0007:acme%3A1:x%7By%7D:5");
            assert_eq!(tagged(3).await.expect("free"), "{tenant:3}:order");
            let key = Shelf::<7>.constants::<3>().await.expect("free");
            assert_eq!(key, "shelf:7:03:eu%3Awest");
        })
        .await;
}

#[tokio::test]
async fn the_client_option_accepts_a_reference_an_arc_and_a_static() {
    static LOCKS: LazyLock<LockClient> = LazyLock::new(LockClient::in_memory);

    struct Service {
        shared: Arc<LockClient>,
    }
    impl Service {
        #[distributed_lock(key = "k", client = self.shared)]
        async fn by_arc(&self) -> Result<(), LockError> {
            assert_held(&self.shared).await
        }
    }
    async fn assert_held(client: &LockClient) -> Result<(), LockError> {
        assert!(client.inspect("k").await?.is_some());
        Ok(())
    }
    #[distributed_lock(key = "k", client = client)]
    async fn by_mutable_reference(client: &mut LockClient) -> Result<(), LockError> {
        assert_held(client).await
    }
    #[distributed_lock(key = "k", client = LOCKS)]
    async fn by_static() -> Result<(), LockError> {
        assert_held(&LOCKS).await
    }

    let mut client = LockClient::in_memory();
    let service = Service {
        shared: Arc::new(client.clone()),
    };
    service.by_arc().await.expect("free");
    by_mutable_reference(&mut client).await.expect("free");
    by_static().await.expect("free");
}

#[test]
fn the_scope_s_client_wins_over_the_installed_one() {
    #[distributed_lock(key = "k")]
    async fn owner() -> Result<String, LockError> {
        Ok(current().expect("inside").owner())
    }
    alone!(the_scope_s_client_wins_over_the_installed_one);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let none = owner().await.expect_err("no client anywhere");
        assert!(
            matches!(none, LockError::NoClient { ref key, .. } if key == "k"),
            "{none:?}"
        );
        assert!(none.to_string().contains("install()"), "{none}");

        let (installed, scoped) = (LockClient::in_memory(), LockClient::in_memory());
        installed.install();
        let client_of = |owner: String| owner.rsplit_once(':').expect("a sequence").0.to_owned();
        let first = client_of(owner().await.expect("free"));
        let second = client_of(scoped.scope(owner()).await.expect("free"));
        let third = client_of(owner().await.expect("free"));
        assert_ne!(first, second);
        assert_eq!(first, third);
        let spawned = scoped.scope(async { tokio::spawn(owner()).await.expect("no panic") });
        assert_eq!(
            client_of(spawned.await.expect("free")),
            first,
            "a spawned task is elsewhere"
        );
    });
}

#[derive(Debug, PartialEq)]
enum Night {
    Done,
    Taken,
    Skipped(String),
}

#[distributed_lock(
    key = "night",
    wait = "0s",
    client = client,
    if_taken = Night::Taken,
    on_error = |error| Night::Skipped(error.to_string())
)]
async fn night(client: &LockClient) -> Night {
    Night::Done
}

#[tokio::test]
async fn if_taken_answers_for_a_taken_lock_and_on_error_for_every_other_error() {
    let client = LockClient::in_memory();
    let guard = client.lock("night").acquire().await.expect("free");
    assert_eq!(night(&client).await, Night::Taken);
    guard.release().await.expect("held");
    assert_eq!(night(&client).await, Night::Done);
    client.shutdown().await.expect("nothing is held");
    let Night::Skipped(why) = night(&client).await else {
        panic!("it ran without a lock")
    };
    assert!(why.contains("`night`"), "{why}");
}

mod limits {
    pub(super) const REGION: &str = "eu:west";
}

struct Shelf<const ROW: u8>;

impl<const ROW: u8> Shelf<ROW> {
    const NAME: &'static str = "shelf";

    #[distributed_lock(key = "<Self::NAME>:<ROW>:<N:02>:<limits::REGION>")]
    async fn constants<const N: usize>(&self) -> Result<String, LockError> {
        Ok(inside())
    }
}

#[tokio::test]
async fn a_list_of_any_length_is_a_key_for_each_element() {
    #[distributed_lock(key = ["ledger", "account:<accounts[].0>:<accounts[].1:02>"], client = client)]
    async fn close(client: &LockClient, accounts: &[(&str, u8)]) -> Result<usize, LockError> {
        let mut held = 0;
        for (account, number) in accounts {
            let key = format!("account:{}:{number:02}", account.replace(':', "%3A"));
            let info = client.inspect(&key).await?.expect("held");
            assert_eq!(info.depth, 1);
            held += 1;
        }
        assert!(client.inspect("ledger").await?.is_some());
        Ok(held)
    }
    #[distributed_lock(key = "account:<accounts[]>")]
    async fn close_only(accounts: Vec<u32>) -> Result<(), LockError> {
        panic!("ran without a lock: {accounts:?}")
    }
    let client = LockClient::in_memory();
    let closed = close(&client, &[("b:1", 2), ("a", 3), ("b:1", 2)]).await;
    assert_eq!(closed.expect("free"), 3);
    assert_eq!(close(&client, &[]).await.expect("the ledger is locked"), 0);
    let empty = client.scope(close_only(Vec::new())).await;
    let error = empty.expect_err("nothing to lock").to_string();
    assert!(error.contains("`account:<accounts[]>`"), "{error}");
    assert!(error.contains("the list is empty"), "{error}");
}

#[tokio::test]
async fn several_keys_that_wait_for_one_keep_no_call_from_the_others() {
    // If this call kept a lock, the lock would stay taken for longer than a call below waits.
    #[distributed_lock(key = ["account:a", "account:b"], wait = "forever", lease = "1h", client = client)]
    async fn both(client: LockClient) -> Result<(), LockError> {
        Ok(())
    }
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    // Once while this process has the lock, and once while another process has it.
    for (holder, is_other) in [(&one, false), (&other, true)] {
        let held = hold(holder, "account:b").await;
        let mut waiting = Box::pin(both(one.clone()));
        begin(&mut waiting).await;
        let waiting = tokio::spawn(waiting);
        if is_other {
            assert_soon_queued(&server, "account:b", 1).await;
        }
        let lock = one.lock("account:a").wait(LONG);
        for _ in 0..5 {
            lock.run(async {}).await.expect("it is free");
        }
        held.release().await.expect("held");
        within(LONG, "its turn", waiting)
            .await
            .expect("no panic")
            .expect("granted");
    }
}

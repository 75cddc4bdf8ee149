//! Annotated functions at run time.

mod modes;

use std::{
    fmt,
    ops::Deref,
    rc::Rc,
    sync::{Arc, LazyLock},
    time::Duration,
};

use rlock_core::{LockClient, LockError, current, distributed_lock};
use rlock_testkit::RedisServer;

use crate::common::alone::alone;

/// Returns the key of the innermost hold.
fn inside() -> String {
    current().expect("inside a lock").key().to_owned()
}

#[derive(Clone)]
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
async fn placeholders_are_arguments_fields_calls_and_indices() {
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

    #[distributed_lock(key = "a<<b>>c:<id>")]
    async fn brackets(id: &str) -> Result<String, LockError> {
        let _ = id;
        Ok(inside())
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
            assert_eq!(brackets("1:2").await.expect("free"), "a<b>c:1%3A2");
            assert_eq!(tagged(3).await.expect("free"), "{tenant:3}:order");
        })
        .await;
}

#[tokio::test]
async fn the_key_is_rendered_before_the_body_starts_and_arguments_can_be_moved_into_it() {
    #[distributed_lock(key = "names:<name>")]
    async fn consume(mut name: String) -> Result<(String, String), LockError> {
        name.push('!');
        let moved = tokio::spawn(async move { name }).await.expect("no panic");
        Ok((inside(), moved))
    }
    let client = LockClient::in_memory();
    let answer = client.scope(consume("ada".to_owned())).await.expect("free");
    assert_eq!(answer, ("names:ada".to_owned(), "ada!".to_owned()));
}

#[tokio::test]
async fn a_client_is_whatever_leads_to_one() {
    static LOCKS: LazyLock<LockClient> = LazyLock::new(LockClient::in_memory);

    struct Service {
        place: LockClient,
        shared: Arc<LockClient>,
    }
    impl Service {
        fn locks(&self) -> &LockClient {
            &self.place
        }
        #[distributed_lock(key = "k", client = self.place)]
        async fn by_place(&self) -> Result<(), LockError> {
            assert_held(&self.place).await
        }
        #[distributed_lock(key = "k", client = self.shared)]
        async fn by_arc(&self) -> Result<(), LockError> {
            assert_held(&self.place).await
        }
        #[distributed_lock(key = "k", client = self.locks())]
        async fn by_reference(&self) -> Result<(), LockError> {
            assert_held(&self.place).await
        }
    }
    async fn assert_held(client: &LockClient) -> Result<(), LockError> {
        assert!(client.inspect("k").await?.is_some());
        Ok(())
    }
    #[distributed_lock(key = "k", client = client)]
    async fn by_argument(client: LockClient) -> Result<(), LockError> {
        assert_held(&client).await
    }
    #[distributed_lock(key = "k", client = client)]
    async fn by_mutable_reference(client: &mut LockClient) -> Result<(), LockError> {
        assert_held(client).await
    }
    #[distributed_lock(key = "k", client = client)]
    async fn by_reference_to_an_arc(client: &Arc<LockClient>) -> Result<(), LockError> {
        assert_held(client).await
    }
    #[distributed_lock(key = "k", client = client)]
    async fn by_rc(client: Rc<LockClient>) -> Result<(), LockError> {
        assert_held(&client).await
    }
    #[distributed_lock(key = "k", client = client)]
    async fn by_box(client: Box<LockClient>) -> Result<(), LockError> {
        assert_held(&client).await
    }
    #[distributed_lock(key = "k", client = LOCKS)]
    async fn by_static() -> Result<(), LockError> {
        assert_held(&LOCKS).await
    }
    #[distributed_lock(key = "k", client = client)]
    async fn generic<C: Deref<Target = LockClient>>(client: C) -> Result<(), LockError> {
        assert_held(&client).await
    }

    let mut client = LockClient::in_memory();
    let service = Service {
        place: client.clone(),
        shared: Arc::new(client.clone()),
    };
    service.by_place().await.expect("free");
    service.by_arc().await.expect("free");
    service.by_reference().await.expect("free");
    by_argument(client.clone()).await.expect("free");
    by_mutable_reference(&mut client).await.expect("free");
    by_reference_to_an_arc(&service.shared).await.expect("free");
    by_rc(Rc::new(client.clone())).await.expect("free");
    by_box(Box::new(client.clone())).await.expect("free");
    by_static().await.expect("free");
    generic(&client).await.expect("free");
}

#[test]
fn the_scope_s_client_wins_over_the_installed_one() {
    #[distributed_lock(key = "k")]
    async fn owner() -> Result<String, LockError> {
        Ok(current().expect("inside").owner().to_string())
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
    Skipped(String),
}

#[distributed_lock(key = "night", wait = "0s", or_else = |error| Night::Skipped(error.to_string()))]
async fn night() -> Night {
    tokio::time::sleep(Duration::from_millis(200)).await;
    Night::Done
}

#[tokio::test]
async fn or_else_answers_for_a_lock_that_is_not_to_be_had() {
    let client = LockClient::in_memory();
    let (first, second) = client.scope(async { tokio::join!(night(), night()) }).await;
    assert_eq!(first, Night::Done);
    let Night::Skipped(why) = second else {
        panic!("{second:?}")
    };
    assert!(why.contains("`night`"), "{why}");
}

#[distributed_lock(key = "if-taken", wait = "0s", if_taken = Ok(format!("{name} skipped")))]
async fn skipped_or_failed(name: &str) -> Result<String, LockError> {
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(name.to_owned())
}

#[distributed_lock(
    key = "if-taken",
    wait = "0s",
    client = client,
    if_taken = Night::Skipped(String::new()),
    or_else = |error| Night::Skipped(error.to_string())
)]
fn blocking_skipped_or_failed(client: &LockClient) -> Night {
    Night::Done
}

#[tokio::test]
async fn if_taken_answers_for_a_taken_lock_and_for_nothing_else() {
    let client = LockClient::in_memory();
    let both = async { tokio::join!(skipped_or_failed("a"), skipped_or_failed("b")) };
    let (first, second) = client.scope(both).await;
    assert_eq!(first.expect("free"), "a");
    assert_eq!(second.expect("skipped"), "b skipped");

    client.shutdown().await.expect("nothing is held");
    let closed = client.scope(skipped_or_failed("c")).await;
    assert!(
        matches!(closed, Err(LockError::Closed { .. })),
        "{closed:?}"
    );
}

#[tokio::test]
async fn if_taken_leaves_other_errors_to_or_else() {
    let client = LockClient::in_memory();
    let guard = client.lock("if-taken").acquire().await.expect("free");
    let elsewhere = client.clone();
    let skipped = std::thread::spawn(move || blocking_skipped_or_failed(&elsewhere)).join();
    assert_eq!(skipped.expect("no panic"), Night::Skipped(String::new()));
    guard.release().await.expect("held");

    let Night::Skipped(why) = blocking_skipped_or_failed(&client) else {
        panic!("it ran inside of a task")
    };
    assert!(why.contains("spawn_blocking"), "{why}");
}

mod limits {
    pub(super) const REGION: &str = "eu:west";
}

struct Shelf<const ROW: u8> {
    lines: Vec<(u8, &'static str)>,
}

impl<const ROW: u8> Shelf<ROW> {
    const NAME: &'static str = "shelf";

    #[distributed_lock(key = "<Self::NAME>:<ROW>:<N:02>:<limits::REGION>")]
    async fn constants<const N: usize>(&self) -> Result<String, LockError> {
        Ok(inside())
    }

    #[distributed_lock(key = ["line:<ROW>:<self.lines[].1>:<self.lines[].0:02>"], client = client)]
    fn lines(&self, client: &LockClient) -> Result<Vec<&'static str>, LockError> {
        Ok(self.lines.iter().map(|line| line.1).collect())
    }
}

#[tokio::test]
async fn constants_and_const_generics_are_values_in_a_key() {
    let shelf = Shelf::<7> { lines: Vec::new() };
    let key = LockClient::in_memory().scope(shelf.constants::<3>()).await;
    assert_eq!(key.expect("free"), "shelf:7:03:eu%3Awest");
}

#[tokio::test]
async fn a_list_of_any_length_is_a_key_for_each_element() {
    #[distributed_lock(key = ["ledger", "account:<accounts[]>"], client = client)]
    async fn close(client: &LockClient, accounts: &[&str]) -> Result<usize, LockError> {
        let mut held = 0;
        for account in accounts {
            let key = format!("account:{}", account.replace(':', "%3A"));
            let info = client.inspect(&key).await?.expect("held");
            assert_eq!(info.count, 1);
            held += 1;
        }
        assert!(client.inspect("ledger").await?.is_some());
        Ok(held)
    }
    let client = LockClient::in_memory();
    let closed = close(&client, &["b:1", "a", "b:1", "c"]).await;
    assert_eq!(closed.expect("free"), 4);
    assert_eq!(close(&client, &[]).await.expect("the ledger is locked"), 0);

    let row = Shelf::<1> {
        lines: vec![(4, "x"), (5, "y")],
    };
    let held = client.lock("line:1:y:05").wait(Duration::ZERO);
    let guard = held.acquire().await.expect("free");
    let elsewhere = client.clone();
    let one_is_taken = std::thread::spawn(move || row_of(&elsewhere)).join();
    assert!(one_is_taken.expect("no panic").is_err());
    guard.release().await.expect("held");
    let elsewhere = client.clone();
    let lines = std::thread::spawn(move || row.lines(&elsewhere)).join();
    assert_eq!(lines.expect("no panic").expect("free"), ["x", "y"]);
}

fn row_of(client: &LockClient) -> Result<Vec<&'static str>, LockError> {
    #[distributed_lock(key = "line:1:<lines[]>:05", wait = "0s", client = client)]
    fn lock(client: &LockClient, lines: &[&'static str]) -> Result<Vec<&'static str>, LockError> {
        Ok(lines.to_vec())
    }
    lock(client, &["x", "y"])
}

#[tokio::test]
async fn an_empty_list_of_keys_is_refused_and_the_body_does_not_run() {
    #[distributed_lock(key = "account:<accounts[]>")]
    async fn close(accounts: Vec<u32>) -> Result<(), LockError> {
        panic!("ran without a lock: {accounts:?}")
    }
    let empty = LockClient::in_memory().scope(close(Vec::new())).await;
    let error = empty.expect_err("nothing to lock").to_string();
    assert!(error.contains("`account:<accounts[]>`"), "{error}");
    assert!(error.contains("the list is empty"), "{error}");
}

#[tokio::test]
async fn several_keys_are_taken_in_one_order_and_equal_ones_once() {
    #[distributed_lock(key = ["account:<from>", "account:<to>"], wait = "20s")]
    async fn transfer(from: u8, to: u8, client: &LockClient) -> Result<u8, LockError> {
        let both = [format!("account:{from}"), format!("account:{to}")];
        for key in both {
            let info = client.inspect(&key).await?.expect("held");
            assert_eq!(info.count, 1);
        }
        tokio::task::yield_now().await;
        Ok(from)
    }
    let client = LockClient::in_memory();
    client
        .scope(async {
            for _ in 0..50 {
                let there = transfer(1, 2, &client);
                let back = transfer(2, 1, &client);
                let same = transfer(2, 2, &client);
                let (there, back, same) = tokio::join!(there, back, same);
                assert_eq!(
                    (there.ok(), back.ok(), same.ok()),
                    (Some(1), Some(2), Some(2))
                );
            }
        })
        .await;
}

#[tokio::test]
async fn several_keys_are_taken_all_or_none() {
    #[distributed_lock(key = ["account:a", "account:b"], wait = "100ms")]
    async fn both() -> Result<(), LockError> {
        Ok(())
    }
    let client = LockClient::in_memory();
    let taken = client.lock("account:b").acquire().await.expect("free");
    let error = client
        .scope(both())
        .await
        .expect_err("one of them is taken");
    assert!(
        matches!(error, LockError::Timeout { ref key, .. } if key == "account:b"),
        "{error:?}"
    );
    assert!(
        client
            .inspect("account:a")
            .await
            .expect("a reply")
            .is_none()
    );
    taken.release().await.expect("held");
    client.scope(both()).await.expect("free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_keys_on_a_server_are_taken_by_one_script_and_opposite_transfers_get_through() {
    #[distributed_lock(key = ["account:<from>", "account:<to>"], wait = "60s", client = client)]
    async fn transfer(client: &LockClient, from: u8, to: u8) -> Result<(), LockError> {
        tokio::task::yield_now().await;
        Ok(())
    }
    let server = RedisServer::start();
    let client = LockClient::connect(&server.url())
        .await
        .expect("the server is up");
    let other = LockClient::connect(&server.url())
        .await
        .expect("the server is up");
    let mut commands = server.watch_commands().await;
    transfer(&client, 1, 2).await.expect("free");
    let seen = commands.seen().await;
    assert_eq!(seen.len(), 3, "one acquire and two releases: {seen:?}");
    drop(commands);

    let there = async {
        for _ in 0..50 {
            transfer(&client, 1, 2).await.expect("granted");
        }
    };
    let back = async {
        for _ in 0..50 {
            transfer(&other, 2, 1).await.expect("granted");
        }
    };
    tokio::join!(there, back);
    assert!(server.keys("lock:{account:?}").await.is_empty());
}

#[tokio::test]
async fn several_keys_enter_what_the_call_chain_holds_and_take_the_rest() {
    #[distributed_lock(key = ["account:a", "account:b"], wait = "100ms", client = client)]
    async fn both(client: &LockClient) -> Result<(u32, u32), LockError> {
        let count = async |key| {
            client
                .inspect(key)
                .await
                .map(|info| info.map_or(0, |i| i.count))
        };
        Ok((count("account:a").await?, count("account:b").await?))
    }
    let client = LockClient::in_memory();
    let inside = client
        .lock("account:b")
        .run(both(&client))
        .await
        .expect("free");
    assert_eq!(inside.expect("enters one, takes the other"), (1, 2));
    assert_eq!(both(&client).await.expect("free"), (1, 1));
}

#[tokio::test]
async fn several_keys_that_wait_for_one_keep_no_call_from_the_others() {
    #[distributed_lock(key = ["account:a", "account:b"], wait = "forever", client = client)]
    async fn both(client: &LockClient) -> Result<(), LockError> {
        Ok(())
    }
    let server = RedisServer::start();
    let client = LockClient::connect(&server.url())
        .await
        .expect("the server is up");
    let elsewhere = LockClient::connect(&server.url())
        .await
        .expect("the server is up");
    // Once while this process has the lock, and once while another process has it.
    for holder in [&client, &elsewhere] {
        let held = holder.lock("account:b").acquire().await.expect("free");
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { both(&client).await }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let lock = client.lock("account:a").wait(Duration::from_secs(2));
        for _ in 0..5 {
            lock.run(async {}).await.expect("it is free");
        }
        held.release().await.expect("held");
        waiting.await.expect("no panic").expect("granted");
    }
}

#[tokio::test]
async fn max_hold_stops_a_body_that_hangs() {
    #[distributed_lock(key = "k", max_hold = "300ms")]
    async fn hangs() -> Result<(), LockError> {
        std::future::pending().await
    }
    let client = LockClient::in_memory();
    let error = client.scope(hangs()).await.expect_err("stopped");
    assert!(error.to_string().contains("`max_hold`"), "{error}");
    assert!(
        client.inspect("k").await.expect("a reply").is_none(),
        "and released"
    );
}

#[tokio::test]
async fn options_out_of_bounds_at_run_time_are_errors_of_the_function() {
    fn lease() -> Duration {
        Duration::from_millis(1)
    }
    #[distributed_lock(key = "order:<id>", lease = lease())]
    async fn pay(id: &str) -> Result<(), LockError> {
        unreachable!("{id}")
    }
    #[distributed_lock(key = "<id>")]
    async fn raw(id: &str) -> Result<(), LockError> {
        unreachable!("{id}")
    }
    LockClient::in_memory()
        .scope(async {
            let error = pay("1").await.expect_err("too short");
            assert!(
                matches!(
                    error,
                    LockError::InvalidOption {
                        option: "lease",
                        ..
                    }
                ),
                "{error:?}"
            );
            for id in [String::new(), "x".repeat(2000)] {
                let error = raw(&id).await.expect_err("no key");
                assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");
            }
        })
        .await;
}

#[tokio::test]
async fn trait_methods_and_generics_lock_like_others() {
    trait Ledger {
        fn book(&self, id: u64) -> impl Future<Output = Result<String, LockError>> + Send;
    }
    struct Books;
    impl Ledger for Books {
        #[distributed_lock(key = "book:<id>")]
        async fn book(&self, id: u64) -> Result<String, LockError> {
            let _ = id;
            Ok(inside())
        }
    }
    #[distributed_lock(key = "of:<value>")]
    async fn generic<T, E>(value: T) -> Result<String, E>
    where
        T: fmt::Display + Send,
        E: From<LockError> + From<fmt::Error>,
    {
        let _ = value;
        Ok(inside())
    }
    #[derive(Debug)]
    struct Any;
    impl From<LockError> for Any {
        fn from(_: LockError) -> Self {
            Self
        }
    }
    impl From<fmt::Error> for Any {
        fn from(_: fmt::Error) -> Self {
            Self
        }
    }
    LockClient::in_memory()
        .scope(async {
            assert_eq!(Books.book(3).await.expect("free"), "book:3");
            assert_eq!(
                generic::<_, Any>(OrderId(3)).await.expect("free"),
                "of:0003"
            );
        })
        .await;
}

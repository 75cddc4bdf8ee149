//! The hold as a variable of the body, by the option `guard`.

use async_trait::async_trait;
use rlock_core::{CurrentHold, LockClient, LockError, LostCause, distributed_lock};
use rlock_testkit::within;

use crate::common::{LONG, here};

/// What the variable shows in the body, and what `current` shows there.
type Seen = Result<(CurrentHold, CurrentHold), LockError>;

#[distributed_lock(key = "order:<id>", guard = lock)]
async fn pay(id: u64) -> Seen {
    assert!(lock.is_valid(), "order {id}");
    tokio::task::yield_now().await;
    Ok((lock, here()))
}

#[distributed_lock(key = "order:<id>", guard = lock, client = client)]
fn pay_here(client: &LockClient, id: u64) -> Seen {
    assert!(lock.is_valid(), "order {id}");
    Ok((lock, here()))
}

#[distributed_lock(key = ["account:<to>", "account:<from>"], guard = locks, shared)]
async fn transfer(from: u64, to: u64) -> Seen {
    assert!(from != to);
    Ok((locks, here()))
}

#[distributed_lock(key = "order:<id>", guard = lock)]
#[expect(clippy::manual_async_fn, reason = "a function that returns a future")]
fn later(id: u64) -> impl Future<Output = Seen> {
    async move {
        assert!(lock.is_valid(), "order {id}");
        Ok((lock, here()))
    }
}

#[async_trait]
trait Job {
    async fn run(&self, id: u64) -> Seen;
}

struct Night;

#[async_trait]
impl Job for Night {
    #[distributed_lock(key = "night:<id>", guard = r#move)]
    async fn run(&self, id: u64) -> Seen {
        assert!(r#move.is_valid(), "night {id}");
        Ok((r#move, here()))
    }
}

/// The variable of an inner call is its own hold, and a variable of the body replaces it.
#[distributed_lock(key = "outer", guard = lock)]
async fn nested() -> Result<Vec<String>, LockError> {
    let (inner, _) = pay(1).await?;
    let outer = lock.key().to_owned();
    let lock = inner.key();
    Ok(vec![outer, lock.to_owned()])
}

#[tokio::test]
async fn the_variable_of_a_locked_function_is_its_hold() {
    let client = LockClient::in_memory();
    let all = async {
        let client = client.clone();
        let pay_here = tokio::task::spawn_blocking(move || pay_here(&client, 2));
        [
            ("order:1", pay(1).await),
            ("order:2", pay_here.await.expect("no panic")),
            ("account:7", transfer(3, 7).await),
            ("order:4", later(4).await),
            ("night:5", Night.run(5).await),
        ]
    };
    for (key, seen) in client.scope(all).await {
        let (hold, current) = seen.expect("free");
        assert_eq!(hold.key(), key);
        assert!(hold.keys().eq(current.keys()));
        for key in hold.keys() {
            assert!(hold.token_of(key).is_some());
            assert_eq!(hold.token_of(key), current.token_of(key));
        }
        assert_eq!(hold.owner(), current.owner());
        // The variable does not keep the lock.
        assert!(!hold.is_valid(), "{hold:?}");
        let cause = within(LONG, "an ended hold reports its cause", hold.lost()).await;
        assert_eq!(cause, LostCause::Released);
    }
    let keys = client.scope(nested()).await.expect("free");
    assert_eq!(keys, ["outer", "order:1"]);
}

/// A map like those of papaya and flurry, whose methods have the same names as those of a hold.
struct Map(u8);

impl Map {
    fn guard(&self) -> u8 {
        self.0
    }

    fn fence(&self) -> u8 {
        2 * self.0
    }
}

static MAP: Map = Map(1);
#[expect(non_upper_case_globals, reason = "a variable by its looks")]
static map: Map = Map(10);

#[distributed_lock(key = "k", client = client)]
async fn items(client: &LockClient) -> Result<u8, LockError> {
    Ok(MAP.guard() + MAP.fence() + map.guard() + map.fence())
}

#[tokio::test]
async fn a_body_without_the_option_calls_such_methods_of_items() {
    assert_eq!(items(&LockClient::in_memory()).await.expect("free"), 33);
}

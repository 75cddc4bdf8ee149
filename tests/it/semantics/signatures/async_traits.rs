//! Methods of traits: `#[async_trait]`, native ones with a default body, and functions that return
//! a future.

use std::pin::Pin;

use async_trait::async_trait;
use rlock_core::{LockClient, LockError, current, distributed_lock};
use tracing::instrument;

use super::held::{Outcome, assert_free, assert_held, client, run};

#[derive(Debug, Clone, Copy)]
struct Transfer {
    from: u8,
    to: u8,
}

#[async_trait]
trait Ledger: Send + Sync {
    fn name(&self) -> &str;

    async fn book(&self, id: u64) -> Outcome<String>;

    async fn transfer(&mut self, first: Transfer, amount: u8) -> Outcome<u8>;

    async fn close(self: Box<Self>) -> Outcome;

    async fn touch(&self, id: u64, next: u64) -> Outcome<u64>;

    async fn rename<'a>(&mut self, name: &'a str) -> Outcome<&'a str>;

    #[distributed_lock(key = "count:<self.name()>:<more>")]
    async fn count(&self, more: u8) -> Outcome<u8> {
        assert_held("count:books:1").await;
        Ok(more)
    }
}

struct Books {
    name: String,
    locks: LockClient,
}

#[async_trait]
impl Ledger for Books {
    fn name(&self) -> &str {
        &self.name
    }

    #[distributed_lock(key = "<self.name>:<id>", client = self.locks)]
    async fn book(&self, id: u64) -> Outcome<String> {
        assert_held("books:3").await;
        let text = format!("{} {id}", self.name);
        Ok(text)
    }

    #[distributed_lock(key = ["<self.name>:<from>", "<self.name>:<to>"])]
    async fn transfer(&mut self, Transfer { from, to }: Transfer, mut amount: u8) -> Outcome<u8> {
        for key in ["books:1", "books:2"] {
            assert!(client().inspect(key).await?.is_some());
        }
        self.name.push('!');
        amount += from + to;
        Ok(amount)
    }

    #[distributed_lock(key = "close:<self.name>")]
    async fn close(mut self: Box<Self>) -> Outcome {
        assert_held("close:renamed").await;
        self.name.clear();
        Ok(())
    }

    /// Only the key mentions the first argument.
    #[distributed_lock(key = "touch:<id>:<next>")]
    async fn touch(&self, id: u64, mut next: u64) -> Outcome<u64> {
        assert_held("touch:1:2").await;
        next += 1;
        Ok(next)
    }

    #[distributed_lock(key = "rename:<name>")]
    async fn rename<'a>(&mut self, name: &'a str) -> Outcome<&'a str> {
        assert_held("rename:renamed").await;
        name.clone_into(&mut self.name);
        Ok(name)
    }
}

#[async_trait(?Send)]
trait Local {
    async fn spans(&self, id: u8) -> Outcome<u8>;
    async fn in_a_span(&self, id: u8) -> Outcome<u8>;
    async fn two(&self, id: u8) -> Outcome<u8>;
    async fn nothing(&self);
}

#[async_trait(?Send)]
impl Local for std::cell::Cell<u8> {
    #[distributed_lock(key = "spans:<id>")]
    #[instrument(skip(self))]
    async fn spans(&self, id: u8) -> Outcome<u8> {
        assert_held("spans:1").await;
        Ok(self.get() + id)
    }

    #[instrument(skip(self))]
    #[distributed_lock(key = "in-a-span:<id>")]
    async fn in_a_span(&self, id: u8) -> Outcome<u8> {
        assert_held("in-a-span:1").await;
        Ok(self.get() + id)
    }

    #[distributed_lock(key = "outer:<id>")]
    #[distributed_lock(key = "inner:<id>")]
    async fn two(&self, id: u8) -> Outcome<u8> {
        assert!(client().inspect("inner:1").await?.is_some());
        assert!(client().inspect("outer:1").await?.is_some());
        Ok(id)
    }

    #[distributed_lock(key = "nothing:<self.get()>", or_else = drop)]
    async fn nothing(&self) {
        assert_held("nothing:1").await;
    }
}

trait Native {
    fn required(&self, number: u8) -> impl Future<Output = Outcome<u8>> + Send;

    #[distributed_lock(key = "provided:<number>")]
    async fn provided(&self, number: u8) -> Outcome<u8> {
        assert_held("provided:1").await;
        self.required(number).await
    }

    #[distributed_lock(key = "promised:<number>")]
    fn promised(&self, number: u8) -> impl Future<Output = Outcome<u8>> + Send
    where
        Self: Sync,
    {
        async move {
            assert_held("promised:1").await;
            self.required(number).await
        }
    }
}

impl Native for Books {
    #[distributed_lock(key = "required:<number>", client = self.locks)]
    async fn required(&self, number: u8) -> Outcome<u8> {
        assert_held("required:1").await;
        Ok(number)
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[distributed_lock(key = "by-hand:<name>")]
fn by_hand(name: &str) -> Pin<Box<dyn Future<Output = Result<usize, LockError>> + Send + '_>> {
    Box::pin(async move {
        assert_held("by-hand:x").await;
        Ok(name.len())
    })
}

fn books() -> Books {
    Books {
        name: "books".to_owned(),
        locks: client().clone(),
    }
}

#[tokio::test]
async fn what_async_trait_makes_is_locked_while_its_future_runs() {
    let mut books = books();
    assert_eq!(run(books.book(3)).await.expect("free"), "books 3");
    assert_eq!(run(books.count(1)).await.expect("free"), 1);
    let transfer = Transfer { from: 1, to: 2 };
    let amount = run(books.transfer(transfer, 3)).await;
    assert_eq!(amount.expect("free"), 6);
    assert_eq!(books.name, "books!");
    assert_eq!(run(books.touch(1, 2)).await.expect("free"), 3);
    run(books.rename("renamed")).await.expect("free");
    let boxed: Box<dyn Ledger> = Box::new(books);
    run(boxed.close()).await.expect("free");
    for key in ["books:1", "books:2", "books:3", "close:renamed"] {
        assert_free(key).await;
    }
}

#[tokio::test]
async fn a_boxed_future_that_is_never_polled_locks_nothing() {
    let books = books();
    let future = books.book(99);
    assert_free("books:99").await;
    drop(future);
}

#[tokio::test]
async fn async_trait_spans_and_locks_stack_in_every_order() {
    client();
    let cell = std::cell::Cell::new(1);
    assert_eq!(cell.spans(1).await.expect("free"), 2);
    assert_eq!(cell.in_a_span(1).await.expect("free"), 2);
    assert_eq!(cell.two(1).await.expect("free"), 1);
    cell.nothing().await;
    assert!(current().is_none());
}

#[tokio::test]
async fn native_methods_are_locked_with_and_without_a_default_body() {
    let books = books();
    assert_eq!(books.provided(1).await.expect("free"), 1);
    assert_eq!(run(books.promised(1)).await.expect("free"), 1);
}

#[tokio::test]
async fn a_future_written_by_hand_is_locked_while_it_runs() {
    let future: Boxed<'_, _> = by_hand("x");
    assert_free("by-hand:x").await;
    assert_eq!(run(future).await.expect("free"), 1);
}

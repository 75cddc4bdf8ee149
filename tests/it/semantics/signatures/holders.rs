//! The function of a holder, as other clients see it.

use std::fmt::Display;

use async_trait::async_trait;
use rlock_core::{LockError, distributed_lock};

use super::held::{client, run};

type Outcome = Result<String, LockError>;

/// Returns the function that holds the lock, without the path of this module.
async fn function(key: &str) -> Outcome {
    let info = client().inspect(key).await?.expect("held");
    let holder = info.holder.expect("it replies");
    let function = holder.function.clone().expect("an annotated function");
    assert!(holder.to_string().contains(&format!(", in `{function}`,")));
    Ok(function.replace(&format!("{}::", module_path!()), ""))
}

fn function_here(key: &str) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(function(key))
}

#[distributed_lock(key = "function:free")]
async fn free() -> Outcome {
    function("function:free").await
}

#[distributed_lock(key = "function:<id>")]
fn r#match<T: Display>(id: &T) -> Outcome {
    function_here(&format!("function:{id}"))
}

#[allow(clippy::manual_async_fn)]
#[distributed_lock(key = "function:future")]
fn future() -> impl Future<Output = Outcome> + Send {
    async { function("function:future").await }
}

struct Orders;

impl Orders {
    #[distributed_lock(key = "function:reserve")]
    async fn reserve(&self) -> Outcome {
        let Self = self;
        function("function:reserve").await
    }

    #[distributed_lock(key = "function:here")]
    fn reserve_here() -> Outcome {
        function_here("function:here")
    }
}

struct Shelf<T>(T);

impl<T: Sync> Shelf<T> {
    #[distributed_lock(key = "function:shelf")]
    async fn reserve(&self) -> Outcome {
        let Self(_) = self;
        function("function:shelf").await
    }
}

#[async_trait]
trait Sells {
    async fn sell(&self) -> Outcome;

    #[distributed_lock(key = "function:default")]
    fn sell_here(&self) -> Outcome {
        function_here("function:default")
    }
}

#[async_trait]
impl Sells for Orders {
    #[distributed_lock(key = "function:sell")]
    async fn sell(&self) -> Outcome {
        function("function:sell").await
    }
}

#[async_trait]
impl<T: Send + Sync> Sells for Shelf<T> {
    #[distributed_lock(key = "function:sell")]
    async fn sell(&self) -> Outcome {
        function("function:sell").await
    }

    #[distributed_lock(key = "function:sell")]
    fn sell_here(&self) -> Outcome {
        function_here("function:sell")
    }
}

#[tokio::test]
async fn the_function_of_a_holder_has_its_type() {
    #[distributed_lock(key = "function:local")]
    async fn local() -> Outcome {
        function("function:local").await
    }

    let test = "the_function_of_a_holder_has_its_type";
    for (function, expected) in [
        (run(free()).await, "free"),
        (run(future()).await, "future"),
        (run(local()).await, &*format!("{test}::local")),
        (run(Orders.reserve()).await, "Orders::reserve"),
        (run(Shelf(1).reserve()).await, "Shelf<_>::reserve"),
        (run(Orders.sell()).await, "<Orders as Sells>::sell"),
        (run(Shelf(1).sell()).await, "<Shelf<_> as Sells>::sell"),
    ] {
        assert_eq!(function.expect("free"), expected);
    }
}

#[test]
fn the_function_of_a_synchronous_holder_has_its_type() {
    client();
    for (function, expected) in [
        (r#match(&7), "match"),
        (Orders::reserve_here(), "Orders::reserve_here"),
        (Orders.sell_here(), "Sells::sell_here"),
        (Shelf(1).sell_here(), "<Shelf<_> as Sells>::sell_here"),
    ] {
        assert_eq!(function.expect("free"), expected);
    }
}

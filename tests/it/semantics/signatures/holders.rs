//! The function of a holder, as other clients see it.

use std::fmt::Display;

use async_trait::async_trait;
use pollster::block_on;
use rlock_core::distributed_lock;

use super::held::{self, client, run};

type Outcome = held::Outcome<String>;

/// Returns the function that holds the lock, without the path of this module.
async fn function(key: &str) -> Outcome {
    let info = client().inspect(key).await?.expect("held");
    let holder = info.holder.expect("it replies");
    let function = holder.function.clone().expect("an annotated function");
    assert!(holder.to_string().contains(&format!(", in `{function}`,")));
    Ok(function.replace(&format!("{}::", module_path!()), ""))
}

fn function_here(key: &str) -> Outcome {
    block_on(function(key))
}

#[distributed_lock(key = "function:free")]
async fn free() -> Outcome {
    function("function:free").await
}

#[distributed_lock(key = "function:<id>")]
fn r#match<T: Display>(id: &T) -> Outcome {
    function_here(&format!("function:{id}"))
}

struct Orders;

impl Orders {
    #[distributed_lock(key = "function:reserve")]
    async fn reserve(&self) -> Outcome {
        let Self = self;
        function("function:reserve").await
    }
}

struct Shelf<T>(T);

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
        (run(local()).await, &*format!("{test}::local")),
        (run(Orders.reserve()).await, "Orders::reserve"),
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
        (Orders.sell_here(), "Sells::sell_here"),
    ] {
        assert_eq!(function.expect("free"), expected);
    }
}

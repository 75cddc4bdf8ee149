//! Bodies: labels, nested items, macros, shadows, attributes, recursion.

use rlock_core::{current, distributed_lock};

use super::held::{Outcome, assert_held, run};

#[distributed_lock(key = "labels:<number>")]
async fn labels(number: u8) -> Outcome<u8> {
    assert_held("labels:1").await;
    let found = 'search: {
        if number > 1 {
            break 'search 3;
        }
        4
    };
    'outer: loop {
        for step in 0.. {
            if step > number {
                break 'outer;
            }
        }
    }
    Ok(found)
}

#[distributed_lock(key = "items:<number>")]
async fn items_and_shadows(number: u8) -> Outcome<u8> {
    use Shadow::{None, Some};

    #[derive(Clone, Copy)]
    enum Shadow {
        Some,
        None,
    }

    macro_rules! twice {
        ($value:expr) => {
            $value + $value
        };
    }

    fn inner(shadow: Shadow) -> u8 {
        match shadow {
            Some => 1,
            None => 0,
        }
    }

    assert_held("items:2").await;
    Ok(twice!(inner(if number > 1 { Some } else { None })))
}

struct Counter(u8);

impl Counter {
    #[distributed_lock(key = "macro:<self.0>")]
    async fn self_inside_a_macro(&self) -> Outcome<String> {
        assert_held("macro:3").await;
        Ok(format!("{}{:?}", self.0, vec![self.0; 2]))
    }
}

#[distributed_lock(key = "attributes")]
async fn inner_attributes() -> Outcome {
    #![allow(unused_variables)]
    assert_held("attributes").await;
    let unused = 5;
    Ok(())
}

#[distributed_lock(key = "down:<number>")]
async fn recursive(number: u8) -> Outcome<u8> {
    assert_held(&format!("down:{number}")).await;
    if number == 0 {
        Ok(0)
    } else {
        Ok(recursive(number - 1).await? + 1)
    }
}

#[distributed_lock(key = "same")]
async fn enters_its_own_lock(depth: u32) -> Outcome<u32> {
    assert_held("same").await;
    if depth > 1 {
        return enters_its_own_lock(depth - 1).await;
    }
    Ok(current().expect("inside of a lock").count())
}

macro_rules! function {
    ($name:ident, $argument:ident, $key:literal, $lease:expr, $body:block) => {
        #[distributed_lock(key = $key, lease = $lease)]
        async fn $name($argument: u8) -> Outcome<u8> $body
    };
}

function!(made_by_a_macro, number, "made:<number>", "5s", {
    assert_held("made:1").await;
    Ok(3)
});

macro_rules! hygienic {
    ($name:ident) => {
        #[distributed_lock(key = "hygienic:<number>")]
        async fn $name(number: u8) -> Outcome<u8> {
            assert_held("hygienic:1").await;
            Ok(number)
        }
    };
}

hygienic!(hygienic);

#[tokio::test]
async fn a_body_is_what_it_was() {
    assert_eq!(run(labels(1)).await.expect("free"), 4);
    assert_eq!(run(items_and_shadows(2)).await.expect("free"), 2);
    let text = run(Counter(3).self_inside_a_macro()).await.expect("free");
    assert_eq!(text, "3[3, 3]");
    run(inner_attributes()).await.expect("free");
    assert_eq!(run(made_by_a_macro(1)).await.expect("free"), 3);
    assert_eq!(run(hygienic(1)).await.expect("free"), 1);
}

#[tokio::test]
async fn a_function_may_call_itself() {
    assert_eq!(run(recursive(5)).await.expect("free"), 5);
    assert_eq!(run(enters_its_own_lock(4)).await.expect("free"), 4);
    crate::semantics::signatures::held::assert_free("same").await;
}

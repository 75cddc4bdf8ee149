//! Parameters that are patterns, raw, mutable, unnamed or conditional.

use rlock_core::distributed_lock;

use super::held::{Outcome, assert_held, run};

#[derive(Clone, Copy)]
struct Order {
    id: u64,
    lines: (u8, u8),
}

#[distributed_lock(key = "<first>:<third>:<id>:<dots>:<line.1>:<head>")]
async fn patterns(
    (first, _): (u8, u8),
    [second, third]: [u8; 2],
    Order {
        id,
        lines: line @ (left, _),
    }: Order,
    &dots: &u8,
    [head, ..]: &[u8; 3],
) -> Outcome<u8> {
    assert_held("1:4:7:5:2:9").await;
    assert_eq!(id, 7);
    Ok(first + second + third + left + line.1 + dots + head)
}

#[distributed_lock(key = "mutable:<total>")]
async fn mutable(mut total: u8, (mut left, right): (u8, u8), _: u8) -> Outcome<u8> {
    assert_held("mutable:1").await;
    left += right;
    total += left;
    Ok(total)
}

#[distributed_lock(key = "there:<there>")]
async fn conditional(there: u8, #[cfg(any())] gone: u8, #[cfg(unix)] too: u8) -> Outcome<u8> {
    assert_held("there:1").await;
    #[cfg(any())]
    return Ok(gone);
    Ok(there + too)
}

#[distributed_lock(key = "raw:<r#type>:<r#match.id>:<name>")]
async fn raw(r#type: u8, r#match: Order, r#name: u8) -> Outcome<u64> {
    assert_held("raw:1:7:2").await;
    Ok(u64::from(r#type) + r#match.id + u64::from(name))
}

#[distributed_lock(key = "slice:<first>")]
async fn slice([first, rest @ ..]: [u8; 3]) -> Outcome<usize> {
    assert_held("slice:1").await;
    Ok(usize::from(first) + rest.len())
}

/// The names that the expansion gives to its own variables.
#[distributed_lock(key = "own:<plan>:<body>:<edge>", or_else = |_| 0)]
async fn names_of_the_expansion(plan: u8, body: u8, edge: u8) -> u8 {
    assert_held("own:1:2:3").await;
    plan + body + edge
}

#[tokio::test]
async fn parameters_of_every_kind_reach_the_key_and_the_body() {
    let order = Order {
        id: 7,
        lines: (1, 2),
    };
    let sum = run(patterns((1, 2), [3, 4], order, &5, &[9, 0, 0])).await;
    assert_eq!(sum.expect("free"), 1 + 3 + 4 + 1 + 2 + 5 + 9);
    assert_eq!(run(mutable(1, (2, 3), 4)).await.expect("free"), 6);
    assert_eq!(run(conditional(1, 2)).await.expect("free"), 3);
    assert_eq!(run(raw(1, order, 2)).await.expect("free"), 10);
    assert_eq!(run(slice([1, 2, 3])).await.expect("free"), 3);
    assert_eq!(run(names_of_the_expansion(1, 2, 3)).await, 6);
}

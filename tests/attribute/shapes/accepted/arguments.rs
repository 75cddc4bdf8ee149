//! Arguments: patterns, sizes, attributes.

use crate::support::{pause, Error, Noisy, Runs};

pub struct Order {
    id: u64,
    lines: (u64, [u64; 2]),
    noisy: Noisy,
}

impl Order {
    fn new() -> Self {
        Self {
            id: 7,
            lines: (1, [2, 3]),
            noisy: Noisy("part"),
        }
    }
}

pub enum Only {
    One(u64, Noisy),
}

//@ key = "k"
pub fn large_here(table: [u8; 4096]) -> Result<u64, Error> {
    Ok(table.iter().copied().map(u64::from).sum())
}

//@ key = "k"
pub async fn deep(Order { id, lines: (one, [two, ..]), noisy }: Order) -> Result<u64, Error> {
    pause().await;
    drop(noisy);
    Ok(id + one + two)
}

//@ key = "<id>:<one>"
pub async fn in_the_key(Order { id, lines: (one, _), .. }: Order) -> Result<u64, Error> {
    pause().await;
    Ok(1)
}

//@ key = "k"
pub async fn only(Only::One(id, _noisy): Only) -> Result<u64, Error> {
    pause().await;
    Ok(id)
}

//@ key = "k"
pub fn bound_whole_here(mut pair @ (one, _): (u64, u64)) -> Result<u64, Error> {
    pair.1 += one;
    Ok(pair.1)
}

//@ key = "k"
pub async fn references(&(one, ref two): &(u64, String), [first, rest @ ..]: &[u64; 3]) -> Result<u64, Error> {
    pause().await;
    Ok(one + two.len() as u64 + first + rest.len() as u64)
}

//@ key = "k"
pub async fn with_cfg(#[cfg(all())] id: u64, #[cfg(any())] id: String) -> Result<u64, Error> {
    Ok(id)
}

//@ key = "k"
pub fn with_cfg_here(#[cfg_attr(all(), allow(unused_mut))] mut id: u64, #[cfg(any())] more: u64) -> Result<u64, Error> {
    Ok(id)
}

//@ key = "k"
pub async fn all_nameless(_: u64, _: Noisy, _: &str) -> Result<u64, Error> {
    pause().await;
    Ok(1)
}

//@ key = "k"
pub async fn moved_in_part(order: Order) -> Result<u64, Error> {
    drop(order.noisy);
    pause().await;
    Ok(order.id)
}

//@ key = "k"
pub async fn part_is_enough(order: Order) -> Result<u64, Error> {
    let id = order.id;
    pause().await;
    crate::support::say("body");
    Ok(id)
}

pub fn runs(runs: &mut Runs) {
    runs.value("large_here", large_here([1; 4096]));
    run!(runs, "deep", deep(Order::new()));
    run!(runs, "in_the_key", in_the_key(Order::new()));
    run!(runs, "only", only(Only::One(7, Noisy("argument"))));
    runs.value("bound_whole_here", bound_whole_here((1, 2)));
    run!(runs, "references", references(&(1, "one".to_owned()), &[1, 2, 3]));
    run!(runs, "with_cfg", with_cfg(7));
    runs.value("with_cfg_here", with_cfg_here(7));
    run!(runs, "all_nameless", all_nameless(7, Noisy("argument"), "seven"));
    run!(runs, "moved_in_part", moved_in_part(Order::new()));
    run!(runs, "part_is_enough", part_is_enough(Order::new()));
}

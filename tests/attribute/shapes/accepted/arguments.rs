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
pub async fn large(table: [u8; 4096]) -> Result<u64, Error> {
    pause().await;
    Ok(table.iter().copied().map(u64::from).sum())
}

//@ key = "k"
pub fn large_here(table: [u8; 4096]) -> Result<u64, Error> {
    Ok(table.iter().copied().map(u64::from).sum())
}

//@ key = "k", or_else = |_| [0; 4096]
pub fn large_there_and_back(table: [u8; 4096]) -> [u8; 4096] {
    table
}

//@ key = "k"
pub async fn deep(Order { id, lines: (one, [two, ..]), noisy }: Order) -> Result<u64, Error> {
    pause().await;
    drop(noisy);
    Ok(id + one + two)
}

//@ key = "k"
pub fn deep_here(Order { id, lines: (one, [two, ..]), noisy: _ }: Order) -> Result<u64, Error> {
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
pub async fn bound_whole(pair @ (one, _): (u64, u64)) -> Result<u64, Error> {
    Ok(pair.1 + one)
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
    say_later().await;
    Ok(1)
}

async fn say_later() {
    crate::support::say("body");
}

//@ key = "k"
pub fn all_nameless_here(_: u64, _: Noisy, _: &str) -> Result<u64, Error> {
    crate::support::say("body");
    Ok(1)
}

//@ key = "k"
pub async fn moved_in_part(order: Order) -> Result<u64, Error> {
    drop(order.noisy);
    pause().await;
    Ok(order.id)
}

//@ key = "k"
pub fn moved_in_part_here(order: Order) -> Result<u64, Error> {
    drop(order.noisy);
    crate::support::say("body");
    Ok(order.id)
}

//@ key = "k"
pub async fn part_is_enough(order: Order) -> Result<u64, Error> {
    let id = order.id;
    pause().await;
    crate::support::say("body");
    Ok(id)
}

//@ key = "k"
pub async fn mutated(list: &mut Vec<u64>, mut id: u64, mut more: Vec<u64>) -> Result<usize, Error> {
    id += 1;
    list.push(id);
    more.append(list);
    Ok(more.len())
}

//@ key = "k"
pub fn callback(mut each: impl FnMut(u64), times: u64) -> Result<(), Error> {
    for id in 0..times {
        each(id);
    }
    Ok(())
}

//@ key = "k"
pub async fn callback_async<F, G>(each: F, times: u64) -> Result<u64, Error>
where
    F: Fn(u64) -> G,
    G: std::future::Future<Output = u64>,
{
    let mut total = 0;
    for id in 0..times {
        total += each(id).await;
    }
    Ok(total)
}

//@ key = "k"
pub fn callback_dyn(each: &mut dyn FnMut(u64), once: Box<dyn FnOnce() -> u64 + '_>) -> Result<u64, Error> {
    each(7);
    Ok(once())
}

//@ key = "k"
pub async fn shadowing(id: u64) -> Result<u64, Error> {
    let id = id + 1;
    let id = { id * 2 };
    Ok(id)
}

//@ key = "k"
pub async fn shadowed_by_a_function(total: u64) -> Result<u64, Error> {
    fn total_of(total: u64) -> u64 {
        total
    }
    Ok(total_of(total))
}

pub fn runs(runs: &mut Runs) {
    run!(runs, "large", large([1; 4096]));
    runs.value("large_here", large_here([1; 4096]));
    runs.value("large_there_and_back", large_there_and_back([1; 4096]).len());
    run!(runs, "deep", deep(Order::new()));
    runs.value("deep_here", deep_here(Order::new()));
    run!(runs, "in_the_key", in_the_key(Order::new()));
    run!(runs, "only", only(Only::One(7, Noisy("argument"))));
    run!(runs, "bound_whole", bound_whole((1, 2)));
    runs.value("bound_whole_here", bound_whole_here((1, 2)));
    run!(runs, "references", references(&(1, "one".to_owned()), &[1, 2, 3]));
    run!(runs, "with_cfg", with_cfg(7));
    runs.value("with_cfg_here", with_cfg_here(7));
    run!(runs, "all_nameless", all_nameless(7, Noisy("argument"), "seven"));
    runs.value("all_nameless_here", all_nameless_here(7, Noisy("argument"), "seven"));
    run!(runs, "moved_in_part", moved_in_part(Order::new()));
    runs.value("moved_in_part_here", moved_in_part_here(Order::new()));
    run!(runs, "part_is_enough", part_is_enough(Order::new()));
    run!(runs, "mutated", mutated(&mut vec![1], 2, vec![3]));
    let mut sum = 0;
    runs.value("callback", callback(|id| sum += id, 4));
    run!(runs, "callback_async", callback_async(|id| async move { id + 1 }, 4));
    runs.value("callback_dyn", callback_dyn(&mut |id| sum += id, Box::new(|| 7)));
    run!(runs, "shadowing", shadowing(7));
    run!(runs, "shadowed_by_a_function", shadowed_by_a_function(7));
}

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rlock_core::{LockError, distributed_lock};

type Tags = HashSet<String>;

struct Order {
    lines: Vec<HashMap<u64, u8>>,
}

#[distributed_lock(key = "order:<ids:?>")]
async fn set(ids: HashSet<u64>) -> Result<usize, LockError> {
    Ok(ids.len())
}

#[distributed_lock(key = "order:<tags:?>")]
fn alias(tags: &Tags) -> Result<usize, LockError> {
    Ok(tags.len())
}

#[distributed_lock(key = "<name>:<order.lines:#?>")]
async fn field(name: &str, order: &Order) -> Result<usize, LockError> {
    Ok(name.len() + order.lines.len())
}

#[distributed_lock(key = "order:<names.keys():?>")]
async fn keys(names: &HashMap<u64, String>) -> Result<usize, LockError> {
    Ok(names.len())
}

#[distributed_lock(key = [
    "set:<set:?>", "map:<map:?>", "one:<other[]>", "len:<other.len():?>", "pair:<pair:?>", "any:<any:?>"
])]
async fn on_purpose<T: std::fmt::Debug + Send + Sync>(
    set: &BTreeSet<u64>,
    map: &BTreeMap<u64, u64>,
    other: &HashSet<u64>,
    pair: (u64, Option<&str>),
    any: T,
) -> Result<usize, LockError> {
    Ok(set.len() + map.len() + other.len())
}

fn main() {}

use rlock_core::distributed_lock;

struct Receipt;

type Answer = Receipt;

#[distributed_lock(key = "night")]
async fn number() -> u32 {
    42
}

#[distributed_lock(key = "night")]
async fn value() -> self::Receipt {
    Receipt
}

#[distributed_lock(key = "night")]
async fn alias() -> Answer {
    Receipt
}

#[distributed_lock(key = "night")]
fn synchronous() -> Receipt {
    Receipt
}

fn main() {}

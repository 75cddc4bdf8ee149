use rlock_core::distributed_lock;

#[distributed_lock(key = "night")]
async fn nothing() {}

#[distributed_lock(key = "night")]
async fn unit() -> () {}

#[distributed_lock(key = "night", or_else = |_| ())]
async fn never() -> ! {
    loop {}
}

fn main() {}

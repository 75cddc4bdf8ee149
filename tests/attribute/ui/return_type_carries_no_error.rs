use rlock_core::distributed_lock;

#[distributed_lock(key = "night")]
async fn nothing() {}

#[distributed_lock(key = "night")]
async fn unit() -> () {}

#[distributed_lock(key = "night", on_error = |_| ())]
async fn never() -> ! {
    loop {}
}

#[distributed_lock(key = "night")]
fn synchronous() {}

struct Night;

#[async_trait::async_trait]
trait Job {
    async fn run(&self);
}

#[async_trait::async_trait]
impl Job for Night {
    #[distributed_lock(key = "night")]
    async fn run(&self) {}
}

fn main() {}

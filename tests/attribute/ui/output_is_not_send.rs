use rlock_core::distributed_lock;

#[distributed_lock(key = "night")]
async fn nightly() -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

#[distributed_lock(key = "night")]
async fn nightly_of_a_task() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    Ok(())
}

fn spawn<F: Future<Output: Send> + Send + 'static>(_: F) {}

fn main() {
    spawn(async { drop(nightly_of_a_task().await) });
    spawn(async { drop(nightly().await) });
}

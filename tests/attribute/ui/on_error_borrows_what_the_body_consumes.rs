use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order", on_error = |error| format!("{name}: {error}"))]
async fn consumed(name: String) -> String {
    name
}

#[distributed_lock(key = "order", on_error = |error| format!("{name}: {error}"))]
fn consumed_here(name: String) -> String {
    name
}

// The way out.
#[distributed_lock(key = "order", on_error = {
    let name = name.clone();
    move |error: LockError| format!("{name}: {error}")
})]
async fn cloned(name: String) -> String {
    name
}

fn main() {}

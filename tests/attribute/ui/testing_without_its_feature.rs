use rlock_core::{LockClient, testing};

fn main() {
    let _ = testing::use_tokio_clock(LockClient::builder());
    let _ = rlock_core::testing::simulate_outage(&LockClient::in_memory());
}

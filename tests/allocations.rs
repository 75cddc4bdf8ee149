//! Checks which calls do not allocate. The allocator of this file counts.

use rlock_core::{LockClient, Reentry};

#[test]
fn entering_once_more_and_leaving_allocates_nothing_if_entries_are_counted_locally() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let client = LockClient::builder()
        .reentry(Reentry::Local)
        .in_memory()
        .expect("a client");
    let lock = client.lock("{acme}:order:42");
    let counted = runtime.block_on(async {
        let outer = lock.acquire().await.expect("free");
        let nested = async {
            // The counter covers this thread, and everything that runs in it without waiting.
            let mut counted = Vec::new();
            for _ in 0..3 {
                let mut enter = Box::pin(async {
                    let inner = lock.acquire().await.expect("enters");
                    assert_eq!(inner.count(), 2);
                    inner.release().await.expect("held");
                    let inner = lock.try_acquire().await.expect("asked").expect("enters");
                    drop(inner);
                });
                let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                counted.push(allocation_counter::measure(|| {
                    assert!(enter.as_mut().poll(&mut cx).is_ready());
                }));
            }
            counted
        };
        let counted = outer.scope(nested).await;
        assert_eq!(outer.count(), 1);
        outer.release().await.expect("held");
        counted
    });
    for counts in counted {
        assert_eq!(counts.count_total, 0, "{counts:?}");
    }
}

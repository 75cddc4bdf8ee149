//! Receivers of all kinds.

use std::{pin::Pin, sync::Arc};

use rlock_core::distributed_lock;

use super::held::{Outcome, assert_free, assert_held, run};

struct Service {
    tenant: String,
    calls: u32,
}

impl Service {
    #[distributed_lock(key = "new:<tenant>")]
    async fn new(tenant: &str) -> Outcome<Self> {
        assert_held("new:acme").await;
        Ok(Self {
            tenant: tenant.to_owned(),
            calls: 0,
        })
    }

    #[distributed_lock(key = "shared:<self.tenant>")]
    async fn shared(&self) -> Outcome<&str> {
        assert_held("shared:acme").await;
        Ok(&self.tenant)
    }

    #[distributed_lock(key = "exclusive:<self.tenant>")]
    async fn exclusive(&mut self) -> Outcome<&mut u32> {
        assert_held("exclusive:acme").await;
        self.calls += 1;
        Ok(&mut self.calls)
    }

    #[distributed_lock(key = "owned:<self.tenant>")]
    async fn owned(self) -> Outcome<Self> {
        assert_held("owned:acme").await;
        Ok(self)
    }

    #[distributed_lock(key = "mutable:<self.tenant>")]
    async fn owned_mutable(mut self) -> Outcome<Self> {
        assert_held("mutable:acme").await;
        self.calls += 1;
        Ok(self)
    }

    #[distributed_lock(key = "counted:<self.tenant>")]
    async fn counted(self: Arc<Self>) -> Outcome<u32> {
        assert_held("counted:acme").await;
        Ok(self.calls)
    }

    #[distributed_lock(key = "counted-ref:<self.tenant>")]
    async fn counted_by_reference(self: &Arc<Self>) -> Outcome<Arc<Self>> {
        assert_held("counted-ref:acme").await;
        Ok(Arc::clone(self))
    }

    #[distributed_lock(key = "pinned:<self.tenant>")]
    async fn pinned(mut self: Pin<&mut Self>) -> Outcome<u32> {
        assert_held("pinned:acme").await;
        self.calls += 1;
        Ok(self.calls)
    }

    #[distributed_lock(key = "boxed:<self.tenant>")]
    async fn boxed(self: Box<Self>) -> Outcome<Box<Self>> {
        assert_held("boxed:acme").await;
        Ok(self)
    }

    #[distributed_lock(key = "part:<self.tenant>")]
    async fn moves_a_part(self) -> Outcome<String> {
        assert_held("part:acme").await;
        Ok(self.tenant)
    }
}

#[tokio::test]
async fn a_method_is_locked_by_whatever_receiver_it_is_called() {
    let mut service = run(Service::new("acme")).await.expect("free");
    assert_eq!(run(service.shared()).await.expect("free"), "acme");
    *run(service.exclusive()).await.expect("free") += 1;
    assert_eq!(run(Pin::new(&mut service).pinned()).await.expect("free"), 3);
    let service = run(service.owned()).await.expect("free");
    let service = run(service.owned_mutable()).await.expect("free");
    let service = run(Box::new(service).boxed()).await.expect("free");
    let service = Arc::new(*service);
    assert_eq!(run(Arc::clone(&service).counted()).await.expect("free"), 4);
    let same = run(service.counted_by_reference()).await.expect("free");
    assert!(Arc::ptr_eq(&same, &service));
    drop(same);
    let service = Arc::into_inner(service).expect("the only one");
    assert_eq!(run(service.moves_a_part()).await.expect("free"), "acme");
    for method in ["new", "shared", "exclusive", "pinned", "owned", "boxed"] {
        assert_free(&format!("{method}:acme")).await;
    }
}

use async_trait::async_trait;
use rlock_core::{LockError, distributed_lock};
use tracing::instrument;

#[derive(Debug)]
struct Transfer {
    from: u64,
    to: u64,
}

#[async_trait]
trait Ledger {
    async fn transfer(&self, transfer: Transfer) -> Result<u64, LockError>;
    async fn back(&self, transfer: Transfer) -> Result<u64, LockError>;
}

struct Books;

#[async_trait]
impl Ledger for Books {
    #[instrument(skip_all)]
    #[distributed_lock(key = ["account:<from>", "account:<to>"])]
    async fn transfer(&self, Transfer { from, to }: Transfer) -> Result<u64, LockError> {
        Ok(from + to)
    }

    // The way out.
    #[distributed_lock(key = ["account:<from>", "account:<to>"])]
    #[instrument(skip_all)]
    async fn back(&self, Transfer { from, to }: Transfer) -> Result<u64, LockError> {
        Ok(from + to)
    }
}

fn main() {}

//! An order service whose methods are locked by an attribute: what the examples share.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rlock_core::{LockError, current, distributed_lock};

/// Why an order could not be worked on.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// Another call was working on the same order.
    #[error("busy: {0}")]
    Busy(#[from] LockError),
    /// The order was paid before.
    #[error("order {0} is paid already")]
    AlreadyPaid(u64),
}

/// The proof of a payment.
#[derive(Debug)]
pub struct Receipt {
    /// What was paid.
    pub cents: u64,
    /// The fencing token that the payment was made under.
    pub token: u64,
}

/// Orders and what was paid for them.
#[derive(Debug, Default)]
pub struct Orders {
    paid: Mutex<HashMap<u64, u64>>,
}

impl Orders {
    /// Pays an order once, however many callers try at the same time: much time passes between the look and the
    /// write, but no other call gets in between.
    ///
    /// # Errors
    ///
    /// If the order was paid before, or the lock was not to be had.
    #[distributed_lock(key = "order:<id>", lease = "30s", wait = "5s")]
    pub async fn pay(&self, id: u64, cents: u64) -> Result<Receipt, OrderError> {
        if self.paid(id).is_some() {
            return Err(OrderError::AlreadyPaid(id));
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // the bank takes its time
        self.lock().insert(id, cents);
        let token = current().map_or(0, |hold| hold.token().as_u64());
        Ok(Receipt { cents, token })
    }

    /// Pays an order and its shipping: the inner call locks the same order, and enters.
    ///
    /// # Errors
    ///
    /// As [`Orders::pay`].
    #[distributed_lock(key = "order:<id>", lease = "30s", wait = "5s")]
    pub async fn check_out(&self, id: u64, cents: u64) -> Result<Receipt, OrderError> {
        const SHIPPING: u64 = 490;
        println!("   check_out holds order:{id} {} time(s)", depth());
        let receipt = self.pay_inside(id, cents + SHIPPING).await?;
        println!("   back in check_out it is held {} time(s)", depth());
        Ok(receipt)
    }

    #[distributed_lock(key = "order:<id>")]
    async fn pay_inside(&self, id: u64, cents: u64) -> Result<Receipt, OrderError> {
        println!("   the nested call holds it {} time(s)", depth());
        self.pay(id, cents).await
    }

    /// Takes longer than its lease, which the watchdog renews until the work is done.
    ///
    /// # Errors
    ///
    /// If the lock was not to be had, or was lost.
    #[distributed_lock(key = "order:<id>", lease = "300ms")]
    pub async fn archive(&self, id: u64) -> Result<u64, OrderError> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(self.paid(id).unwrap_or(0))
    }

    /// Gives up soon if another call is working on the order.
    ///
    /// # Errors
    ///
    /// If the lock was not to be had.
    #[distributed_lock(key = "order:<id>", wait = "100ms")]
    pub async fn peek(&self, id: u64) -> Result<Option<u64>, OrderError> {
        Ok(self.paid(id))
    }

    fn paid(&self, id: u64) -> Option<u64> {
        self.lock().get(&id).copied()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, u64>> {
        self.paid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn depth() -> u32 {
    current().map_or(0, |hold| hold.depth())
}

//! Payments under a lock, and the signal that stops a service: what the examples of this package share.

use std::{io, time::Duration};

use rlock_core::{ErrorKind, LockError, current, distributed_lock};
use tokio::sync::{mpsc, oneshot};

/// The error of a payment.
#[derive(Debug, thiserror::Error)]
pub enum PaymentError {
    /// The order was not locked, or its lock was lost.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The bank has closed.
    #[error("the bank has closed")]
    Closed,
}

impl PaymentError {
    /// Returns what the error means for the caller.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Lock(error) => error.kind(),
            Self::Closed => ErrorKind::Outage,
        }
    }
}

/// An order that the bank is to pay.
#[derive(Debug)]
pub struct Payment {
    /// The number of the order.
    pub order: u64,
    /// Where the bank confirms the payment.
    pub confirm: oneshot::Sender<()>,
}

/// The way to the bank.
#[derive(Clone, Debug)]
pub struct Bank(mpsc::Sender<Payment>);

impl Bank {
    /// Returns the way to a bank, and the payments that it receives.
    #[must_use]
    pub fn open() -> (Self, mpsc::Receiver<Payment>) {
        let (sender, payments) = mpsc::channel(16);
        (Self(sender), payments)
    }

    /// Pays an order, one call at a time, with the client of the current scope. Returns the fencing token of the payment.
    ///
    /// # Errors
    ///
    /// [`PaymentError`].
    #[distributed_lock(key = "order:<order>", wait = "2s")]
    pub async fn pay(&self, order: u64) -> Result<u64, PaymentError> {
        let (confirm, confirmed) = oneshot::channel();
        let sent = self.0.send(Payment { order, confirm }).await;
        sent.map_err(|_| PaymentError::Closed)?;
        confirmed.await.map_err(|_| PaymentError::Closed)?;
        Ok(current().map_or(0, |hold| hold.token().as_u64()))
    }
}

/// Confirms all payments, each after 20 milliseconds.
pub async fn confirm(mut payments: mpsc::Receiver<Payment>) {
    while let Some(payment) = payments.recv().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
        // The caller may have gone.
        let _ = payment.confirm.send(());
    }
}

/// Returns a future that resolves when the process is to stop: at Ctrl-C, or at the TERM of systemd, Docker and Kubernetes.
/// Counts signals from this call on.
///
/// # Errors
///
/// Returns the error of a system that does not report signals.
#[cfg(unix)]
pub fn stop() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Returns a future that resolves at Ctrl-C.
///
/// # Errors
///
/// Returns the error of a system that does not report it.
#[cfg(windows)]
pub fn stop() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut ctrl_c = tokio::signal::windows::ctrl_c()?;
    Ok(async move { drop(ctrl_c.recv().await) })
}

//! A service with a payment that gets stuck: the incident in `docs/operations.md`, "A stuck lock".
//!
//! `billing 42` pays order 42. `billing 42 --stuck` does so through a bank that does not reply. Runs on the server of
//! `REDIS_URL`, so that the command `rlock` finds its locks.

use std::{env, error::Error, future::pending, process::ExitCode};

use rlock_core::{LockClient, LockError, distributed_lock};

/// Pays an order. One process of the fleet at a time pays the same order.
#[distributed_lock(key = "order:<id>", lease = "30s", wait = "2s")]
async fn pay(id: u64, bank: &Bank) -> Result<(), LockError> {
    bank.transfer(id).await;
    Ok(())
}

/// The bank of the service, which replies or does not.
struct Bank {
    replies: bool,
}

impl Bank {
    async fn transfer(&self, id: u64) {
        println!("order {id}: waiting for the bank");
        if !self.replies {
            // There is no time-out: that is the fault.
            pending::<()>().await;
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .init();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let id = arguments.first().ok_or("name an order")?.parse()?;
    let bank = Bank {
        replies: !arguments.iter().any(|argument| argument == "--stuck"),
    };
    let url = env::var("REDIS_URL").map_err(|_| "set REDIS_URL to the URL of a server")?;
    let builder = LockClient::builder().service("billing", env!("CARGO_PKG_VERSION"));
    let client = builder.connect(url).await?;
    client.install();
    let status = match pay(id, &bank).await {
        Ok(()) => {
            println!("order {id}: paid");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("order {id}: not paid: {error:#}");
            ExitCode::FAILURE
        }
    };
    // A lock that was lost is released in the background.
    client.shutdown().await?;
    Ok(status)
}

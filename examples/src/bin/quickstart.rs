//! The attribute at work, step by step. Needs no server; with `REDIS_URL` it runs on Redis.

use std::{sync::Arc, time::Instant};

use rlock_core::LockClient;
use rlock_examples::{OrderError, Orders};

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    let client = if let Ok(url) = std::env::var("REDIS_URL") {
        println!("Locks live on the Redis server of REDIS_URL.");
        LockClient::connect(url).await?
    } else {
        println!("Locks live in this process; set REDIS_URL to use a Redis server.");
        LockClient::in_memory()
    };
    client.install();
    let orders = Arc::new(Orders::default());
    once_among_many(&orders).await?;
    nested(&orders).await?;
    longer_than_the_lease(&orders).await?;
    timed_out(&orders).await?;
    client.shutdown().await?;
    println!("\nThe client is shut down, and nothing is locked any more.");
    Ok(())
}

async fn once_among_many(orders: &Arc<Orders>) -> Outcome {
    println!("\n1. Fifty callers pay order 1 at the same time.");
    let callers: Vec<_> = (0..50)
        .map(|_| {
            tokio::spawn({
                let orders = Arc::clone(orders);
                async move { orders.pay(1, 1999).await }
            })
        })
        .collect();
    let (mut receipts, mut refused) = (Vec::new(), 0);
    for caller in callers {
        match caller.await? {
            Ok(receipt) => receipts.push(receipt),
            Err(OrderError::AlreadyPaid(_)) => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    println!(
        "   paid {} time(s), {refused} callers were told that it is paid",
        receipts.len()
    );
    println!("   {:?}", receipts[0]);
    assert_eq!(
        (receipts.len(), refused),
        (1, 49),
        "the order was paid more than once"
    );
    Ok(())
}

async fn nested(orders: &Orders) -> Outcome {
    println!("\n2. A locked method calls another that locks the same order: it enters.");
    let receipt = orders.check_out(2, 5000).await?;
    println!("   {receipt:?}");
    Ok(())
}

async fn longer_than_the_lease(orders: &Orders) -> Outcome {
    println!("\n3. A method takes 1 s under a lease of 300 ms: the watchdog renews it.");
    let started = Instant::now();
    let (archived, peeked) = tokio::join!(orders.archive(2), async {
        // Well after the first lease would have ended, the order is still locked.
        tokio::time::sleep(std::time::Duration::from_millis(600)).await;
        orders.peek(2).await
    });
    println!(
        "   archived {} cents after {:.1?}",
        archived?,
        started.elapsed()
    );
    println!(
        "   0.6 s in, another caller was refused: {}",
        peeked.is_err()
    );
    assert!(peeked.is_err(), "the lease was not renewed");
    Ok(())
}

async fn timed_out(orders: &Orders) -> Outcome {
    println!("\n4. A caller who waits 100 ms for an order that is busy for 1 s is told so:");
    let (archived, peeked) = tokio::join!(orders.archive(3), async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        orders.peek(3).await
    });
    archived?;
    match peeked {
        Err(error) => println!("   {error}"),
        Ok(_) => return Err("the order should have been busy".into()),
    }
    Ok(())
}

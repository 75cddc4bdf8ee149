//! Pays few orders many times at once, so that the locks of `service` are contended. Start `service` first.
//!
//! ```sh
//! cargo run --bin contend
//! curl http://127.0.0.1:3000/metrics
//! ```

use std::{collections::BTreeMap, io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, timeout_at},
};

const SERVICE: &str = "127.0.0.1:3000";
const CALLERS: u64 = 64;
const ORDERS: u64 = 4;
const TIME: Duration = Duration::from_secs(10);

/// Pays an order, and returns the status of the response, such as `200 OK`.
async fn pay(order: u64) -> io::Result<String> {
    let mut stream = TcpStream::connect(SERVICE).await?;
    let request = format!(
        "POST /orders/{order}/payment HTTP/1.1\r\nHost: {SERVICE}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let status = response
        .lines()
        .next()
        .and_then(|line| line.split_once(' '));
    Ok(status.map_or_else(String::new, |(_, status)| status.to_owned()))
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let end = Instant::now() + TIME;
    println!("{CALLERS} callers pay {ORDERS} orders for {TIME:?}");
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        callers.spawn(async move {
            let mut statuses = BTreeMap::<String, u32>::new();
            while let Ok(status) = timeout_at(end, pay(caller % ORDERS)).await {
                *statuses.entry(status?).or_default() += 1;
            }
            io::Result::Ok(statuses)
        });
    }
    let mut all = BTreeMap::<String, u32>::new();
    while let Some(caller) = callers.join_next().await {
        for (status, count) in caller?? {
            *all.entry(status).or_default() += count;
        }
    }
    for (status, count) in all {
        println!("{count:>6} × {status}");
    }
    Ok(())
}

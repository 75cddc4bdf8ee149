//! Measures the cost of the guard: the same transaction with it and without it, in turns, from one client.
//!
//! Prints a table. The databases do not wait for the disk, so the ratios are those of the statements.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use rlock_core::fencing::Fence;
use rlock_sql::{
    Server,
    session::{Database, Failure, Session, Value},
};

const TRANSACTIONS: u64 = 2_000;
const WARM_UP: u64 = 200;
const DELAY: Duration = Duration::from_micros(500);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load average before: {load}");
    println!("| database | round trip | without, µs | with, µs | ratio |");
    println!("| --- | --- | --- | --- | --- |");
    for database in Database::ALL {
        let server = Server::start(database);
        row(database, &server.url, "loopback").await;
        if database != Database::Sqlite {
            row(database, &delayed(&server.url), "loopback + 0.5 ms").await;
        }
    }
}

async fn row(database: Database, url: &str, network: &str) {
    let mut session = Session::open(database, url).await;
    session.create_tables().await;
    let name = format!("order:{network}");
    session.open_account(&name).await;
    let [mut without, mut with] = [Vec::new(), Vec::new()];
    for token in 1..=WARM_UP + TRANSACTIONS {
        // All transactions of a hold have the same token, and a hold has several.
        let fence =
            Fence::new(&name, (1 + token / 10).try_into().expect("a token")).expect("valid");
        for (guard, times) in [(None, &mut without), (Some(&fence), &mut with)] {
            let started = Instant::now();
            let done = transaction(&mut session, database, &name, guard).await;
            let elapsed = started.elapsed();
            done.unwrap_or_else(|failure| panic!("{database:?}: {failure}"));
            if token > WARM_UP {
                times.push(elapsed);
            }
        }
    }
    let (amount, _) = session.read(&name).await.expect("an account");
    assert_eq!(
        amount.cast_unsigned(),
        2 * (WARM_UP + TRANSACTIONS),
        "each transaction counts"
    );
    let [without, with] = [without, with].map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    });
    let ratio = with / without;
    println!("| {database:?} | {network} | {without:.0} | {with:.0} | {ratio:.2} |");
}

async fn transaction(
    session: &mut Session,
    database: Database,
    name: &str,
    guard: Option<&Fence>,
) -> Result<(), Failure> {
    let begin = match database {
        Database::Sqlite => "BEGIN IMMEDIATE",
        _ => "BEGIN",
    };
    session.query(begin, &[]).await?;
    if let Some(fence) = guard {
        session.guard_by_hand(fence).await?;
    }
    let update = "UPDATE account SET amount = amount + ? WHERE name = ?";
    let values = [Value::Int(1), Value::Text(name)];
    session.query(update, &values).await?;
    session.query("COMMIT", &[]).await.map(drop)
}

/// Returns the URL of a relay that delays each request of one connection.
fn delayed(url: &str) -> String {
    let (rest, database) = url.rsplit_once('/').expect("a path");
    let (scheme, port) = rest.rsplit_once(':').expect("a port");
    let port: u16 = port.parse().expect("a number");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let own = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        let (client, _) = listener.accept().expect("a client");
        let server = TcpStream::connect(("127.0.0.1", port)).expect("the server is up");
        let replies = (
            server.try_clone().expect("a socket"),
            client.try_clone().expect("a socket"),
        );
        thread::spawn(move || relay(replies.0, replies.1, Duration::ZERO));
        relay(client, server, DELAY);
    });
    format!("{scheme}:{own}/{database}")
}

fn relay(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let _ = to.set_nodelay(true);
    let mut buffer = [0; 16 * 1_024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        thread::sleep(delay);
        if to.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

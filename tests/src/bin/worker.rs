//! A process that acquires locks, for the tests in `tests/`. The first argument selects its task.

use std::{
    env,
    io::{BufRead as _, stdin},
    panic::{AssertUnwindSafe, resume_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use futures_util::FutureExt as _;
use redis::{AsyncConnectionConfig, Script, aio::MultiplexedConnection};
use rlock_core::{CurrentHold, LockClient, LockError, current, election::Term};
use rlock_tests::histories::clock;
use tokio::sync::{Mutex, mpsc};

/// The limit for requests that must not fail on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["hold", url, key, lease] => hold(url, key, milliseconds(lease)).await,
        ["leave", how, url, key, lease] => leave(how, url, key, milliseconds(lease)).await,
        ["elect", url, witness, name, lease] => {
            elect(url, witness, name, milliseconds(lease)).await;
        }
        ["shards", url, elections, lease] => {
            shards(
                url,
                elections.parse().expect("a number"),
                milliseconds(lease),
            )
            .await;
        }
        _ => panic!("unknown task {words:?}"),
    }
}

fn milliseconds(word: &str) -> Duration {
    Duration::from_millis(word.parse().expect("a number"))
}

async fn connect(url: &str) -> LockClient {
    let builder = LockClient::builder().connect_timeout(PATIENCE);
    builder.connect(url).await.expect("the server is up")
}

async fn connect_to_witness(url: &str) -> MultiplexedConnection {
    // The default time-outs strike on a busy machine.
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    redis::Client::open(url)
        .expect("a valid address")
        .get_multiplexed_async_connection_with_config(&limits)
        .await
        .expect("the witness's server is up")
}

/// Leads its share of these elections. Prints each term when it begins and when it ends.
async fn shards(url: &str, elections: u32, lease: Duration) {
    let client = connect(url).await;
    let shards = client.elections("shards", (0..elections).map(|n| format!("shard-{n}")));
    let run = shards.lease(lease).run(async |term| {
        println!("leads {} {}", term.key(), clock::now());
        term.release_requested().await;
        println!("ends {} {}", term.key(), clock::now());
    });
    println!("fails {:?}", run.await);
}

/// Holds a lock, and executes commands from its input. It replies to `valid?` and `token?` at once.
/// The body handles `step`.
async fn hold(url: &str, key: &str, lease: Duration) {
    let client = connect(url).await;
    let (told, hold) = std::sync::mpsc::channel::<CurrentHold>();
    let (sender, mut steps) = mpsc::unbounded_channel();
    // A thread continues while the body waits, and after the body.
    let reader = std::thread::spawn(move || {
        let Ok(hold) = hold.recv() else { return };
        for line in stdin().lock().lines().map_while(Result::ok) {
            match line.as_str() {
                "valid?" => println!("valid {}", hold.is_valid()),
                "token?" => println!("token {}", hold.token()),
                // The body has ended if nothing receives.
                _ => drop(sender.send(())),
            }
        }
    });
    let body = async {
        let hold = current().expect("inside the lock");
        told.send(hold).expect("the reader waits");
        println!("holding");
        while steps.recv().await.is_some() {
            // A process that is stopped between two awaits continues with the second.
            tokio::task::yield_now().await;
            println!("step");
        }
    };
    let lock = client.lock(key).lease(lease).wait(PATIENCE);
    match lock.run(body).await {
        Ok(()) => println!("released"),
        Err(LockError::Lost { cause, .. }) => println!("lost {cause:?}"),
        Err(error) => println!("{error:#}"),
    }
    drop(told);
    reader.join().expect("no panic");
}

/// Drops a guard and ends, with or without waiting for its release.
async fn leave(how: &str, url: &str, key: &str, lease: Duration) {
    let client = connect(url).await;
    let guard = client.lock(key).lease(lease).acquire().await.expect("free");
    match how {
        "at-once" => drop(guard),
        "by-exit" => std::process::exit(0),
        _ => panic!("unknown kind of exit {how:?}"),
    }
}

/// Notes until when a leader relies on its term. Refuses that after the write of a later term, or of another process in the
/// same term.
const WRITE: &str = "
    local term, process = tonumber(ARGV[1]), ARGV[2]
    if redis.call('HSETNX', KEYS[2], ARGV[1], process) == 0 and redis.call('HGET', KEYS[2], ARGV[1]) ~= process
      or term < tonumber(redis.call('GET', KEYS[1]) or '0') then
      redis.call('INCR', KEYS[4])
      return 0
    end
    redis.call('SET', KEYS[1], ARGV[1])
    redis.call('HSET', KEYS[3], ARGV[1], ARGV[3])
    return 1";

/// Prints when its term ends, and how.
struct Led(u64, &'static str);

impl Drop for Led {
    fn drop(&mut self) {
        let how = if thread::panicking() {
            "panics"
        } else {
            self.1
        };
        println!("ends {} {} {how}", self.0, clock::now());
    }
}

/// Campaigns again and again. Prints each term that it leads or observes, and ends a term if its input orders that.
async fn elect(url: &str, witness: &str, name: &str, lease: Duration) {
    let (client, witness) = (connect(url).await, connect_to_witness(witness).await);
    let election = client.election(name).lease(lease);
    let mut changes = election.changes().expect("a valid name");
    tokio::spawn(async move {
        let mut last = None;
        while let Some(change) = changes.next().await {
            let term = change.leader().and_then(|leader| leader.term);
            if let Some(term) = term.filter(|term| Some(*term) > last) {
                last = Some(term);
                println!("sees {term} {}", clock::now());
            }
        }
    });
    let (sender, orders) = mpsc::unbounded_channel::<String>();
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            drop(sender.send(line));
        }
    });
    let orders = Arc::new(Mutex::new(orders));
    println!("ready");
    loop {
        let (orders, witness) = (Arc::clone(&orders), witness.clone());
        let run = election.run(move |term| lead(term, Arc::clone(&orders), witness.clone()));
        match AssertUnwindSafe(run).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return println!("fails {error:#}"),
            Err(panic) => assert_eq!(panic.downcast_ref(), Some(&"by order")),
        }
    }
}

async fn lead(
    term: Term,
    orders: Arc<Mutex<mpsc::UnboundedReceiver<String>>>,
    mut witness: MultiplexedConnection,
) {
    const PAUSE: Duration = Duration::from_millis(5);
    let token = term.token().as_u64();
    println!("leads {token} {}", clock::now());
    let process = std::process::id().to_string();
    term.announce(process.as_str()).expect("it leads");
    let mut led = Led(token, "lost");
    let mut orders = orders.lock().await;
    let (hold, write) = (current().expect("inside the lock"), Script::new(WRITE));
    let (returns, panics) = (format!("return {token}"), format!("panic {token}"));
    loop {
        // The time is read first, so that a pause in between makes the end too early, never too late.
        let until = clock::now() + clock::nanos(hold.valid_for());
        let mut write = write.key(&["term", "leaders", "relied", "refused"][..]);
        let write = write.arg(token).arg(&process).arg(until);
        let is_accepted: bool = write
            .invoke_async(&mut witness)
            .await
            .expect("the witness replies");
        // A term that is valid now was valid when the write was refused.
        if !is_accepted && term.is_valid() {
            println!("violates {token}");
        }
        tokio::select! {
            () = term.release_requested() => {
                led.1 = "asked";
                return;
            }
            Some(order) = orders.recv() => {
                if order == returns {
                    led.1 = "returns";
                    return;
                } else if order == panics {
                    resume_unwind(Box::new("by order"));
                }
            }
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

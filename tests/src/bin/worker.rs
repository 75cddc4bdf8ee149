//! A process that acquires locks, for the tests in `tests/`. The first argument selects its task.

use std::{
    env,
    io::{BufRead as _, stdin},
    time::Duration,
};

use redis::{AsyncCommands as _, AsyncConnectionConfig};
use rlock_core::{CurrentHold, LockClient, LockError, current};
use rlock_testkit::SharedExclusion;
use rlock_tests::histories::clock;
use tokio::sync::mpsc;

/// The limit for requests that must not fail on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["hold", url, key, lease] => hold(url, key, milliseconds(lease)).await,
        ["contend", url, witness, key, tasks, entries] => {
            contend(url, witness, key, number(tasks), number(entries)).await;
        }
        ["die-inside", url, witness, key, lease] => {
            die_inside(url, witness, key, milliseconds(lease)).await;
        }
        ["permits", url, key, permits] => hold_permits(url, key, number(permits)).await,
        ["leave", how, url, key, lease] => leave(how, url, key, milliseconds(lease)).await,
        _ => panic!("unknown task {words:?}"),
    }
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

fn milliseconds(word: &str) -> Duration {
    Duration::from_millis(number(word))
}

async fn connect(url: &str) -> LockClient {
    LockClient::connect(url).await.expect("the server is up")
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
                "token?" => println!("token {}", hold.fencing_token()),
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

/// Enters many times from many tasks, and records each entry and its token.
async fn contend(url: &str, witness: &str, key: &str, tasks: u64, entries: u64) {
    let client = connect(url).await;
    let exclusion = SharedExclusion::connect(witness, key).await;
    // The default time-outs strike on a busy machine.
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let tokens = redis::Client::open(witness)
        .expect("a valid address")
        .get_multiplexed_async_connection_with_config(&limits)
        .await
        .expect("the witness's server is up");
    println!("ready");
    let mut start = String::new();
    stdin()
        .read_line(&mut start)
        .expect("the test sends a signal");

    let mut at_work = Vec::new();
    for task in 0..tasks {
        let lock = client.lock(key).wait(PATIENCE);
        let (exclusion, mut tokens) = (exclusion.clone(), tokens.clone());
        let list = format!("tokens:{key}");
        at_work.push(tokio::spawn(async move {
            for _ in 0..entries {
                let body = async {
                    let inside = exclusion.enter(&format!("task {task}")).await;
                    let token = current().expect("inside the lock").fencing_token();
                    let () = tokens.rpush(&list, token).await.expect("noted");
                    inside.leave().await;
                };
                lock.run(body).await.expect("entered and left");
            }
        }));
    }
    for task in at_work {
        task.await.expect("no panic");
    }
    println!("done");
}

/// Enters and stays inside until the process is killed.
async fn die_inside(url: &str, witness: &str, key: &str, lease: Duration) {
    let client = connect(url).await;
    let exclusion = SharedExclusion::connect(witness, key).await;
    let body = async {
        let _inside = exclusion.enter("the one that is killed").await;
        println!("inside");
        std::future::pending::<()>().await;
    };
    let outcome = client.lock(key).lease(lease).run(body).await;
    println!("{outcome:?}");
}

/// Holds a permit for each line of its input, which is the lease, until the next line or a loss. Prints when it enters, and
/// at the end from when until when it could rely on the permit.
async fn hold_permits(url: &str, key: &str, permits: u64) {
    const LOOK: Duration = Duration::from_millis(5);
    let client = connect(url).await;
    let permits = u32::try_from(permits).expect("a few");
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            drop(sender.send(line));
        }
    });
    println!("ready");
    while let Some(lease) = lines.recv().await {
        let lock = client.lock(key).permits(permits).wait(PATIENCE);
        let (mut from, mut until) = (0, 0);
        let body = async {
            let hold = current().expect("inside the lock");
            from = clock::now();
            println!("inside {from}");
            loop {
                // The time is read first, so that a pause in between makes the end too early, never too late.
                let now = clock::now();
                let left = clock::nanos(hold.valid_for());
                if left > 0 {
                    until = now + left;
                }
                tokio::select! {
                    _ = lines.recv() => break until = until.min(clock::now()),
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
        };
        match lock.lease(milliseconds(&lease)).run(body).await {
            Ok(()) => println!("{from} {until} released"),
            Err(LockError::Lost { .. }) => println!("{from} {until} lost"),
            Err(error) => println!("{error:#}"),
        }
    }
}

/// Drops a guard and ends, with or without waiting for its release.
async fn leave(how: &str, url: &str, key: &str, lease: Duration) {
    let client = connect(url).await;
    let guard = client.lock(key).lease(lease).acquire().await.expect("free");
    match how {
        "at-once" => drop(guard),
        "after-shutdown" => {
            drop(guard);
            client.shutdown().await.expect("everything is released");
        }
        "holding-at-shutdown" => {
            client.shutdown().await.expect("everything is released");
            println!("valid {}", guard.is_valid());
            std::process::exit(0);
        }
        "by-exit" => std::process::exit(0),
        _ => panic!("unknown kind of exit {how:?}"),
    }
}

//! A process that acquires locks, for the tests in `tests/`. The first argument selects its task.

use std::{
    env,
    io::{BufRead as _, stdin},
    time::Duration,
};

use redis::AsyncCommands as _;
use rlock_core::{CurrentHold, LockClient, LockError, current};
use rlock_testkit::SharedExclusion;
use rlock_tests::histories::clock::{nanos, now};
use tokio::sync::mpsc;

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
        ["permits", url, key, most, lease, calls] => {
            let most = u32::try_from(number(most)).expect("a small number");
            take_permits(url, key, most, milliseconds(lease), number(calls)).await;
        }
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
    match client.lock(key).lease(lease).run(body).await {
        Ok(()) => println!("released"),
        Err(LockError::Lost { cause, .. }) => println!("lost {cause:?}"),
        Err(error) => println!("{error}"),
    }
    drop(told);
    reader.join().expect("no panic");
}

/// Enters many times from many tasks, and records each entry and its token.
async fn contend(url: &str, witness: &str, key: &str, tasks: u64, entries: u64) {
    let client = connect(url).await;
    let exclusion = SharedExclusion::connect(witness, key).await;
    let tokens = redis::Client::open(witness)
        .expect("a valid address")
        .get_multiplexed_async_connection()
        .await
        .expect("the witness's server is up");
    println!("ready");
    let mut start = String::new();
    stdin()
        .read_line(&mut start)
        .expect("the test sends a signal");

    let mut at_work = Vec::new();
    for task in 0..tasks {
        let lock = client.lock(key).wait(Duration::from_secs(60));
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

/// Takes one of `most` permits again and again, each for longer than its lease. Writes when it has one, until when that
/// is valid, and when it ends.
async fn take_permits(url: &str, key: &str, most: u32, lease: Duration, calls: u64) {
    let client = connect(url).await;
    let lock = client.lock(key).permits(most).lease(lease);
    let lock = lock.wait(Duration::from_secs(60));
    println!("ready");
    let mut start = String::new();
    stdin()
        .read_line(&mut start)
        .expect("the test sends a signal");
    for _ in 0..calls {
        let guard = match lock.acquire().await {
            Ok(guard) => guard,
            // The connection may be cut.
            Err(LockError::Unavailable { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        let token = guard.fencing_token();
        let (since, mut reported) = (now(), 0);
        println!("in {token} {since}");
        while now() < since + nanos(lease) * 3 / 2 {
            // The time is read first, so that a pause in between makes the end too early.
            let at = now();
            let until = at + nanos(guard.valid_for());
            if until == at {
                break;
            }
            if until > reported + 1_000_000 {
                println!("until {token} {until}");
                reported = until;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        println!("out {token} {}", now());
        // The test expects losses.
        let _ = guard.release().await;
    }
    println!("done");
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
        "by-abort" => std::process::abort(),
        "by-panic" => {
            // The message would look like a failure of the test.
            std::panic::set_hook(Box::new(|_| {}));
            panic!("on purpose, with {} held", guard.key());
        }
        _ => panic!("unknown kind of exit {how:?}"),
    }
}

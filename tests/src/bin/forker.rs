//! A process that forks while it holds a lock, for the tests in `tests/`. The first argument
//! selects the kind of client.

use std::{
    env, process, thread,
    time::{Duration, Instant},
};

use fork::{Fork, fork};
use rlock_core::{Lock, LockClient, LockError, LockGuard, Reentry, current};
use rlock_testkit::block_on;

const LEASE: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_millis(500);
/// The limit for the child process.
const PATIENCE: Duration = Duration::from_secs(8);

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["blocking", url] => block_on(forks(url)),
        ["async", url] => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(forks(url)),
        _ => panic!("unknown task {words:?}"),
    }
}

async fn forks(url: &str) {
    let client = LockClient::connect(url).await.expect("the server is up");
    let guard = client.lock("k").lease(LEASE).acquire().await.expect("free");
    let kept = client.lock("kept").retain(LEASE * 10);
    kept.run(async {}).await.expect("free");
    let uncounted = LockClient::builder().reentry(Reentry::Local);
    let uncounted = uncounted.connect(url).await.expect("the server is up");
    let uncounted = uncounted.lock("uncounted");
    let outer = uncounted.acquire().await.expect("free");
    match fork().expect("processes can be made") {
        Fork::Child => child(&client, guard, (&uncounted, &outer)).await,
        Fork::Parent(child) => parent(&client, guard, child).await,
    }
}

async fn child(client: &LockClient, guard: LockGuard, (uncounted, outer): (&Lock, &LockGuard)) {
    thread::spawn(|| {
        thread::sleep(PATIENCE);
        println!("child hangs");
        process::exit(1);
    });
    println!("child valid {}", guard.is_valid());
    let started = Instant::now();
    report(
        "child nested",
        guard.scope(client.lock("k").wait(WAIT).acquire()).await,
    );
    report(
        "child acquires",
        client.lock("other").wait(WAIT).acquire().await,
    );
    report(
        "child resumes",
        client.lock("kept").wait(WAIT).acquire().await,
    );
    // The parent's hold has the turn, also in the child.
    report("child waits", client.lock("k").wait(WAIT).acquire().await);
    report(
        "child tries",
        client.lock("k").wait(Duration::ZERO).acquire().await,
    );
    report("child enters", outer.scope(uncounted.acquire()).await);
    let hold = outer.scope(async { current().expect("inside") }).await;
    report("child keeps", hold.guard());
    println!("child took {}", started.elapsed().as_millis());
    thread::sleep(LEASE.saturating_sub(started.elapsed()) + Duration::from_millis(500));
    println!("child valid later {}", guard.is_valid());
    match guard.release().await {
        Ok(()) => println!("child releases"),
        Err(error) => println!("child releases: {error:?}"),
    }
    for outcome in [client.drain(WAIT).await.map(drop), client.shutdown().await] {
        println!("child closes: {outcome:?}");
    }
    println!("child done");
    process::exit(0);
}

async fn parent(client: &LockClient, guard: LockGuard, child: i32) {
    let started = Instant::now();
    while started.elapsed() < LEASE * 2 {
        report(
            "parent acquires",
            client.lock("other").wait(WAIT).acquire().await,
        );
        thread::sleep(Duration::from_millis(100));
    }
    let _ = fork::waitpid(child);
    println!("parent valid {}", guard.is_valid());
    match guard.release().await {
        Ok(()) => {
            println!("parent releases");
            client.shutdown().await.expect("released");
        }
        Err(error) => println!("parent releases: {error:?}"),
    }
}

fn report(who: &str, outcome: Result<LockGuard, LockError>) {
    match outcome {
        Ok(guard) => println!("{who}: {}", guard.owner()),
        Err(error) => println!("{who}: {error:?}"),
    }
}

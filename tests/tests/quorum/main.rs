//! Locks on a quorum of servers.
use rlock_core::LockClient;
use rlock_tests::RedisServer;
use std::time::{Duration, Instant};

#[tokio::test]
async fn latency() {
    let five: Vec<_> = (0..5).map(|_| RedisServer::start()).collect();
    let client = LockClient::quorum(five.iter().map(RedisServer::url))
        .await
        .unwrap();
    let one = LockClient::connect(&five[0].url()).await.unwrap();
    for (name, client) in [("one", &one), ("five", &client)] {
        for fresh in [false, true] {
            let mut a = vec![];
            let mut r = vec![];
            for n in 0..500 {
                let lock = client.lock(if fresh {
                    format!("{name}{n}")
                } else {
                    name.to_string()
                });
                let t = Instant::now();
                let g = lock.acquire().await.unwrap();
                a.push(t.elapsed());
                let t = Instant::now();
                g.release().await.unwrap();
                r.push(t.elapsed());
            }
            a.sort();
            r.sort();
            println!(
                "{name} fresh={fresh} acquire p50 {:?} p99 {:?} max {:?}; release {:?} {:?} {:?}",
                a[250], a[495], a[499], r[250], r[495], r[499]
            );
        }
    }
    five[0].pause();
    five[3].pause();
    let (mut a, mut r) = (vec![], vec![]);
    for n in 0..500 {
        let t = Instant::now();
        let g = client.lock("x").acquire().await.unwrap();
        a.push(t.elapsed());
        let t = Instant::now();
        g.release().await.unwrap();
        r.push(t.elapsed());
        if n % 50 == 0 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    a.sort();
    r.sort();
    println!(
        "stopped acquire p50 {:?} p99 {:?} max {:?}; release {:?} {:?} {:?}",
        a[250], a[495], a[499], r[250], r[495], r[499]
    );
}

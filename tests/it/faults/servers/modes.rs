//! Shared locks and permits: servers that refuse a part of a script's writes, and locks with many waiters.

use futures_util::StreamExt;
use redis::{
    AsyncConnectionConfig, FromRedisValue, RedisResult, Value, aio::MultiplexedConnection,
};
use rlock_testkit::{RedisServer, Scripts, eventually, within};
use tokio::time::sleep;

use crate::common::{LONG, client, ms, name};

/// An owner of a client that is not connected.
const GONE: &str = "00000000-0000-4000-8000-000000000001:1";

/// The arguments for waiters: the prefix of their channels, and which of them a release notifies.
const WAITERS: [&str; 2] = ["lock:client:", "first"];
const DAY: &str = "86400000";
/// Longer than a test takes on a busy machine.
const LEASE: &str = "600000";

/// Runs a script for `k`.
async fn run<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    script: &redis::Script,
    arguments: &[&str],
) -> RedisResult<T> {
    let mut call = script.prepare_invoke();
    call.key(name("k")).arg(arguments);
    within(LONG, "the script ends", call.invoke_async(connection)).await
}

async fn acquire(connection: &mut MultiplexedConnection, owner: &str) -> RedisResult<Vec<Value>> {
    let [channels, first] = WAITERS;
    let arguments = [LEASE, DAY, "1", channels, first, "0", owner];
    run(connection, &Scripts::new().acquire, &arguments).await
}

async fn release(
    connection: &mut MultiplexedConnection,
    owner: &str,
    min_hold: u32,
) -> RedisResult<i64> {
    let [channels, first] = WAITERS;
    let min_hold = min_hold.to_string();
    let arguments = [owner, &min_hold, "0", DAY, channels, first, "0"];
    run(connection, &Scripts::new().release, &arguments).await
}

async fn downgrade(connection: &mut MultiplexedConnection, owner: &str) -> RedisResult<i64> {
    let [channels, first] = WAITERS;
    let arguments = [owner, "0", DAY, channels, first, "0"];
    run(connection, &Scripts::new().downgrade, &arguments).await
}

async fn renew(
    connection: &mut MultiplexedConnection,
    owner: &str,
    lease: u32,
) -> RedisResult<Value> {
    let arguments = [&lease.to_string(), DAY, owner, "0"];
    run(connection, &Scripts::new().renew, &arguments).await
}

#[tokio::test]
async fn a_waiter_whose_client_is_gone_does_not_keep_readers_out() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = one.lock("k").shared().acquire().await.expect("free");
    let mut gone = server.connection().await;
    acquire(&mut gone, GONE).await.expect("a reply");
    let also = other.lock("k").shared().try_acquire().await;
    let also = also.expect("a reply").expect("no live client waits");
    also.release().await.expect("held");
    assert!(held.is_valid());
}

#[tokio::test]
async fn a_replica_does_not_remove_expired_holders_forever() {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    replica.follow(&master).await;
    let fill = "for n = 1, 2500 do redis.call('ZADD', KEYS[1] .. ':shared', n, n) end \
                redis.call('ZADD', KEYS[1] .. ':shared', '9e15', 'live') \
                redis.call('HSET', KEYS[1], 'shared', 1) return 1";
    let _: i64 = master.command(&["EVAL", fill, "1", &name("k")]).await;
    eventually(LONG, "the replica has it", async || {
        replica.exists(&name("k")).await
    })
    .await;
    let mut connection = replica.connection().await;
    for owner in [GONE.to_owned(), format!("{GONE}s"), format!("{GONE}.3p")] {
        // Refused, or taken by the holder that is alive.
        let _ = acquire(&mut connection, &owner).await;
        assert!(replica.answers(), "{owner}");
    }
}

#[tokio::test]
async fn a_demoted_master_reports_no_loss_after_a_downgrade() {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    replica.follow(&master).await;
    let mut at_master = master.connection().await;
    acquire(&mut at_master, GONE).await.expect("free");
    eventually(LONG, "the replica has it", async || {
        replica.exists(&name("k")).await
    })
    .await;
    let mut connection = replica.connection().await;
    let shared = format!("{GONE}s");
    let replies = [
        downgrade(&mut connection, &shared).await.map(drop),
        release(&mut connection, &shared, 0).await.map(drop),
        renew(&mut connection, &shared, 30_000).await.map(drop),
        acquire(&mut connection, &shared).await.map(drop),
    ];
    for reply in replies {
        let error = reply.expect_err("a replica is read-only");
        assert!(format!("{error:#}").contains("read only"), "{error:#}");
    }
}

#[tokio::test]
async fn a_user_who_may_not_remove_waiters_ends_its_scripts() {
    let rules = "on >secret ~* &* +@all -zrem";
    let server = RedisServer::builder().acl_user("limited", rules).start();
    let mut holder = server.connection().await;
    acquire(&mut holder, GONE).await.expect("free");
    renew(&mut holder, GONE, 300).await.expect("held");
    let waiter = GONE.replace("01:", "02:") + "s";
    acquire(&mut holder, &waiter).await.expect("a reply");
    sleep(ms(400)).await;
    let limited = redis::Client::open(server.url_as("limited", "secret")).expect("a URL");
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(LONG));
    let limited = limited.get_multiplexed_async_connection_with_config(&patient);
    let mut limited = limited.await.expect("it runs");
    let reader = GONE.replace("01:", "03:") + "s";
    acquire(&mut limited, &reader).await.expect("a reply");
    assert!(server.answers());
}

/// A renewal without a lease shows whether the lock still exists.
#[tokio::test]
async fn a_reader_is_checked_by_a_full_server_and_not_by_a_demoted_master() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let mut connection = servers[0].connection().await;
    let reader = format!("{GONE}s");
    acquire(&mut connection, &reader).await.expect("free");
    let set = async |option: &str, value: &str| {
        let () = servers[0].command(&["CONFIG", "SET", option, value]).await;
    };
    set("maxmemory", "1").await;
    let checked = renew(&mut connection, &reader, 0).await.expect("no memory");
    assert_eq!(checked, Value::Int(1));
    set("maxmemory", "0").await;
    let port = servers[1].port().to_string();
    let () = servers[0].command(&["REPLICAOF", "127.0.0.1", &port]).await;
    let refused = renew(&mut connection, &reader, 0).await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test]
async fn a_full_server_keeps_a_released_lock_for_its_min_hold() {
    let server = RedisServer::start();
    let mut connection = server.connection().await;
    let other = GONE.replace("01:", "02:");
    for owner in [GONE.to_owned(), format!("{GONE}s"), format!("{GONE}.3p")] {
        let () = server.command(&["FLUSHALL"]).await;
        acquire(&mut connection, &owner).await.expect("free");
        server.config_set("maxmemory", "1").await;
        let released = release(&mut connection, &owner, 30_000).await;
        assert_eq!(released.expect("no memory"), 1, "{owner}");
        server.config_set("maxmemory", "0").await;
        let refused = acquire(&mut connection, &other).await;
        assert_eq!(refused.expect("a reply")[0], Value::Int(0), "{owner}");
    }
}

#[tokio::test]
async fn a_release_lets_in_64_readers_and_the_next_one_lets_in_the_others() {
    let server = RedisServer::start();
    let mut connection = server.connection().await;
    acquire(&mut connection, GONE).await.expect("free");
    let listener = redis::Client::open(server.url()).expect("a URL");
    let mut listener = listener.get_async_pubsub().await.expect("it runs");
    let reader = |n: usize| format!("{n:036}:1s");
    for n in 0..102 {
        // The clients of two readers are gone: one among those that are let in first, and one right behind them.
        if ![7, 65].contains(&n) {
            let channel = format!("lock:client:{n:036}");
            listener.subscribe(channel).await.expect("allowed");
        }
        let reply = acquire(&mut connection, &reader(n)).await;
        reply.expect("a reply");
    }
    let released = release(&mut connection, GONE, 0).await;
    assert_eq!(released.expect("held"), 1);
    let shared = name("k") + ":shared";
    let holders = async || server.command::<usize>(&["ZCARD", &shared]).await;
    assert_eq!(holders().await, 64);
    let next = reader(66);
    let asks_at_once = format!("{next}  0 {}", name("k"));
    let mut messages = listener.on_message();
    let told = async {
        while let Some(message) = messages.next().await {
            if message.get_payload::<String>().expect("text") == asks_at_once {
                break;
            }
        }
    };
    within(LONG, "the next reader is told", told).await;
    let reply = acquire(&mut connection, &next).await;
    assert_eq!(reply.expect("a reply")[0], Value::Int(1));
    assert_eq!(holders().await, 100);
}

//! Credentials from a provider, which change while clients hold and await locks.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use futures_util::future::join_all;
use rlock_core::{Credentials, LockClient, LockClientBuilder, LockError, StoreUrl};
use rlock_testkit::{MASTERS, RedisCluster, RedisServer, RedisServerBuilder, SERVICE, eventually};

use crate::common::{LASTING, LONG, acl, acquiring, assert_invalid, builder, its_turn, ms, timed};

/// The password that the provider returns, and how often it was asked.
#[derive(Clone, Default)]
struct Vault(Arc<(Mutex<String>, AtomicU32)>);

impl Vault {
    fn put(&self, password: &str) {
        password.clone_into(&mut self.0.0.lock().expect("no panic"));
    }

    fn asked(&self) -> u32 {
        self.0.1.load(Ordering::SeqCst)
    }

    fn builder(&self) -> LockClientBuilder {
        let vault = self.clone();
        builder().credentials(move || {
            let (password, asked) = &*vault.0;
            asked.fetch_add(1, Ordering::SeqCst);
            let password = password.lock().expect("no panic").clone();
            async move { Ok::<_, io::Error>(Credentials::new("locker", password)) }
        })
    }
}

/// A server's options with a user that has this password.
fn options() -> RedisServerBuilder {
    let rules = acl::only(&[&acl::of_a_server(), &acl::beyond("Redis Cluster")]);
    RedisServer::builder().acl_user("locker", &rules)
}

async fn kill_connections(servers: &[&RedisServer]) {
    for server in servers {
        let _: u64 = server.command(&["CLIENT", "KILL", "USER", "locker"]).await;
    }
}

/// Rotates the password as `docs/security.md` describes it, while tasks use locks and one is held.
async fn assert_rotates(servers: &[&RedisServer], vault: Vault, client: LockClient) {
    let held = client.lock("held").lease(LASTING).acquire().await;
    let held = held.expect("free");
    let is_over = AtomicBool::new(false);
    let work = join_all((0..4).map(async |n| {
        let lock = client.lock(format!("work:{}", n % 2));
        let lock = lock.lease(LASTING).wait(LONG);
        while !is_over.load(Ordering::SeqCst) {
            lock.run(tokio::time::sleep(ms(3))).await.expect("its turn");
        }
    }));
    let rotate = async {
        let mut former = "secret".to_owned();
        for n in 0..3 {
            let next = format!("secret-{n}");
            for server in servers {
                server.set_user("locker", &format!(">{next}")).await;
            }
            vault.put(&next);
            let asked = vault.asked();
            kill_connections(servers).await;
            eventually(LONG, "the provider is asked", async || {
                vault.asked() > asked
            })
            .await;
            for server in servers {
                server.set_user("locker", &format!("<{former}")).await;
            }
            former = next;
        }
        is_over.store(true, Ordering::SeqCst);
    };
    tokio::join!(work, rotate);
    assert!(held.is_valid(), "renewed");
    held.release().await.expect("held");
    // The new password reaches the servers before the provider.
    for server in servers {
        server.set_user("locker", "resetpass >latest").await;
    }
    kill_connections(servers).await;
    let waiting = acquiring(client.lock("late").lease(LASTING).wait(LONG));
    let asked = vault.asked();
    eventually(LONG, "the provider is asked again and again", async || {
        vault.asked() > asked + 2
    })
    .await;
    assert!(!waiting.is_finished(), "it waits for the provider");
    vault.put("latest");
    its_turn(waiting).await.release().await.expect("held");
}

fn vault() -> Vault {
    let vault = Vault::default();
    vault.put("secret");
    vault
}

#[tokio::test]
async fn a_password_is_rotated_at_one_server_and_behind_sentinels_without_a_lost_call() {
    let server = options().start();
    let sentinel = RedisServer::builder()
        .sentinel(SERVICE, &server, 1, ms(10_000))
        .start();
    for url in [
        format!("redis://{}/", server.address()),
        format!("redis://{}/?protocol=resp2", server.address()),
        format!("redis-sentinel://{}/{SERVICE}", sentinel.address()),
    ] {
        let vault = vault();
        server.set_user("locker", "resetpass >secret").await;
        let client = vault.builder().connect(&url).await.expect("it is up");
        assert_rotates(&[&server], vault, client).await;
    }
}

#[tokio::test]
async fn a_password_is_rotated_in_a_cluster_without_a_lost_call() {
    let (cluster, vault) = (RedisCluster::of(&options()).await, vault());
    let client = vault.builder().connect(&cluster.url()).await;
    let nodes: Vec<_> = (0..2 * MASTERS).map(|n| cluster.node(n)).collect();
    assert_rotates(&nodes, vault, client.expect("it is up")).await;
}

#[tokio::test]
async fn a_refused_login_is_retried_within_the_wait_and_its_error_shows_no_password() {
    let (server, vault) = (options().start(), vault());
    vault.put("wr0ng");
    let url = format!("redis://{}/", server.address());
    let error = vault.builder().connect(&url).await.expect_err("refused");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let impatient = vault.builder().response_timeout(ms(2000));
    let client = impatient.connect_lazy(&url).expect("valid");
    let (outcome, took) = timed(client.lock("k").wait(ms(3000)).acquire()).await;
    let late = outcome.expect_err("refused");
    assert!(matches!(late, LockError::Unavailable { .. }), "{late:?}");
    // No request is sent in the last 10 ms.
    assert!(took >= ms(2990), "{took:?}");
    for error in [error, late] {
        assert!(!format!("{error:?}").contains("wr0ng"), "{error:?}");
        let said = format!("{error:#}");
        assert!(said.contains("WRONGPASS"), "{said}");
        assert!(
            said.contains("the provider of `credentials` is asked at each attempt"),
            "{said}"
        );
        assert!(!said.contains("wr0ng"), "{said}");
    }
    let shown = format!("{:?}", Credentials::new("locker", "wr0ng"));
    assert_eq!(shown, "Credentials { user: Some(\"locker\"), .. }");
    // A provider that fails, or panics, is asked again.
    let fails = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&fails);
    let client = builder().credentials(move || {
        let n = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match n {
                0 => Err("no token yet"),
                1 => panic!("a bug"),
                _ => Ok(Credentials::new("locker", "secret")),
            }
        }
    });
    let error = client.clone().connect(&url).await.expect_err("no token");
    assert!(format!("{error:#}").contains("no token yet"), "{error:#}");
    fails.store(0, Ordering::SeqCst);
    let client = client.connect_lazy(&url).expect("valid");
    let guard = client.lock("k").wait(LONG).acquire().await;
    guard.expect("asked again").release().await.expect("held");
}

#[tokio::test]
async fn a_provider_and_a_login_in_the_url_contradict_each_other() {
    for url in [
        "redis://:secret@h/",
        "redis://user@h/",
        "redis-sentinel://u:secret@h/orders",
        "redis-cluster://u:secret@h",
        "memory:",
    ] {
        let outcome = vault().builder().connect_lazy(url);
        assert!(!format!("{outcome:?}").contains("secret"), "{outcome:?}");
        let said = assert_invalid(outcome, url);
        assert!(said.contains("`credentials`"), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
    let urls = ["redis://a/", "redis://:secret@b/"];
    vault()
        .builder()
        .connect_lazy(StoreUrl::quorum(urls))
        .expect_err("one has a password");
    // The Sentinels have a login of their own.
    let url = "redis-sentinel://h/orders?sentinel_password=secret";
    vault().builder().connect_lazy(url).expect("valid");
}

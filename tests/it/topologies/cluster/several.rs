//! Several keys, whose locks lie at different masters.

use rlock_core::{LockClient, LockError, current, distributed_lock};
use rlock_testkit::{Exclusion, RedisCluster, within};

use super::{assert_soon_free, assert_soon_only_fences, assert_soon_queued, client, keys, shared};
use crate::common::{LASTING, LONG, cause_of, hold, its_turn, ms, name};

#[distributed_lock(key = ["<a>", "<b>", "<c>"], wait = "60s", client = client)]
async fn all_three(
    client: &LockClient,
    a: &str,
    b: &str,
    c: &str,
    witnesses: &[Exclusion],
) -> Result<u64, LockError> {
    let _inside: Vec<_> = witnesses.iter().map(|each| each.enter("all")).collect();
    tokio::time::sleep(ms(1)).await;
    Ok(current().expect("inside").fencing_token())
}

#[distributed_lock(key = ["<a>", "<b>", "<c>"], wait = "0s", client = client)]
async fn all_three_now(client: &LockClient, a: &str, b: &str, c: &str) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

async fn is_taken(cluster: &RedisCluster, key: &str) -> bool {
    let lock = name(key);
    cluster.command(&lock, &["EXISTS", &lock]).await
}

#[tokio::test]
async fn locks_of_different_slots_are_taken_together_or_not_at_all() {
    let cluster = shared().await;
    let (one, other) = (client(cluster).await, client(cluster).await);
    let keys = keys(cluster, "together").await;
    let [a, b, c] = keys.as_slice() else {
        panic!("three masters")
    };
    all_three(&one, a, b, c, &[]).await.expect("free");
    for taken in &keys {
        let held = hold(&other, taken).await;
        let refused = all_three_now(&one, a, b, c).await;
        assert!(
            matches!(refused, Err(LockError::Timeout { .. })),
            "{refused:?}"
        );
        for key in keys.iter().filter(|key| *key != taken) {
            assert!(!is_taken(cluster, key).await, "{key} was released");
        }
        held.release().await.expect("held");
    }
    all_three(&one, a, b, c, &[]).await.expect("free");
    for key in &keys {
        assert_soon_only_fences(cluster, key).await;
    }
}

#[tokio::test]
async fn a_call_that_waits_for_one_of_several_keys_keeps_no_other() {
    let cluster = shared().await;
    let (one, other) = (client(cluster).await, client(cluster).await);
    let keys = keys(cluster, "waits").await;
    for taken in &keys {
        let held = hold(&other, taken).await;
        let waiting = tokio::spawn({
            let (one, keys) = (one.clone(), keys.clone());
            async move { all_three(&one, &keys[0], &keys[1], &keys[2], &[]).await }
        });
        assert_soon_queued(cluster, taken, 1).await;
        for key in keys.iter().filter(|key| *key != taken) {
            let lock = other.lock(key).lease(LASTING).wait(LONG);
            let free = within(LONG, "it is free", lock.acquire()).await;
            free.expect("free").release().await.expect("held");
        }
        held.release().await.expect("held");
        its_turn(waiting).await;
        for key in &keys {
            assert_soon_only_fences(cluster, key).await;
        }
    }
}

#[tokio::test]
async fn calls_for_the_same_several_keys_exclude_each_other_and_all_end() {
    const EACH: usize = 15;
    let cluster = shared().await;
    let keys = keys(cluster, "contended").await;
    let witnesses: [Exclusion; 3] = Default::default();
    let mut at_work = Vec::new();
    for n in 0..4 {
        let (all, mut mine, several) = (client(cluster).await, keys.clone(), witnesses.clone());
        mine.rotate_left(n % 3);
        at_work.push(tokio::spawn(async move {
            for _ in 0..EACH {
                let done = all_three(&all, &mine[0], &mine[1], &mine[2], &several).await;
                done.expect("its turn");
            }
        }));
        let (single, key, witness) = (
            client(cluster).await,
            keys[n % 3].clone(),
            witnesses[n % 3].clone(),
        );
        at_work.push(tokio::spawn(async move {
            for _ in 0..EACH {
                let guard = single.lock(&key).wait(LONG * 3).acquire().await;
                let guard = guard.expect("its turn");
                let inside = witness.enter("one");
                tokio::task::yield_now().await;
                drop(inside);
                guard.release().await.expect("held");
            }
        }));
    }
    for task in at_work {
        within(LONG * 4, "all end", task).await.expect("no panic");
    }
    witnesses.iter().for_each(Exclusion::assert_held);
    for key in &keys {
        assert_soon_free(cluster, key).await;
        assert_soon_only_fences(cluster, key).await;
    }
}

#[tokio::test]
async fn keys_that_share_a_hash_tag_are_taken_by_one_request() {
    #[distributed_lock(key = ["{tag}:a", "{tag}:b"], wait = "20s", client = client)]
    async fn both(client: &LockClient) -> Result<(), LockError> {
        tokio::task::yield_now().await;
        Ok(())
    }
    let cluster = shared().await;
    let client = client(cluster).await;
    both(&client).await.expect("free");
    let owner = cluster.owner_of("{tag}").await;
    let mut watch = owner.watch_commands().await;
    both(&client).await.expect("free");
    // One script acquires both, and two scripts release them.
    let scripts = watch.seen().await.iter().filter(|command| {
        let is_meant = |word: &String| word.contains("{tag}");
        command.is("EVALSHA") && command.words.iter().any(is_meant)
    });
    assert_eq!(scripts.count(), 3);
    assert_eq!(cause_of(both(&client).await), None);
}

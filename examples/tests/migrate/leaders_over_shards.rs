//! 64 elections in three replicas, as a service with client-go or Curator has a `LeaderElector` or a latch for each shard: the
//! replicas lead equal shares, and a replica that joins or ends changes the others' shares by little.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use rlock_core::{LockClient, LockError, election::Term};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::LONG;

const SHARDS: usize = 64;

/// Which replica works on each shard.
type Board = Arc<Mutex<BTreeMap<String, usize>>>;

/// Works on one shard until another replica is to lead it.
async fn work(term: Term, replica: usize, board: Board) {
    let key = term.key().to_owned();
    let former = board.lock().expect("no panic").insert(key.clone(), replica);
    assert_eq!(former, None, "two replicas lead {key}");
    term.release_requested().await; // the work
    board.lock().expect("no panic").remove(&key);
}

/// Starts a replica.
async fn start(replica: usize, board: &Board) -> (LockClient, JoinHandle<Result<(), LockError>>) {
    let client = LockClient::connect("memory:shards").await;
    let client = client.expect("a client");
    let shards = client.elections("shards", (0..SHARDS).map(|n| format!("shard-{n}")));
    let board = Arc::clone(board);
    let leads = tokio::spawn(shards.run(move |term| work(term, replica, Arc::clone(&board))));
    (client, leads)
}

/// Waits until all shards are led, and the shares of these replicas differ by one at most.
async fn until_even(board: &Board, replicas: &[usize]) {
    let is_even = || {
        let board = board.lock().expect("no panic");
        let share = |replica| board.values().filter(|led| *led == replica).count();
        let shares: Vec<_> = replicas.iter().map(share).collect();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        board.len() == SHARDS
            && most
                .zip(least)
                .is_some_and(|(most, least)| most - least <= 1)
    };
    let even = async {
        while !is_even() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, even).await.expect("equal shares");
}

#[tokio::test]
async fn replicas_lead_equal_shares_of_the_shards() -> Result<(), LockError> {
    let board = Board::default();
    let (first, first_leads) = start(1, &board).await;
    until_even(&board, &[1]).await;
    let (second, second_leads) = start(2, &board).await;
    until_even(&board, &[1, 2]).await;
    let (third, third_leads) = start(3, &board).await;
    until_even(&board, &[1, 2, 3]).await;

    first.drain(LONG).await?;
    first_leads.await.expect("no panic")?;
    until_even(&board, &[2, 3]).await;
    for (client, leads) in [(second, second_leads), (third, third_leads)] {
        client.drain(LONG).await?;
        leads.await.expect("no panic")?;
    }
    assert!(board.lock().expect("no panic").is_empty());
    Ok(())
}

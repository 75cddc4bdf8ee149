//! A process that writes to a database under a lock, for the rounds.
//!
//! Arguments: the URL of Redis, the database, its URL, the lease in milliseconds, and statements for each new connection.

use std::{
    env,
    io::{Lines, StdinLock, stdin},
    time::Duration,
};

use rlock_core::{LockClient, fencing::Fence};
use rlock_sql::{
    rounds::{Command, Point},
    session::{Failure, Session},
};

#[tokio::main]
async fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let [redis, database, url, lease, setup] = words.try_into().expect("five arguments");
    let lease = Duration::from_millis(lease.parse().expect("a number"));
    let client = LockClient::connect(&redis).await.expect("the server is up");
    let mut session = Session::open(database.parse().expect("a database"), &url).await;
    if !setup.is_empty() {
        session
            .query(&setup, &[])
            .await
            .expect("the database knows the settings");
    }
    println!("{}", session.identity().await);

    let mut input = stdin().lines();
    while let Some(Ok(line)) = input.next() {
        let mut command: Command = line.parse().expect("a command");
        let lock = client
            .lock(&command.key)
            .lease(lease)
            .wait(Duration::from_mins(1));
        // The guard does not end the transaction when the lock is lost: this process does not notice.
        let guard = lock.acquire().await.expect("the other process is paused");
        println!("holds");
        let fence = guard.fence();
        let mut end = transaction(&mut session, &fence, &mut command, &mut input).await;
        let mut again = "";
        while let Err(Failure::Again(_)) = end {
            again = " again";
            session.roll_back().await;
            end = transaction(&mut session, &fence, &mut command, &mut input).await;
        }
        if end.is_err() {
            session.roll_back().await;
        }
        match end {
            Ok(()) => println!("committed{again}"),
            Err(Failure::Stale(_)) => println!("stale{again}"),
            Err(error) => println!("failed: {error}"),
        }
    }
}

async fn transaction(
    session: &mut Session,
    fence: &Fence,
    command: &mut Command,
    input: &mut Lines<StdinLock<'static>>,
) -> Result<(), Failure> {
    let mut reach = |point| {
        if command.halt.take_if(|halt| *halt == point).is_some() {
            println!("halts");
            input.next();
        }
    };
    reach(Point::BeforeBegin);
    session.begin(&command.mode).await?;
    reach(Point::BeforeGuard);
    if command.is_guarded {
        session.guard(fence).await?;
    }
    let read = session.read(fence.key()).await?;
    reach(Point::BeforeWrite);
    session.write(fence, read).await?;
    reach(Point::BeforeCommit);
    session.commit().await
}

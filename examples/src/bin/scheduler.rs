//! A scheduler of which one of two instances starts the jobs. The first one leads, announces its address, and resigns when it
//! is asked to, as during a deployment. Then the second one leads. An observer prints the terms.
//!
//! A former leader that was paused can write once more, so each start of a job carries the fence of its term.
//!
//! Needs no server; with `REDIS_URL` the instances meet on Redis.

use std::{
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use rlock_core::{
    LockClient, Token,
    election::LeaderChange,
    fencing::{Fence, Stale},
};
use tokio::{sync::watch, time::sleep};

type Failure = Box<dyn Error + Send + Sync>;

/// Stands for a database, in which the guard of [`rlock_core::fencing`] comes first in each transaction.
#[derive(Default)]
struct Database {
    largest: Mutex<i64>,
    started: watch::Sender<u32>,
}

impl Database {
    /// Starts the next job, unless the database has seen a later term.
    fn start_job(&self, fence: &Fence) -> Result<(), Stale> {
        let mut largest = self.largest.lock().expect("nothing panics under it");
        *largest = fence.token().as_i64().max(*largest);
        fence.check(Some(*largest))?;
        self.started.send_modify(|job| *job += 1);
        println!("   starts a job, with fence {fence}");
        Ok(())
    }
}

/// One instance of the service: a candidate, then the leader until it is asked to resign.
async fn instance(
    client: LockClient,
    address: &'static str,
    database: Arc<Database>,
) -> Result<(), Failure> {
    let lead = client.election("scheduler").run(async |term| {
        term.announce(address)?;
        loop {
            tokio::select! {
                // Between two jobs, so that none is left half done.
                () = term.release_requested() => return Ok::<_, Failure>(()),
                () = sleep(Duration::from_millis(20)) => {}
            }
            database.start_job(&term.fence())?;
        }
    });
    lead.await??;
    Ok(client.shutdown().await?)
}

/// Lets one instance lead after the other. Returns their terms.
async fn deploy(url: &str) -> Result<Vec<Token>, Failure> {
    let database = Arc::<Database>::default();
    let observer = LockClient::connect(url).await?;
    let election = observer.election("scheduler");
    let mut changes = election.changes()?;
    let mut terms = Vec::new();
    let mut instances = Vec::new();
    for address in ["10.0.3.7:8080", "10.0.3.8:8080"] {
        let client = LockClient::connect(url).await?;
        instances.push(tokio::spawn(instance(
            client,
            address,
            Arc::clone(&database),
        )));
        if !terms.is_empty() {
            election.request_release().await?;
        }
        // A term begins before its leader announces an address.
        let term = loop {
            match changes.next().await.ok_or("the client is shut down")? {
                LeaderChange::Leader(leader) if leader.value.as_deref() == Some(address) => {
                    break leader.term.ok_or("an observer knows the term")?;
                }
                LeaderChange::Leader(_) => {}
                LeaderChange::Nobody => println!("no instance leads"),
            }
        };
        println!("term {term}: {address} leads");
        terms.push(term);
        database.started.subscribe().changed().await?;
    }
    election.request_release().await?;
    for instance in instances {
        instance.await??;
    }
    Ok(terms)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory:scheduler".to_owned());
    deploy(&url).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_instance_leads_in_a_later_term_once_the_first_has_resigned() {
        let terms = deploy("memory:scheduler-deploy").await.expect("no outage");
        assert!(terms[0] < terms[1], "{terms:?}");
    }

    #[tokio::test]
    async fn a_former_leader_starts_no_job() {
        let election = LockClient::in_memory().election("scheduler");
        let database = Database::default();
        let first = election.campaign().await.expect("free");
        let fence = first.term().fence();
        assert!(database.start_job(&fence).is_ok());
        first.resign().await.expect("it led");
        let second = election.campaign().await.expect("free");
        assert!(database.start_job(&second.term().fence()).is_ok());
        assert!(database.start_job(&fence).is_err());
    }
}

//! Options that await, and options that lock the mutex that a placeholder locks.

use std::future::Future;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::support::{pause, Error, LockClient, Runs};

async fn late<T>(value: T) -> T {
    pause().await;
    value
}

pub async fn locks() -> LockClient {
    late(LockClient::in_memory()).await
}

//@ key = "late:<id>", client = locks().await
pub async fn client(id: u64) -> Result<u64, Error> {
    pause().await;
    Ok(id)
}

//@ key = ["late:<id:04>", "late:<ids[]>:<id>"], lease = late(Duration::from_secs(9)).await, watchdog = late(true).await
pub async fn options(id: u64, ids: Vec<u64>) -> Result<usize, Error> {
    pause().await;
    Ok(ids.len() + usize::from(id > 1))
}

//@ key = "late:<name>", wait = late(Duration::from_secs(9)).await, on_error = { let id = late(7).await; move |_| id }
pub async fn answers(name: &str) -> usize {
    name.len()
}

//@ key = "late:<id>", lease = late(Duration::from_secs(9)).await
pub fn future(id: u64) -> impl Future<Output = Result<u64, Error>> + Send {
    async move { Ok(late(id).await) }
}

pub struct Shop(Mutex<Vec<u64>>);

impl Shop {
    fn ids(&self) -> MutexGuard<'_, Vec<u64>> {
        self.0.lock().unwrap()
    }

    pub fn time(&self) -> Duration {
        Duration::from_secs(self.ids()[0])
    }

    pub fn most(&self) -> u32 {
        self.ids().len() as u32
    }

    //@ key = "<self.ids().len()>:<self.ids()[]>", lease = self.time(), wait = self.time(), permits = self.most()
    pub async fn close(&self) -> Result<usize, Error> {
        Ok(late(self.ids().len()).await)
    }

    //@ key = "<self.ids().len()>:<self.ids().capacity()>", lease = self.time(), if_taken = Ok(self.ids().len()), on_error = { let all = self.ids().len(); move |_| Ok(all) }
    pub fn close_here(&self) -> Result<usize, Error> {
        Ok(self.ids().len())
    }
}

pub fn runs(runs: &mut Runs) {
    let shop = Shop(Mutex::new(vec![9, 8]));
    run!(runs, "client", client(7));
    run!(runs, "options", options(7, vec![1, 2]));
    run!(runs, "answers", answers("seven"));
    run!(runs, "future", future(7));
    run!(runs, "close", shop.close());
    runs.value("close_here", shop.close_here());
}

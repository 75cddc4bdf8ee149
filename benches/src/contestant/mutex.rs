//! `tokio::sync::Mutex`: the limit within a process. It does not exclude other processes, and needs
//! no server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Result;

use super::{BoxFuture, Contestant, Inside, Seat, inside};

/// A mutex for each key.
#[derive(Default)]
pub(super) struct Mutexes(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Contestant for Mutexes {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seat = MutexSeat(Arc::clone(all.entry(key.to_owned()).or_default()));
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }
}

struct MutexSeat(Arc<tokio::sync::Mutex<()>>);

impl Seat for MutexSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let _held = self.0.lock().await;
            Ok(inside(stay))
        })
    }
}

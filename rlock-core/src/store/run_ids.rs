//! Which servers a quorum is connected to, by their run ids, so that none votes twice.
//!
//! Two addresses may lead to the same server, such as a name and its IP address, or two ports of a proxy. That server
//! votes once, so all members share a [`RunIds`] of the servers that they are connected to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The servers that a quorum is connected to.
#[derive(Debug, Default)]
pub(crate) struct RunIds {
    present: Mutex<Vec<Registered>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Registered {
    address: String,
    run_id: String,
}

/// A connection's entry in [`RunIds`]. Dropping it removes the entry.
#[derive(Debug)]
pub(super) struct Registration {
    run_ids: Arc<RunIds>,
    entry: Registered,
}

/// The error for an address that leads to the same server as another one.
#[derive(Debug, thiserror::Error)]
#[error("{address} leads to the same server as {other}, and a server votes once")]
pub(crate) struct SameServer {
    pub(crate) address: String,
    pub(crate) other: String,
}

impl RunIds {
    /// Records the server that an address leads to now. A connection that is being replaced may have recorded the same.
    /// Returns an error if another address leads to that server.
    pub(super) fn enter(
        self: &Arc<Self>,
        address: String,
        run_id: String,
    ) -> Result<Registration, SameServer> {
        let mut present = self.present();
        let is_same = |entry: &&Registered| entry.run_id == run_id && entry.address != address;
        if let Some(other) = present.iter().find(is_same) {
            let other = other.address.clone();
            return Err(SameServer { address, other });
        }
        let entry = Registered { address, run_id };
        present.push(entry.clone());
        Ok(Registration {
            run_ids: Arc::clone(self),
            entry,
        })
    }

    fn present(&self) -> MutexGuard<'_, Vec<Registered>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut present = self.run_ids.present();
        if let Some(at) = present.iter().position(|entry| *entry == self.entry) {
            present.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_entered_once_at_a_time_by_whichever_address() {
        let run_ids = Arc::<RunIds>::default();
        let enter = |address: &str, run_id: &str| run_ids.enter(address.into(), run_id.into());
        let one = enter("one", "a").expect("the first");
        let other = enter("other", "b").expect("another server");
        let error = enter("third", "a").expect_err("the first again");
        let said = error.to_string();
        assert!(said.contains("third") && said.contains("one"), "{said}");
        // The next connection is recorded before the previous one ends.
        let next = enter("one", "a").expect("its own");
        drop(one);
        enter("third", "a").expect_err("still there");
        // After a failover the address leads to another server.
        let moved = enter("one", "c").expect("a server that was not there");
        drop(next);
        let third = enter("third", "a").expect("free again");
        drop((other, moved, third));
        assert!(run_ids.present().is_empty());
    }
}

//! The servers that a quorum is connected to. Two addresses may lead to one server: a name and its
//! number, two ports of a proxy. That server votes once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by all servers of a quorum.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    present: Mutex<Vec<Entry>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    address: String,
    run_id: String,
}

/// A connection's entry in the roster; ends with it.
#[derive(Debug)]
pub(super) struct Presence {
    roster: Arc<Roster>,
    entry: Entry,
}

/// Another address leads to the same server.
#[derive(Debug, thiserror::Error)]
#[error("{address} leads to the same server as {other}, and a server votes once")]
pub(crate) struct SameServer {
    pub(crate) address: String,
    pub(crate) other: String,
}

impl Roster {
    /// Enters where an address leads now. It may be entered there already, by a connection that is being
    /// replaced; and where it led before another address may lead now.
    pub(super) fn enter(
        self: &Arc<Self>,
        address: String,
        run_id: String,
    ) -> Result<Presence, SameServer> {
        let mut present = self.present();
        let is_same = |entry: &&Entry| entry.run_id == run_id && entry.address != address;
        if let Some(other) = present.iter().find(is_same) {
            let other = other.address.clone();
            return Err(SameServer { address, other });
        }
        let entry = Entry { address, run_id };
        present.push(entry.clone());
        Ok(Presence {
            roster: Arc::clone(self),
            entry,
        })
    }

    fn present(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut present = self.roster.present();
        if let Some(at) = present.iter().position(|entry| *entry == self.entry) {
            present.swap_remove(at);
        }
    }
}

/// Returns whether this identifies a run. Some services blank the name out.
pub(super) fn is_a_name(run_id: &str) -> bool {
    let mut characters = run_id.chars();
    let first = characters.next();
    characters.any(|character| Some(character) != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_entered_once_at_a_time_by_whichever_address() {
        let roster = Arc::<Roster>::default();
        let enter = |address: &str, run_id: &str| roster.enter(address.into(), run_id.into());
        let one = enter("one", "a").expect("the first");
        let other = enter("other", "b").expect("another server");
        let error = enter("third", "a").expect_err("the first again");
        let said = error.to_string();
        assert!(said.contains("third") && said.contains("one"), "{said}");
        // A connection is replaced by the next before it ends.
        let next = enter("one", "a").expect("its own");
        drop(one);
        enter("third", "a").expect_err("still there");
        // It leads elsewhere after a failover.
        let moved = enter("one", "c").expect("a server that was not there");
        drop(next);
        let third = enter("third", "a").expect("nobody's now");
        drop((other, moved, third));
        assert!(roster.present().is_empty());
    }

    #[test]
    fn what_is_blanked_out_is_no_name() {
        assert!(is_a_name("0c53f9e2"));
        for blank in ["", "0", "0000000000"] {
            assert!(!is_a_name(blank), "{blank}");
        }
    }
}

//! Locks that are given back, each by its owner.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Asker, MOST, Sent};
use crate::store::{
    Servers,
    quorum::{QuorumStore, ballot::Ballot, node::Given, release::Debt},
};

/// What became of a lock that was given back together with others.
#[derive(Default)]
pub(in crate::store::quorum) struct GivenBack {
    /// Every server that answered has it back, and those are a majority.
    pub(in crate::store::quorum) is_done: bool,
    /// The servers that have.
    pub(in crate::store::quorum) by: Servers,
    /// Those that have not answered, and may have.
    pub(in crate::store::quorum) in_doubt: Servers,
}

impl QuorumStore {
    /// Gives a lock back together with others. Servers that do not have it back then are to be asked by
    /// themselves.
    pub(in crate::store::quorum) async fn give_back_with_others(
        &self,
        given: &Given,
        until: Instant,
    ) -> GivenBack {
        let is_usual = given.count == 0 && given.keep.is_zero() && given.next.is_none();
        if !is_usual || !self.may_gather(until) {
            return GivenBack::default();
        }
        let releases = self
            .together
            .join(given.clone(), until, |leaving| &mut leaving.releases);
        match releases.await {
            Sent::No => GivenBack::default(),
            Sent::Unanswered => GivenBack {
                in_doubt: Servers::ALL,
                ..GivenBack::default()
            },
            Sent::Answered(given_back) => given_back,
        }
    }

    pub(super) async fn release_for(&self, askers: Vec<Asker<Given, GivenBack>>) {
        let given: Arc<[Given]> = askers.iter().map(|asker| asker.what.clone()).collect();
        let mut ballot = self.ballot();
        for node in &*self.nodes {
            ballot.ask(node.number, node.release_together(Arc::clone(&given)));
        }
        let has_majority = self.heard(&mut ballot, &askers, |_| false).await;
        let unanswered = self.nodes.iter().map(|node| node.number);
        let unanswered = unanswered.filter(|server| !matches!(ballot.vote(*server), Some(Ok(_))));
        let in_doubt = Servers(unanswered.fold(0, |servers, server| servers | 1 << server));
        let mut done = vec![false; given.len()];
        for (n, asker) in askers.into_iter().enumerate() {
            let by = ballot.answers().filter(|(_, released)| released[n] == 1);
            let by = by.fold(0, |by, (server, _)| by | 1 << server);
            // Where one has more to do than that, it is asked again.
            done[n] = has_majority && ballot.answers().all(|(_, released)| released[n] == 1);
            let _ = asker.answer.send(GivenBack {
                is_done: done[n],
                by: Servers(by),
                in_doubt,
            });
        }
        self.follow_releases(given, done, ballot);
    }

    /// Sees to it that locks whose release is done are given back by all servers.
    fn follow_releases(&self, given: Arc<[Given]>, done: Vec<bool>, ballot: Ballot<Vec<u64>>) {
        let nodes = Arc::clone(&self.nodes);
        let owed = move |server: usize, released: Vec<u64>| {
            let mut debts: Vec<Debt> = Vec::new();
            for ((given, done), released) in given.iter().zip(&done).zip(released) {
                if *done && released != 1 {
                    debts.push((Arc::clone(&nodes[server]), given.clone()));
                }
            }
            debts
        };
        let none = vec![0; MOST];
        let failed = self.nodes.iter().map(|node| node.number);
        let failed = failed.filter(|server| matches!(ballot.vote(*server), Some(Err(_))));
        let failed: Vec<Debt> = failed
            .flat_map(|server| owed(server, none.clone()))
            .collect();
        self.follow_debts(failed, ballot.into_rest(), move |server, vote| {
            owed(server, vote.unwrap_or_else(|_| none.clone()))
        });
    }
}

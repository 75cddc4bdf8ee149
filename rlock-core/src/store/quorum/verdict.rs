//! What the replies of some servers decide, by counting.

/// How the servers stand to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) yes: usize,
    pub(super) no: usize,
    /// No answer can be expected of them.
    pub(super) failed: usize,
    pub(super) pending: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A majority agrees.
    Yes,
    /// So many members disagree that there can be no majority.
    No,
    /// A majority replied, but neither agrees nor disagrees.
    Split,
    /// Fewer than a majority replied.
    TooFew,
    /// Replies that are still to come decide.
    Open,
}

/// How many servers are more than half of all.
pub(super) fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

impl Tally {
    pub(super) fn verdict(self) -> Verdict {
        let answered = self.yes + self.no;
        let servers = answered + self.failed + self.pending;
        let majority = majority(servers);
        let spare = servers - majority;
        if self.yes >= majority {
            Verdict::Yes
        } else if self.no > spare {
            Verdict::No
        } else if self.yes + self.pending >= majority
            || self.no + self.pending > spare
            || answered < majority && answered + self.pending >= majority
        {
            Verdict::Open
        } else if answered >= majority {
            Verdict::Split
        } else {
            Verdict::TooFew
        }
    }
}

/// The largest value that a majority of the servers has at least.
pub(super) fn majority_has<T: Ord>(mut values: Vec<T>, servers: usize) -> Option<T> {
    values.sort_unstable_by(|one, other| other.cmp(one));
    values.into_iter().nth(majority(servers) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tally(yes: usize, no: usize, failed: usize, pending: usize) -> Tally {
        Tally {
            yes,
            no,
            failed,
            pending,
        }
    }

    #[test]
    fn five_servers_decide_as_three_of_them_do() {
        for (votes, verdict) in [
            (tally(3, 0, 0, 2), Verdict::Yes),
            (tally(3, 2, 0, 0), Verdict::Yes),
            (tally(2, 2, 0, 1), Verdict::Open),
            (tally(2, 2, 1, 0), Verdict::Split),
            (tally(2, 3, 0, 0), Verdict::No),
            (tally(0, 3, 0, 2), Verdict::No),
            (tally(0, 2, 2, 1), Verdict::Open),
            (tally(0, 2, 3, 0), Verdict::TooFew),
            (tally(2, 0, 3, 0), Verdict::TooFew),
            (tally(0, 0, 0, 5), Verdict::Open),
            (tally(0, 0, 3, 2), Verdict::TooFew),
        ] {
            assert_eq!(votes.verdict(), verdict, "{votes:?}");
        }
    }

    #[test]
    fn one_server_decides_alone_and_two_only_together() {
        assert_eq!(tally(1, 0, 0, 0).verdict(), Verdict::Yes);
        assert_eq!(tally(0, 1, 0, 0).verdict(), Verdict::No);
        assert_eq!(tally(0, 0, 1, 0).verdict(), Verdict::TooFew);
        assert_eq!(tally(1, 0, 0, 1).verdict(), Verdict::Open);
        assert_eq!(tally(1, 1, 0, 0).verdict(), Verdict::No);
        assert_eq!(tally(1, 0, 1, 0).verdict(), Verdict::TooFew);
    }

    #[test]
    fn what_a_majority_has_is_not_moved_by_a_minority() {
        assert_eq!(majority_has(vec![9, 5, 5, 5, 1], 5), Some(5));
        assert_eq!(majority_has(vec![9, 9, 5], 5), Some(5));
        assert_eq!(majority_has(vec![9, 9], 5), None);
    }

    fn votes() -> impl Strategy<Value = Tally> {
        (0usize..8, 0usize..8, 0usize..8, 0usize..8)
            .prop_filter("a server at least", |(a, b, c, d)| a + b + c + d > 0)
            .prop_map(|(yes, no, failed, pending)| tally(yes, no, failed, pending))
    }

    proptest! {
        /// A member that grants the lock to one owner refuses it to another, or does not reply.
        #[test]
        fn two_never_have_a_majority_of_the_same_servers(one in 0usize..20, other in 0usize..20, neither in 0usize..20) {
            let servers = one + other + neither;
            prop_assume!(servers > 0);
            let first = tally(one, servers - one, 0, 0);
            let second = tally(other, servers - other, 0, 0);
            prop_assert!(first.verdict() != Verdict::Yes || second.verdict() != Verdict::Yes);
        }

        #[test]
        fn a_verdict_is_not_changed_by_what_comes_later(votes in votes(), yes in 0usize..8, no in 0usize..8) {
            let verdict = votes.verdict();
            let yes = yes.min(votes.pending);
            let no = no.min(votes.pending - yes);
            let later = Tally {
                yes: votes.yes + yes,
                no: votes.no + no,
                failed: votes.failed + votes.pending - yes - no,
                pending: 0,
            };
            prop_assert!(verdict == Verdict::Open || later.verdict() == verdict);
        }

        #[test]
        fn when_nothing_is_pending_nothing_is_open(votes in votes()) {
            let closed = Tally { failed: votes.failed + votes.pending, pending: 0, ..votes };
            prop_assert_ne!(closed.verdict(), Verdict::Open);
        }

        #[test]
        fn whatever_a_majority_has_any_other_majority_knows_of(
            values in proptest::collection::vec(0u64..100, 1..12),
        ) {
            let servers = values.len();
            let agreed = majority_has(values.clone(), servers).expect("all answered");
            let mut lowest = values;
            lowest.sort_unstable();
            let best_of_worst_majority = lowest[majority(servers) - 1];
            // The majority whose tokens are the lowest still has one that is as high.
            prop_assert!(servers % 2 == 0 || best_of_worst_majority >= agreed);
            prop_assert!(lowest.iter().filter(|value| **value >= agreed).count() >= majority(servers));
        }
    }
}

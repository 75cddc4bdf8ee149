//! Counts votes: how many servers are a majority, and whether the outcome is decided.

/// The most servers of a quorum.
pub const MOST_SERVERS: usize = 32;

/// Returns how many servers are more than half of all.
#[must_use]
pub fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// Returns whether a majority has replied yes. Returns `None` if the servers that have not replied decide it.
pub(super) fn verdict(servers: usize, yes: usize, no: usize) -> Option<bool> {
    let is_possible = no <= servers - majority(servers);
    (yes >= majority(servers) || !is_possible).then_some(is_possible)
}

/// Returns the largest value that a majority of the servers has at least.
#[must_use]
pub fn majority_has<T: Ord>(mut values: Vec<T>, servers: usize) -> Option<T> {
    values.sort_unstable_by(|one, other| other.cmp(one));
    values.into_iter().nth(majority(servers) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn five_servers_decide_as_three_of_them_do() {
        for (yes, no, decided) in [
            (3, 0, Some(true)),
            (3, 2, Some(true)),
            (2, 2, None),
            (2, 3, Some(false)),
            (0, 3, Some(false)),
            (0, 2, None),
            (0, 0, None),
        ] {
            assert_eq!(verdict(5, yes, no), decided, "{yes} yes, {no} no");
        }
    }

    #[test]
    fn one_server_decides_alone_and_two_only_together() {
        assert_eq!(verdict(1, 1, 0), Some(true));
        assert_eq!(verdict(1, 0, 1), Some(false));
        assert_eq!(verdict(2, 1, 0), None);
        assert_eq!(verdict(2, 2, 0), Some(true));
        assert_eq!(verdict(2, 1, 1), Some(false));
    }

    #[test]
    fn a_minority_does_not_change_the_number_that_a_majority_has() {
        assert_eq!(majority_has(vec![9, 5, 5, 5, 1], 5), Some(5));
        assert_eq!(majority_has(vec![9, 9, 5], 5), Some(5));
        assert_eq!(majority_has(vec![9, 9], 5), None);
    }

    proptest! {
        /// A member that grants the lock to one owner refuses it to another, or does not reply.
        #[test]
        fn two_owners_never_both_have_a_majority(one in 0usize..20, other in 0usize..20, neither in 0usize..20) {
            let servers = one + other + neither;
            prop_assume!(servers > 0);
            let first = verdict(servers, one, servers - one);
            let second = verdict(servers, other, servers - other);
            prop_assert!(first != Some(true) || second != Some(true));
        }

        #[test]
        fn a_verdict_is_not_changed_by_later_replies(yes in 0usize..8, no in 0usize..8, more_yes in 0usize..8, more_no in 0usize..8, silent in 0usize..8) {
            let servers = yes + no + more_yes + more_no + silent;
            prop_assume!(servers > 0);
            let early = verdict(servers, yes, no);
            let late = verdict(servers, yes + more_yes, no + more_no);
            prop_assert!(early.is_none() || early == late);
        }

        /// A later majority contains a server that has at least what a majority has now.
        #[test]
        fn any_majority_includes_a_server_with_at_least_the_agreed_value(values in proptest::collection::vec(0u64..100, 1..12)) {
            let servers = values.len();
            let agreed = majority_has(values.clone(), servers).expect("all replied");
            let mut lowest = values;
            lowest.sort_unstable();
            prop_assert!(lowest[majority(servers) - 1] >= agreed);
        }
    }
}

//! Why there is no majority.

use std::{fmt, sync::Arc};

use super::votes::majority;
use crate::store::StoreError;

/// Too few servers answered, or agreed.
#[derive(Debug, thiserror::Error)]
pub(super) struct NoMajority {
    servers: usize,
    /// How many answered as they should.
    answered: usize,
    failures: Vec<(String, StoreError)>,
}

impl fmt::Display for NoMajority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            servers, answered, ..
        } = self;
        let needed = majority(*servers);
        write!(
            f,
            "{answered} of {servers} servers answered, {needed} are needed"
        )?;
        if *answered >= needed {
            f.write_str(" that agree")?;
        }
        for (n, (address, error)) in self.failures.iter().enumerate() {
            let before = if n == 0 { " (" } else { "; " };
            write!(f, "{before}{address}: {error}")?;
        }
        if self.failures.is_empty() {
            Ok(())
        } else {
            f.write_str(")")
        }
    }
}

/// The error of a request that `answered` of all servers answered, from those of the others.
pub(super) fn no_majority(
    servers: usize,
    answered: usize,
    failures: Vec<(String, StoreError)>,
) -> StoreError {
    let spare = servers - majority(servers);
    let too_many = |is: fn(&StoreError) -> bool| {
        failures.iter().filter(|(_, error)| is(error)).count() > spare
    };
    StoreError {
        // Whoever refuses would refuse again; the others may come back.
        transient: !too_many(|error| !error.transient),
        maybe_executed: answered > 0 || failures.iter().any(|(_, error)| error.maybe_executed),
        foreign: too_many(|error| error.foreign),
        source: Arc::new(NoMajority {
            servers,
            answered,
            failures,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refusal() -> StoreError {
        StoreError {
            transient: false,
            maybe_executed: false,
            ..StoreError::no_answer(Duration::from_secs(2))
        }
    }

    #[test]
    fn the_error_says_how_many_are_missing_and_which_and_why() {
        let silent = StoreError::no_answer(Duration::from_secs(2));
        let failures = (1..4).map(|port| (format!("127.0.0.1:{port}"), silent.clone()));
        let error = no_majority(5, 2, failures.collect());
        assert!(error.transient && error.maybe_executed && !error.foreign);
        assert_eq!(
            error.to_string(),
            "2 of 5 servers answered, 3 are needed (127.0.0.1:1: no answer within 2s; \
             127.0.0.1:2: no answer within 2s; 127.0.0.1:3: no answer within 2s)"
        );
    }

    #[test]
    fn what_a_minority_refuses_for_good_is_worth_another_try() {
        let silent = StoreError::no_answer(Duration::from_secs(2));
        let name = "127.0.0.1:1".to_owned();
        let one = vec![(name.clone(), refusal()), (name.clone(), silent.clone())];
        assert!(no_majority(3, 1, one).transient);
        let two = vec![(name.clone(), refusal()), (name, refusal())];
        let error = no_majority(3, 1, two);
        assert!(!error.transient && error.maybe_executed);
        assert!(!no_majority(1, 0, vec![("h".to_owned(), refusal())]).maybe_executed);
    }
}

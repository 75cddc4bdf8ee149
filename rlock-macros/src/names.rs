//! Finds the closest name for "did you mean", and lists names in error messages.

use strsim::osa_distance;

/// Finds the candidate that `word` was most likely meant to be, if any is close.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let tolerance = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (osa_distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Lists names as `a`, `b` and `c`.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match &*names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_swap_a_slip_and_a_missing_letter_are_close() {
        for slip in ["laese", "leese", "leas", "lease"] {
            assert_eq!(nearest(slip, ["key", "lease"]), Some("lease"));
        }
    }

    #[test]
    fn only_a_close_word_is_suggested() {
        let words = ["key", "lease", "max_hold"];
        assert_eq!(nearest("maxhold", words), Some("max_hold"));
        assert_eq!(nearest("keys", words), Some("key"));
        assert_eq!(nearest("colour", words), None);
    }
}

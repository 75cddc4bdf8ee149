//! "Did you mean": the known word that a mistyped one is closest to.

/// Finds the candidate that `word` was most likely meant to be, if any is close.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let tolerance = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Counts the edits between two words; two neighbouring letters swapped are one edit.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut before_previous: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    let mut last = None;
    for (row, letter) in left.chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, other) in right.iter().enumerate() {
            let replaced = previous[column] + usize::from(letter != *other);
            let mut cost = replaced
                .min(previous[column + 1] + 1)
                .min(current[column] + 1);
            if column > 0 && last == Some(*other) && letter == right[column - 1] {
                cost = cost.min(before_previous[column - 1] + 1);
            }
            current.push(cost);
        }
        before_previous = std::mem::replace(&mut previous, current);
        last = Some(letter);
    }
    previous[right.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn a_swap_a_slip_and_a_missing_letter_are_one_edit_each() {
        assert_eq!(distance("laese", "lease"), 1);
        assert_eq!(distance("leese", "lease"), 1);
        assert_eq!(distance("leas", "lease"), 1);
        assert_eq!(distance("lease", "lease"), 0);
        assert_eq!(distance("", "key"), 3);
    }

    #[test]
    fn only_a_close_word_is_suggested() {
        let words = ["key", "lease", "max_hold"];
        assert_eq!(nearest("maxhold", words), Some("max_hold"));
        assert_eq!(nearest("keys", words), Some("key"));
        assert_eq!(nearest("colour", words), None);
    }
}

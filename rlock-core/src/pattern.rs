//! Which keys a pattern such as `order:*` selects in lists of locks.

/// Returns whether the key matches the pattern: `*` stands for any text, `?` for one character, and `\` takes the
/// character after it literally.
pub(crate) fn matches(pattern: &str, key: &str) -> bool {
    let (mut pattern, mut key) = (pattern.chars(), key.chars());
    // Where to go on if the present attempt fails: after the last star, which then takes one character more.
    let mut star = None;
    loop {
        let is_met = match (pattern.next(), key.clone().next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                star = Some((pattern.clone(), key.clone()));
                continue;
            }
            (Some('?'), Some(_)) => true,
            (Some('\\'), found) => pattern.next() == found,
            (wanted, found) => wanted == found,
        };
        if is_met && key.next().is_some() {
            continue;
        }
        let Some((after_star, at)) = &mut star else {
            return false;
        };
        if at.next().is_none() {
            return false;
        }
        (pattern, key) = (after_star.clone(), at.clone());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stars_and_question_marks_stand_for_text() {
        for (pattern, key, expected) in [
            ("*", "", true),
            ("*", "order:42", true),
            ("order:*", "order:42", true),
            ("order:*", "orders", false),
            ("*:42", "order:42", true),
            ("*:4", "order:42", false),
            ("o*r:?2", "order:42", true),
            ("order:??", "order:4", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("späti:?", "späti:鍵", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a\\", "a\\", false),
            ("a\\", "a", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, key), expected, "{pattern} {key}");
        }
    }

    /// The definition, by recursion.
    fn defined(pattern: &[char], key: &[char]) -> bool {
        match (pattern, key) {
            ([], []) => true,
            (['*', rest @ ..], _) => {
                defined(rest, key) || !key.is_empty() && defined(pattern, &key[1..])
            }
            (['?', rest @ ..], [_, tail @ ..]) => defined(rest, tail),
            (['\\', wanted, rest @ ..], [found, tail @ ..]) => {
                wanted == found && defined(rest, tail)
            }
            (['\\'], _) => false,
            ([wanted, rest @ ..], [found, tail @ ..]) => wanted == found && defined(rest, tail),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_the_recursive_definition_matches(pattern in "[ab*?\\\\]{0,8}", key in "[ab*]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &key), defined(&chars(&pattern), &chars(&key)));
        }
    }
}

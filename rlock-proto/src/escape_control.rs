//! Makes text from outside, such as a key, safe to show in logs and errors.

/// The longest text of another process that is shown, in characters.
pub const MOST_SHOWN: usize = 256;

/// Escapes characters that break a line, control a terminal or change the writing direction, as a
/// Rust literal does.
#[must_use]
pub fn escape_control(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if breaks_the_line(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Returns the beginning of a text, escaped, of at most [`MOST_SHOWN`] characters. No escape is cut.
#[must_use]
pub fn shown(text: &str) -> String {
    let (mut beginning, mut left) = (String::new(), MOST_SHOWN);
    for c in text.chars() {
        let escaped = escape_control(c.encode_utf8(&mut [0; 4]));
        match left.checked_sub(escaped.chars().count()) {
            Some(rest) => left = rest,
            None => break,
        }
        beginning.push_str(&escaped);
    }
    beginning
}

/// Returns whether a character breaks a line, controls a terminal or changes the writing direction.
#[must_use]
pub fn breaks_the_line(c: char) -> bool {
    let separates = matches!(c, '\u{2028}' | '\u{2029}');
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || separates || turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_stays_as_it_is_and_the_rest_stays_on_its_line() {
        for plain in ["order:42", "späti 鍵 🔑", "%0A \\ \" ' `", ""] {
            assert_eq!(escape_control(plain), plain);
        }
        for (text, shown) in [
            ("a\r\nb\t", "a\\r\\nb\\t"),
            ("\u{1b}[31m\0", "\\u{1b}[31m\\u{0}"),
            ("\u{85}\u{2028}\u{202e}", "\\u{85}\\u{2028}\\u{202e}"),
        ] {
            assert_eq!(escape_control(text), shown);
        }
    }

    #[test]
    fn texts_that_could_control_a_terminal_are_escaped_and_long_ones_are_cut() {
        assert_eq!(shown("a\u{1b}[31m\n"), "a\\u{1b}[31m\\n");
        let whole = "\\u{1b}".repeat(MOST_SHOWN / 6);
        assert_eq!(shown(&"\u{1b}".repeat(1_000)), whole);
        assert_eq!(shown(&"ü".repeat(1_000)), "ü".repeat(MOST_SHOWN));
    }
}

//! Text from elsewhere, such as a key, so that it stays on its line of a log.

use std::fmt::{self, Write};

/// Shows text with whatever would break a line, move a terminal's cursor or turn the order of writing
/// escaped, as Rust writes it in a literal.
pub(crate) struct Printable<'a>(pub(crate) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if breaks_the_line(c) {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

fn breaks_the_line(c: char) -> bool {
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
            assert_eq!(Printable(plain).to_string(), plain);
        }
        for (text, shown) in [
            ("a\r\nb\t", "a\\r\\nb\\t"),
            ("\u{1b}[31m\0", "\\u{1b}[31m\\u{0}"),
            ("\u{85}\u{2028}\u{202e}", "\\u{85}\\u{2028}\\u{202e}"),
        ] {
            assert_eq!(Printable(text).to_string(), shown);
        }
    }
}

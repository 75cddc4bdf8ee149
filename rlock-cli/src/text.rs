//! Makes text from outside, such as keys and holders' names, safe to print on a terminal.

use std::{borrow::Cow, fmt::Write as _, time::Duration};

use rlock_proto::escape_control::{breaks_the_line, escape_control};
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

/// Escapes the characters that mislead a reader or control a terminal, as a Rust literal does.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if text.contains(breaks_the_line) {
        escape_control(text).into()
    } else {
        text.into()
    }
}

/// Returns the value as JSON on one line, in which the same characters are escaped. They occur in strings only.
pub(crate) fn json(value: &Value) -> String {
    let json = value.to_string();
    if !json.contains(breaks_the_line) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if breaks_the_line(c) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Returns how many columns of a terminal the text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Returns the text, cut to so many columns of a terminal.
pub(crate) fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return text.into();
    }
    let mut cut = String::new();
    for c in text.chars() {
        cut.push(c);
        // The width of an emoji is not the sum of the widths of its characters.
        if width(&cut) >= columns {
            cut.pop();
            break;
        }
    }
    if columns > 0 {
        cut.push('…');
    }
    cut.into()
}

/// Shows a duration with two units at most: `850ms`, `12.3s`, `4m05s`, `2h03m`, `3d04h`.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    if seconds < 1 {
        format!("{}ms", time.as_millis())
    } else if minutes < 1 {
        format!("{seconds}.{}s", time.subsec_millis() / 100)
    } else if hours < 1 {
        format!("{minutes}m{:02}s", seconds % 60)
    } else if days < 1 {
        format!("{hours}h{:02}m", minutes % 60)
    } else {
        format!("{days}d{:02}h", hours % 24)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_that_controls_a_terminal_is_left() {
        assert_eq!(escaped("order:42 鍵"), "order:42 鍵");
        assert_eq!(
            escaped("a\u{1b}[2J\n\u{9b}\u{202e}"),
            "a\\u{1b}[2J\\n\\u{9b}\\u{202e}"
        );
        let value = json!({ "key": "a\u{1b}\u{7f}\u{9b}\u{202e}鍵" });
        let line = super::json(&value);
        assert!(!line.contains(breaks_the_line), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }

    #[test]
    fn a_text_is_cut_to_columns_of_the_terminal() {
        for (columns, expected) in [(9, "order:42"), (8, "order:42"), (7, "order:…"), (1, "…")]
        {
            assert_eq!(cut("order:42", columns), expected);
        }
        assert_eq!(cut("鍵鍵鍵", 6), "鍵鍵鍵");
        assert_eq!(cut("鍵鍵鍵", 5), "鍵鍵…");
        assert_eq!(cut("鍵鍵鍵", 4), "鍵…");
        assert_eq!(cut("order", 0), "");
        assert_eq!(cut("❤\u{fe0f}❤\u{fe0f}❤\u{fe0f}", 4), "❤\u{fe0f}❤…");
        let family = "👨\u{200d}👩\u{200d}👧1\u{fe0f}\u{20e3}🏴\u{e0067}é\u{301}لا";
        for columns in 0..20 {
            let cut = cut(family, columns);
            assert!(width(&cut) <= columns, "{columns}: {cut}");
        }
    }

    #[test]
    fn a_time_has_two_units_at_most() {
        for (millis, expected) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1.0s"),
            (59_999, "59.9s"),
            (60_000, "1m00s"),
            (3_599_000, "59m59s"),
            (7_380_000, "2h03m"),
            (86_400_000 * 3 + 4 * 3_600_000, "3d04h"),
        ] {
            assert_eq!(time(Duration::from_millis(millis)), expected);
        }
    }
}

//! Checks keys, escapes values in them, so that different values never make the same key, and hides redacted ones.

use std::{
    fmt::{self, Display, Write},
    hash::{Hash, Hasher},
    sync::Arc,
};

use crate::escape_control::escape_control;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// A key that passed the checks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Key {
    text: Arc<str>,
    /// What errors, logs and spans show in place of the text, if they leave it out.
    instead: Option<&'static str>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl Key {
    /// Parses a key.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`] for an empty text, for one of more than [`MAX_KEY_BYTES`], and for braces that are not a Redis
    /// Cluster hash tag.
    pub fn parse(key: &str) -> Result<Self, InvalidKey> {
        let invalid = |reason: &str| Err(InvalidKey::new(shortened(key), reason));
        if key.is_empty() {
            return invalid("it is empty; name what is to be locked, for example `order:42`");
        }
        if key.len() > MAX_KEY_BYTES {
            return invalid(&format!(
                "it is {} bytes long and {MAX_KEY_BYTES} are allowed; lock a digest of the long part",
                key.len()
            ));
        }
        if let Err(reason) = check_hash_tag(key) {
            return invalid(reason);
        }
        Ok(Self {
            text: key.into(),
            instead: None,
        })
    }

    /// Parses a key that errors, logs and spans leave out if they show another text `instead`: its template, or the label
    /// of its lock.
    ///
    /// # Errors
    ///
    /// Same as [`parse`](Self::parse), but the error of a hidden key does not contain its text.
    pub fn parse_hidden(key: &str, instead: Option<&'static str>) -> Result<Self, InvalidKey> {
        match (Self::parse(key), instead) {
            (Ok(key), instead) => Ok(Self { instead, ..key }),
            (Err(error), Some(instead)) => Err(InvalidKey::new(instead.to_owned(), error.reason)),
            (Err(error), None) => Err(error),
        }
    }

    /// Returns the text of the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether errors, logs and spans leave the text out.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.instead.is_some()
    }

    /// Returns the key for an error or a log: its text, or what takes the place of that.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.instead.unwrap_or(&self.text)
    }

    /// Returns whether the key has its own Redis Cluster hash tag, as in `{tenant}:order`.
    #[must_use]
    pub fn has_hash_tag(&self) -> bool {
        self.text.contains('{')
    }
}

/// The error for a text that is not a valid key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid key `{}`: {reason}", escape_control(key))]
pub struct InvalidKey {
    /// The text, shortened if it is very long, or what takes the place of a hidden key.
    pub key: String,
    /// What is wrong with the text, and what to do instead.
    pub reason: String,
}

impl InvalidKey {
    #[cold]
    fn new(key: String, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { key, reason }
    }
}

/// Shows the key with control characters escaped, or what takes its place.
impl Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape_control(self.shown()))
    }
}

/// Checks the braces, which mark the part of a key that chooses its Redis Cluster slot.
fn check_hash_tag(key: &str) -> Result<(), &'static str> {
    let braces: Vec<_> = key.match_indices(['{', '}']).collect();
    match braces.as_slice() {
        [] => Ok(()),
        [(open, "{"), (close, "}")] if close - open > 1 => Ok(()),
        [(_, "{"), (_, "}")] => {
            Err("its hash tag `{}` is empty; put the part that chooses the slot between the braces")
        }
        _ => Err(
            "braces mark one Redis Cluster hash tag, as in `{tenant}:order`; \
             write other braces as `%7B` and `%7D` (in Rust: `rlock_core::escape`)",
        ),
    }
}

/// Returns the beginning of a long key, for a message.
#[must_use]
pub fn shortened(key: &str) -> String {
    const SHOWN: usize = 80;
    match key.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &key[..end]),
        None => key.to_owned(),
    }
}

/// Encodes a value for use in a key, as a placeholder of the attribute does. Use it for each value in a key that you
/// put together at run time. If the template of the key is known at compile time, the macro `key!` of `rlock-core`
/// encodes all values.
///
/// Percent-encodes `%`, `:`, `{`, `}` and control characters. So a value can neither run into its neighbours, nor
/// name another lock, nor move the key to another Redis Cluster slot.
///
/// # Panics
///
/// This function does not panic. If the `Display` of the value returns an error, so does that of the escaped value,
/// because an incomplete text could also be the key of other values. Then `format!` and `to_string` panic, as they do
/// for the value itself, and `write!` returns the error.
///
/// # Examples
///
/// ```
/// use rlock_proto::key::escape;
///
/// assert_eq!(format!("order:{}", escape(42)), "order:42");
/// assert_eq!(format!("user:{}:{}", escape("a:b"), escape("{x}")), "user:a%3Ab:%7Bx%7D");
/// ```
pub fn escape(value: impl Display) -> impl Display {
    Escaped(escaped(&value))
}

/// An escaped value, or the error of its `Display`.
struct Escaped(Result<String, fmt::Error>);

impl Display for Escaped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_err(|error| *error)?.fmt(f)
    }
}

/// Escapes a value, as [`escape`] describes.
///
/// # Errors
///
/// The error of the value's `Display`.
pub fn escaped(value: &dyn Display) -> Result<String, fmt::Error> {
    let (mut text, mut escaped) = (String::new(), String::new());
    write!(text, "{value}")?;
    for c in text.chars() {
        if matches!(c, '%' | ':' | '{' | '}') || c.is_control() {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                write!(escaped, "%{byte:02X}")?;
            }
        } else {
            escaped.push(c);
        }
    }
    Ok(escaped)
}

/// Decodes the output of [`escape`]. Returns `None` for any other text.
#[must_use]
pub fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut plain = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        plain.push(u8::from_str_radix(digits, 16).ok()?);
        plain.extend(rest.bytes());
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reason(key: &str) -> String {
        Key::parse(key).expect_err(key).to_string()
    }

    #[test]
    fn keys_out_of_bounds_are_refused_with_the_way_out() {
        assert!(reason("").contains("it is empty"));
        let long = reason(&"x".repeat(MAX_KEY_BYTES + 1));
        assert!(
            long.contains("1025 bytes long") && long.len() < 300,
            "{long}"
        );
        assert!(reason("a{}b").contains("hash tag `{}` is empty"));
        for key in ["{", "a}b", "}{", "{a}{b}", "{{a}}", "{a}}"] {
            assert!(reason(key).contains("braces mark one"), "{key}");
        }
    }

    #[test]
    fn a_refused_key_is_shown_unless_it_is_hidden_or_long() {
        assert!(reason("a{}b").starts_with("invalid key `a{}b`: "));
        let long = reason(&"x".repeat(MAX_KEY_BYTES + 1));
        assert!(long.contains(&format!("`{}…`", "x".repeat(80))), "{long}");
        let hidden = Key::parse_hidden("a{}b", Some("order:{id}"));
        assert_eq!(hidden.expect_err("it has no tag").key, "order:{id}");
    }

    #[test]
    fn a_hidden_key_names_the_same_lock_as_a_shown_one() {
        let key = |text| Key::parse(text).expect(text);
        let hidden = Key::parse_hidden("b", Some("order:{id}")).expect("valid");
        assert!(hidden == key("b") && hidden != key("a") && key("a") < hidden);
        assert!(hidden.is_hidden() && !key("b").is_hidden());
        assert_eq!(
            (&*hidden.to_string(), &*key("b").to_string()),
            ("order:{id}", "b")
        );
        assert!(key("{a}b").has_hash_tag() && !key("ab").has_hash_tag());
    }

    #[test]
    fn ordinary_keys_and_hash_tags_pass() {
        for key in [
            "order:42",
            "{acme}:order:1",
            "späti:1",
            " ",
            &"x".repeat(MAX_KEY_BYTES),
        ] {
            assert_eq!(Key::parse(key).expect(key).as_str(), key);
        }
    }

    #[test]
    fn values_cannot_run_into_their_neighbours() {
        let key = |a: &str, b: &str| format!("t:{}:{}", escape(a), escape(b));
        assert_ne!(key("1:2", "3"), key("1", "2:3"));
        assert_ne!(key("%3A", ""), key(":", ""));
        assert_eq!(escape("\n\u{85}ü").to_string(), "%0A%C2%85ü");
    }

    /// A `Display` that writes a part of its text, and fails.
    struct Broken;

    impl Display for Broken {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("acc-")?;
            Err(fmt::Error)
        }
    }

    #[test]
    fn a_value_whose_display_fails_has_no_escaped_form() {
        let mut key = String::new();
        write!(key, "account:{}", escape(Broken)).expect_err("the value has no text");
        assert_eq!(key, "account:");
    }

    #[test]
    #[should_panic(expected = "Display")]
    fn the_text_of_a_value_whose_display_fails_panics_as_without_escape() {
        let _ = escape(Broken).to_string();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// No two values are escaped alike, and no escaped value contains a separator.
        #[test]
        fn every_value_can_be_told_from_its_escaped_form(
            value in prop_oneof![any::<String>(), "[%:{}a-f0-9\\x00-\\x1f\u{80}-\u{a0}]{0,12}"]
        ) {
            let escaped = escape(&value).to_string();
            let means_something = |c: char| matches!(c, ':' | '{' | '}') || c.is_control();
            prop_assert!(!escaped.contains(means_something), "{escaped:?}");
            prop_assert_eq!(unescape(&escaped), Some(value.clone()));
            // A `Display` may write its text in pieces.
            let in_pieces: String = value.chars().map(|c| escape(c).to_string()).collect();
            prop_assert_eq!(in_pieces, escaped);
        }

        #[test]
        fn no_key_is_split_over_lines_in_a_message(key: String) {
            let shown = match Key::parse(&key) {
                Ok(key) => key.to_string(),
                Err(error) => error.to_string(),
            };
            prop_assert!(!shown.contains(char::is_control), "{shown:?}");
        }
    }
}

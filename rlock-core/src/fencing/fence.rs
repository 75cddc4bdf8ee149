//! A [`Fence`], and its text `<key>@<token>` for headers and logs.

use std::{
    error::Error,
    fmt::{self, Write as _},
    str::FromStr,
};

use rlock_proto::{
    escape_control::escape_control,
    key::{Key, shortened},
};

use crate::token::{InvalidToken, Token};

/// The key and the fencing token of an exclusive hold, for storage that refuses stale writers.
///
/// [`Hold::fence`](crate::Hold::fence) returns it, and [`fencing`](crate::fencing) has the statements that check it in a
/// database.
///
/// The key has at most 1,024 bytes. The database compares keys byte by byte: a column that ignores case
/// would refuse `order:a` because of `order:A`. Clients with different [prefixes](crate::LockClientBuilder::prefix)
/// have different locks with the same key, so give each prefix a table of its own.
///
/// # Text
///
/// `Display` writes `<key>@<token>` and `FromStr` reads it. `%` and everything but visible ASCII is percent-encoded,
/// even if [`escape`](crate::escape) has already encoded it, so the text fits into an HTTP header and a log line.
/// Different texts can stand for the same fence, so compare fences, not texts. The text names the key even if the
/// client [redacts](crate::LockClientBuilder::redact_keys) keys; `Debug` does not.
///
/// With the feature `serde`, a fence is `{"key": "order:42", "token": 2258374700878976}`.
///
/// # Examples
///
/// ```
/// use rlock_core::{LockClient, fencing::Fence};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = LockClient::in_memory();
/// let guard = client.lock("order:42").acquire().await?;
/// let fence = guard.fence();
/// assert_eq!(fence.key(), "order:42");
///
/// let header = fence.to_string(); // `order:42@2258374700878976`
/// assert_eq!(header.parse::<Fence>()?, fence);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(into = "SerializedFence", try_from = "SerializedFence")
)]
pub struct Fence {
    key: Key,
    token: Token,
}

/// A fence as `serde` writes it.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "Fence")]
struct SerializedFence {
    key: String,
    token: Token,
}

#[cfg(feature = "serde")]
impl From<Fence> for SerializedFence {
    fn from(fence: Fence) -> Self {
        Self {
            key: fence.key().to_owned(),
            token: fence.token,
        }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<SerializedFence> for Fence {
    type Error = InvalidFence;

    fn try_from(parts: SerializedFence) -> Result<Self, InvalidFence> {
        Self::new(&parts.key, parts.token)
    }
}

impl Fence {
    /// Makes a fence of a key and a token that were sent or stored apart.
    ///
    /// # Errors
    ///
    /// [`InvalidFence`] if no lock can have this key.
    pub fn new(key: &str, token: Token) -> Result<Self, InvalidFence> {
        match Key::parse(key) {
            Ok(key) => Ok(Self { key, token }),
            Err(error) => {
                let reason = format!("its key is invalid: {}", error.reason);
                Err(InvalidFence::new(&format!("{key}@{token}"), reason))
            }
        }
    }

    pub(super) fn of(key: Key, token: Token) -> Self {
        Self { key, token }
    }

    /// Returns the key, which `Display` leaves out if the lock hides it.
    pub(super) fn as_key(&self) -> &Key {
        &self.key
    }

    /// Returns the key of the lock.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Returns the fencing token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.key().bytes() {
            match byte {
                b'!'..=b'~' if byte != b'%' => f.write_char(byte.into())?,
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        write!(f, "@{}", self.token)
    }
}

impl FromStr for Fence {
    type Err = InvalidFence;

    fn from_str(text: &str) -> Result<Self, InvalidFence> {
        let invalid = |reason: &str| InvalidFence::new(text, reason.to_owned());
        let (key, token) = text
            .rsplit_once('@')
            .ok_or_else(|| invalid("it is written `<key>@<token>`"))?;
        let token = token.parse().map_err(|_| invalid(InvalidToken::RANGE))?;
        let key = decoded(key).ok_or_else(|| invalid("its key is not percent-encoded UTF-8"))?;
        Self::new(&key, token)
    }
}

/// Decodes what `Display` percent-encodes.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Leaves out a key that the lock hides.
impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("key", &self.key.to_string())
            .field("token", &self.token.as_u64())
            .finish()
    }
}

/// The error of a text, or of a key and a token, that cannot be a [`Fence`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFence {
    text: String,
    reason: String,
}

impl InvalidFence {
    fn new(text: &str, reason: String) -> Self {
        let text = shortened(text);
        Self { text, reason }
    }
}

impl fmt::Display for InvalidFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = escape_control(&self.text);
        write!(f, "invalid fence `{text}`: {}", self.reason)
    }
}

impl Error for InvalidFence {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(number: u64) -> Token {
        number.try_into().expect("valid")
    }

    #[test]
    fn a_fence_is_written_for_headers_and_logs() {
        let fence = Fence::new("order:ä %\n@1", token(5)).expect("valid");
        assert_eq!(fence.to_string(), "order:%C3%A4%20%25%0A@1@5");
        assert_eq!(fence.to_string().parse(), Ok(fence));
    }

    #[test]
    fn an_invalid_fence_is_refused_with_the_text_and_the_reason() {
        for (text, reason) in [
            ("order:42", "it is written `<key>@<token>`"),
            ("order:42@", InvalidToken::RANGE),
            ("order:42@+5", InvalidToken::RANGE),
            ("order:42@0", InvalidToken::RANGE),
            ("order:42@9007199254740992", InvalidToken::RANGE),
            ("order:42@99999999999999999999", InvalidToken::RANGE),
            ("%@5", "its key is not percent-encoded UTF-8"),
            ("%+5@5", "its key is not percent-encoded UTF-8"),
            ("%FF@5", "its key is not percent-encoded UTF-8"),
            ("%ää@5", "its key is not percent-encoded UTF-8"),
        ] {
            let error = text.parse::<Fence>().unwrap_err().to_string();
            assert_eq!(error, format!("invalid fence `{text}`: {reason}"));
        }
        let error = "@5".parse::<Fence>().unwrap_err().to_string();
        assert!(
            error.starts_with("invalid fence `@5`: its key is invalid: it is empty"),
            "{error}"
        );
    }

    #[test]
    #[cfg(feature = "serde")]
    fn serde_checks_what_it_reads() {
        let fence = Fence::new("order:42", token((1 << 53) - 1)).expect("valid");
        let json = r#"{"key":"order:42","token":9007199254740991}"#;
        assert_eq!(serde_json::to_string(&fence).expect("written"), json);
        assert_eq!(serde_json::from_str::<Fence>(json).expect("read"), fence);
        let error = serde_json::from_str::<Fence>(r#"{"key":"","token":5}"#).unwrap_err();
        assert!(
            error.to_string().starts_with("invalid fence `@5`"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn a_fence_is_read_as_it_is_written(key in "\\PC{1,20}|[ -~\n\t@%]{1,20}", number in 1..1_u64 << 53) {
            let Ok(fence) = Fence::new(&key, token(number)) else { return Ok(()) };
            let text = fence.to_string();
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{}", text);
            prop_assert_eq!(text.parse(), Ok(fence));
        }

        #[test]
        fn parsing_any_text_as_a_fence_does_not_panic(text in ".{0,20}|[%@0-9a-f]{0,12}") {
            if let Ok(fence) = text.parse::<Fence>() {
                prop_assert_eq!(fence.to_string().parse(), Ok(fence));
            }
        }
    }
}

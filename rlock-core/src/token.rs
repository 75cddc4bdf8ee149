//! `Token`: the fencing token by which storage refuses the writes of a holder that has lost its lock.

use std::{error::Error, fmt, num::NonZeroU64, str::FromStr};

use rlock_proto::{escape_control::escape_control, key::shortened};

/// Tokens are below this until the year 2193.
const END: u64 = 1 << 53;

/// The fencing token of a hold, which is larger than that of every earlier hold of the same key.
///
/// Storage that refuses tokens below the largest it has seen therefore refuses writers that have lost the lock. That
/// needs an exclusive lock, because a shared hold may have the token of another reader, and tokens of permits are not
/// ordered. Only tokens of the same key can be compared. [`fencing`](crate::fencing) has the statements with which a
/// database checks them.
///
/// A token is from 1 to 2^53 − 1 until the year 2193, so a `BIGINT` column, a JSON number and a Lua number hold it
/// exactly; an `INTEGER` of 32 bits is too small. `Display` writes the number and `FromStr` reads it. With the feature
/// `serde`, a token is a number.
///
/// # Examples
///
/// ```
/// use rlock_core::{LockClient, Token};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = LockClient::in_memory();
/// let lock = client.lock("order:42");
///
/// let guard = lock.acquire().await?;
/// let first = guard.token();
/// // UPDATE orders SET …, token = $first WHERE id = 42 AND token <= $first
/// guard.release().await?;
///
/// let second = lock.acquire().await?.token();
/// assert!(first < second);
/// assert_eq!(second.to_string().parse::<Token>()?, second);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "u64", try_from = "u64"))]
pub struct Token(NonZeroU64);

impl Token {
    /// Returns the token of a hold. The store grants none below 128.
    pub(crate) fn of_hold(number: u64) -> Self {
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }

    /// Returns the number.
    #[must_use]
    pub fn as_u64(self) -> u64 {
        self.0.get()
    }

    /// Returns the number for storage whose integers are signed, such as a `BIGINT` column.
    #[must_use]
    pub fn as_i64(self) -> i64 {
        self.as_u64().cast_signed()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.as_u64()
    }
}

impl TryFrom<u64> for Token {
    type Error = InvalidToken;

    fn try_from(number: u64) -> Result<Self, InvalidToken> {
        let token = NonZeroU64::new(number).filter(|number| number.get() < END);
        token.map(Self).ok_or_else(|| InvalidToken::of(&number))
    }
}

/// For a token that storage with signed integers has kept.
impl TryFrom<i64> for Token {
    type Error = InvalidToken;

    fn try_from(number: i64) -> Result<Self, InvalidToken> {
        let token = u64::try_from(number).ok();
        let token = token.and_then(|number| Self::try_from(number).ok());
        token.ok_or_else(|| InvalidToken::of(&number))
    }
}

impl FromStr for Token {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        // `u64::from_str` accepts a sign.
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number);
        let token = number.and_then(|number: u64| Self::try_from(number).ok());
        token.ok_or_else(|| InvalidToken::of(&text))
    }
}

/// The error of a number or a text that cannot be a [`Token`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidToken {
    value: String,
}

impl InvalidToken {
    pub(crate) const RANGE: &str = "a token is a number from 1 to 9007199254740991";

    fn of(value: &dyn fmt::Display) -> Self {
        let value = shortened(&value.to_string());
        Self { value }
    }
}

impl fmt::Display for InvalidToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = escape_control(&self.value);
        write!(f, "invalid token `{value}`: {}", Self::RANGE)
    }
}

impl Error for InvalidToken {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_positive_number_below_the_limit_of_a_json_number() {
        for number in [1, 128, END - 1] {
            let token = Token::try_from(number).expect("valid");
            assert_eq!(token.as_u64(), number);
            assert_eq!(Token::try_from(token.as_i64()), Ok(token));
            assert_eq!(token.to_string().parse(), Ok(token));
        }
        for (text, error) in [
            ("0", Token::try_from(0_u64).err()),
            ("-1", Token::try_from(-1_i64).err()),
            ("9007199254740992", Token::try_from(END).err()),
            ("+5", None),
            ("5 ", None),
            ("", None),
        ] {
            let refused = text.parse::<Token>().expect_err(text);
            let shown = format!("invalid token `{text}`: {}", InvalidToken::RANGE);
            assert_eq!(refused.to_string(), shown);
            assert!(error.is_none_or(|error| error == refused), "{text}");
        }
    }

    #[test]
    #[cfg(feature = "serde")]
    fn serde_writes_a_number_and_refuses_one_out_of_range() {
        let token = Token::try_from(5_u64).expect("valid");
        assert_eq!(serde_json::to_string(&token).expect("a number"), "5");
        assert_eq!(serde_json::from_str::<Token>("5").expect("valid"), token);
        let error = serde_json::from_str::<Token>("0").expect_err("zero");
        assert!(error.to_string().contains(InvalidToken::RANGE), "{error}");
    }
}

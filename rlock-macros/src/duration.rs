//! Reads the value of a duration: a string checked at compile time, or an expression of type `Duration`.

use std::time::Duration;

use humantime::DurationError as Error;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprLit, Lit, LitStr};

use crate::options::LockOption;

/// How long an option may last.
pub(crate) struct Bounds {
    least: Duration,
    most: Duration,
    text: &'static str,
}

pub(crate) const LEASE: Bounds = Bounds {
    least: Duration::from_millis(10),
    most: DAY,
    text: "a lease lasts from 10ms to 24h",
};
pub(crate) const WAIT: Bounds = Bounds {
    least: Duration::ZERO,
    most: Duration::from_secs(366 * 24 * 60 * 60),
    text: "a wait lasts for 366 days at most; for no limit write `wait = \"forever\"`",
};
pub(crate) const MAX_HOLD: Bounds = Bounds {
    least: Duration::from_nanos(1),
    most: Duration::MAX,
    text: "a body takes more than 0s",
};
pub(crate) const MIN_HOLD: Bounds = Bounds {
    least: Duration::from_nanos(1),
    most: DAY,
    text: "a lock is kept for more than 0s and 24h at most",
};
pub(crate) const RETAIN: Bounds = Bounds {
    least: Duration::ZERO,
    most: DAY,
    text: "a lock is retained for 24h at most",
};
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The value of an option that is a duration.
pub(crate) enum Time {
    /// Known now, and where it was written.
    Literal(Duration, LitStr),
    /// Known, and checked, when the function is called.
    Expression(Expr),
}

impl Time {
    pub(crate) fn expression(&self) -> Option<&Expr> {
        match self {
            Self::Expression(expression) => Some(expression),
            Self::Literal(..) => None,
        }
    }

    /// Reads `option = value`.
    pub(crate) fn read(option: LockOption, value: Expr, bounds: &Bounds) -> syn::Result<Self> {
        match value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) => {
                let time = parse(option, &text.value(), bounds)
                    .map_err(|message| syn::Error::new(text.span(), message))?;
                Ok(Self::Literal(time, text))
            }
            value => Ok(Self::Expression(value)),
        }
    }
}

impl ToTokens for Time {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(match self {
            Self::Literal(time, text) => {
                let (seconds, nanoseconds) = (time.as_secs(), time.subsec_nanos());
                let span = Span::mixed_site().located_at(text.span());
                quote_spanned!(span=> ::core::time::Duration::new(#seconds, #nanoseconds))
            }
            Self::Expression(value) => quote!(#value),
        });
    }
}

fn parse(option: LockOption, text: &str, bounds: &Bounds) -> Result<Duration, String> {
    let (name, form) = (option.name(), option.form());
    let time = humantime::parse_duration(text).map_err(|error| {
        let wrong = problem(text, error);
        format!("`{name} = {text:?}` is not a duration: {wrong}; for example `{form}`")
    })?;
    let wrong = match time {
        time if time < bounds.least => "too short",
        time if time > bounds.most => "too long",
        time => return Ok(time),
    };
    Err(format!("`{name} = {text:?}` is {wrong}: {}", bounds.text))
}

/// Returns what is wrong with a text that is not a duration. The parser's message has an example of its own.
fn problem(text: &str, error: Error) -> String {
    match error {
        _ if text.trim_start().starts_with('-') => "a duration is not negative".to_owned(),
        Error::UnknownUnit { unit, .. } if unit.is_empty() => "each number needs a unit".to_owned(),
        Error::UnknownUnit { unit, .. } => format!("`{unit}` is not a unit of time"),
        Error::NumberOverflow => "the number is too large or too precise".to_owned(),
        Error::Empty | Error::InvalidCharacter(_) | Error::NumberExpected(_) => {
            "a duration is a number and a unit".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bounds, LEASE};
    use crate::options::LockOption;
    use std::time::Duration;

    fn parse(option: &str, text: &str, bounds: &Bounds) -> Result<Duration, String> {
        let option = LockOption::of(option).unwrap();
        super::parse(option, text, bounds)
    }

    #[test]
    fn times_are_written_as_people_write_them() {
        for (text, milliseconds) in [
            ("10ms", 10),
            ("30s", 30_000),
            ("1.5s", 1_500),
            ("1m30s", 90_000),
            ("2min 5sec", 125_000),
            ("24h", 86_400_000),
            ("1day", 86_400_000),
        ] {
            assert_eq!(
                parse("lease", text, &LEASE),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn an_invalid_duration_is_refused_with_the_reason_and_an_example() {
        for (text, problem) in [
            ("", "a duration is a number and a unit"),
            ("abc", "a duration is a number and a unit"),
            ("1,5s", "a duration is a number and a unit"),
            ("30", "each number needs a unit"),
            ("1h30", "each number needs a unit"),
            ("-5s", "a duration is not negative"),
            ("-5", "a duration is not negative"),
            ("30 parsecs", "`parsecs` is not a unit of time"),
            (
                "99999999999999999999s",
                "the number is too large or too precise",
            ),
            ("0.5ns", "the number is too large or too precise"),
        ] {
            assert_eq!(
                parse("lease", text, &LEASE),
                Err(format!(
                    "`lease = {text:?}` is not a duration: {problem}; for example `lease = \"30s\"`"
                ))
            );
        }
    }
}

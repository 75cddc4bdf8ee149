//! `Debug` of errors: a sentence for `main` and `unwrap`, and the fields for `{:#?}`.

use std::{error::Error, fmt};

use super::LockError;

impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            self.fields(f)
        } else {
            self.sentence(f)
        }
    }
}

impl LockError {
    /// Writes the text, then each source that the text does not already contain.
    fn sentence(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            let reason = error.to_string();
            if !said.contains(&reason) {
                said = format!("{said}: {reason}");
            }
            source = error.source();
        }
        f.write_str(&said)
    }

    fn fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout {
                key,
                waited,
                remaining,
            } => f
                .debug_struct("Timeout")
                .field("key", key)
                .field("waited", waited)
                .field("remaining", remaining)
                .finish(),
            Self::Lost { key, cause } => f
                .debug_struct("Lost")
                .field("key", key)
                .field("cause", cause)
                .finish(),
            Self::Unavailable {
                action,
                waited,
                source,
            } => f
                .debug_struct("Unavailable")
                .field("action", action)
                .field("waited", waited)
                .field("source", source)
                .finish(),
            Self::Store { action, source } => f
                .debug_struct("Store")
                .field("action", action)
                .field("source", source)
                .finish(),
            Self::InvalidKey { key, reason } => f
                .debug_struct("InvalidKey")
                .field("key", key)
                .field("reason", reason)
                .finish(),
            Self::InvalidOption {
                option,
                value,
                reason,
            } => f
                .debug_struct("InvalidOption")
                .field("option", option)
                .field("value", value)
                .field("reason", reason)
                .finish(),
            Self::NoClient { key } => f.debug_struct("NoClient").field("key", key).finish(),
            Self::WouldBlock { action } => f
                .debug_struct("WouldBlock")
                .field("action", action)
                .finish(),
            Self::Draining { action } => {
                f.debug_struct("Draining").field("action", action).finish()
            }
            Self::Closed { action } => f.debug_struct("Closed").field("action", action).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc, time::Duration};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the handshake failed")]
    struct Outer(#[source] io::Error);

    fn error() -> LockError {
        LockError::Unavailable {
            action: "connect to h:1".to_owned(),
            waited: Duration::from_millis(20),
            source: Arc::new(Outer(io::Error::other("connection reset"))),
        }
    }

    #[test]
    fn debug_is_a_sentence_with_all_sources_and_alternate_debug_has_the_fields() {
        let shown = format!("{:?}", error());
        assert_eq!(shown, format!("{}: connection reset", error()));
        let fields = format!("{:#?}", error());
        assert!(fields.starts_with("Unavailable {\n"), "{fields}");
        assert!(fields.contains("waited: 20ms"), "{fields}");
    }

    #[test]
    fn a_source_that_the_text_names_is_not_repeated() {
        let error = LockError::Store {
            action: "acquire lock `k`".to_owned(),
            source: Arc::new(io::Error::other("no permission")),
        };
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}

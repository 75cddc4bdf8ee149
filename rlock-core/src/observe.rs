//! The spans of locks, and the outcomes that spans and metrics share.

pub(crate) mod spans;

pub(crate) use self::spans::EndedHold;

/// Defines the values of a label or of a field of a span.
macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($(#[$note:meta])* $variant:ident = $text:literal,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum $name {
            $($(#[$note])* $variant,)+
        }

        impl $name {
            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    )+};
}

labels! {
    /// The end of an acquire.
    Outcome {
        Granted = "granted",
        /// The lock stayed taken for the whole wait.
        Timeout = "timeout",
        /// The lock was taken, and the call did not wait.
        Busy = "busy",
        Error = "error",
        Cancelled = "cancelled",
    }

    /// The end of a hold.
    HoldEnd {
        Released = "released",
        /// The body returned an error, or the guard was marked as failed.
        Failed = "failed",
        Lost = "lost",
        Panicked = "panicked",
        Cancelled = "cancelled",
    }
}

//! Tells whether a body has failed, from the type of its output: an `Err` or a success.

use std::{
    any::type_name,
    hash::{Hash, Hasher},
    mem::discriminant,
};

/// Returns whether the output is an `Err`. An output that is not a `Result` is a success.
///
/// Outputs have no bounds, so no trait can tell a `Result` from other types, but the name of the type and the discriminant
/// can. If the standard library renamed the type, every output would count as a success.
pub(crate) fn has_failed<T>(output: &T) -> bool {
    let mut variant = Variant(false);
    if type_name::<T>().starts_with("core::result::Result<") {
        discriminant(output).hash(&mut variant);
    }
    variant.0
}

/// Whether a discriminant is not zero, which is that of `Ok`.
struct Variant(bool);

impl Hasher for Variant {
    fn write(&mut self, bytes: &[u8]) {
        self.0 |= bytes.iter().any(|byte| *byte != 0);
    }

    fn finish(&self) -> u64 {
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, convert::Infallible, io, rc::Rc};

    use super::*;

    /// A type of this name that is not the one of `std`.
    enum Result<T> {
        Ok(T),
        Err,
    }

    #[test]
    fn an_output_has_failed_if_it_is_an_error() {
        type Std<T, E> = std::result::Result<T, E>;
        fn both<T, E>(value: T, error: E) {
            assert!(!has_failed(&Ok::<T, E>(value)));
            assert!(has_failed(&Err::<T, E>(error)));
        }
        let local = String::from("borrowed");
        both((), ());
        both(7_u64, "text");
        both(Box::new(1), local.as_str());
        both(Some(true), io::Error::other("a reason"));
        both(
            Rc::new(Cell::new(1)),
            Box::<dyn std::error::Error>::from("x"),
        );
        both(Ok::<(), ()>(()), Err::<(), ()>(()));
        assert!(!has_failed(&Std::<&str, Infallible>::Ok(&local)));
        assert!(has_failed(&Std::<Infallible, u8>::Err(0)));
    }

    #[test]
    fn a_body_that_returns_no_result_has_succeeded() {
        assert!(!has_failed(&1) && !has_failed(&()) && !has_failed(&false));
        assert!(!has_failed(&None::<u8>) && !has_failed(&Some(Err::<u8, u8>(1))));
        assert!(!has_failed(&Result::Ok(1)) && !has_failed(&Result::<u8>::Err));
    }
}

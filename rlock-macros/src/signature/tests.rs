//! Tests what the attribute reads from a function's signature.

use super::Function;

#[test]
fn a_signature_that_cannot_be_read_is_refused_with_the_reason() {
    for (item, reason) in [
        (
            "fn f() -> Result<Box<Fn(u8) -> u8>, E> {}",
            "`Fn(…)` as a type needs `dyn`: write `dyn Fn(…)`",
        ),
        (
            "fn f(x: &mut FnMut()) -> R {}",
            "`FnMut(…)` as a type needs `dyn`: write `dyn FnMut(…)`",
        ),
        (
            "fn f(u8) -> R {}",
            "`#[distributed_lock]` cannot read this signature: expected `:`",
        ),
        (
            "fn f<F: Fn(u8)>(f: impl for<'a> Fn(&'a u8), u8) -> R where F: FnOnce() {}",
            "`#[distributed_lock]` cannot read this signature: expected `:`",
        ),
    ] {
        let error = Function::parse(item.parse().unwrap()).err().expect(item);
        assert_eq!(error.to_string(), reason, "{item}");
    }
}

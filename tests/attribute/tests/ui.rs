//! What the attribute accepts, and what it says of the rest.

#[test]
#[ignore = "scripts/test-all"]
fn misuse_is_rejected_at_the_exact_token() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}

#[test]
#[ignore = "scripts/test-all"]
fn what_compiles_without_the_attribute_compiles_with_it() {
    trybuild::TestCases::new().pass("ui/pass/*.rs");
}

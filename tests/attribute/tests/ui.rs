//! Compiles each case of `ui`, and compares the messages of the compiler.

#[test]
#[ignore = "scripts/test-all"]
fn misuse_is_rejected_at_the_exact_token() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}

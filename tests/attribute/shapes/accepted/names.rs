//! Arguments and methods with names that the expansion might use. A unit test of the macros checks the names of items.

use crate::support::Runs;

pub mod arguments {
    use crate::support::Error;

    //@ key = "<plan>:<body>:<r#type>"
    pub async fn named(plan: u8, body: u8, edge: u8, r#type: u8, on_error: u8) -> Result<u8, Error> {
        Ok(plan + body + edge + r#type + on_error)
    }

    //@ key = "<plan>:<body>:<r#type>"
    pub fn named_here(plan: u8, body: u8, edge: u8, r#type: u8, on_error: u8) -> Result<u8, Error> {
        Ok(plan + body + edge + r#type + on_error)
    }

    //@ key = "<plan>", on_error = |_| body
    pub fn option_names_one(plan: u8, body: u8) -> u8 {
        plan + body
    }

    //@ key = "<Camel>"
    pub async fn badly_named(Camel: u8) -> Result<u8, Error> {
        Ok(Camel)
    }

    //@ key = "k"
    pub async fn BadlyNamed(Camel: u8) -> Result<u8, Error> {
        let Local = Camel;
        Ok(Local)
    }
}

/// Traits that all types implement, with methods of the names that the expansion calls.
pub mod blanket {
    use crate::support::Error;

    pub trait Taken: Sized {
        fn or_error(self) {}
        fn unwrap_or_else(self) {}
        fn and(self) {}
        fn and_list(self) {}
        fn client(self) {}
        fn lease(self) {}
        fn map(self) {}
    }

    pub trait Borrowed {
        fn or_error(&self) {}
        fn and(&self) {}
        fn map(&self) {}
        fn deref(&self) {}
    }

    impl<T> Taken for T {}
    impl<T: ?Sized> Borrowed for T {}

    //@ key = ["k", "k:<ids[]>"], lease = "3s", wait = "forever"
    pub async fn all(ids: &[u8]) -> Result<usize, Error> {
        Ok(ids.len())
    }

    //@ key = "k:<ids[]>"
    pub fn all_here(ids: &[u8]) -> Result<usize, Error> {
        Ok(ids.len())
    }

    //@ key = "k", if_taken = 0, on_error = |_| 0
    pub fn skips_here() -> u8 {
        1
    }
}

pub fn runs(runs: &mut Runs) {
    run!(runs, "blanket", blanket::all(&[7, 8]));
    runs.value("blanket_here", blanket::all_here(&[7]));
    runs.value("blanket_skips_here", blanket::skips_here());
    run!(runs, "named", arguments::named(1, 2, 3, 4, 5));
    runs.value("named_here", arguments::named_here(1, 2, 3, 4, 5));
    runs.value("option_names_one", arguments::option_names_one(1, 2));
}

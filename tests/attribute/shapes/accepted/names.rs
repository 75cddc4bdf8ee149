//! Items with names that the expansion might use.

use crate::support::Runs;

pub mod constants {
    #![allow(non_upper_case_globals)]
    use crate::support::Error;

    pub const plan: u8 = 1;
    pub const body: u8 = 2;
    pub static edge: u8 = 3;
    pub const __edge: u8 = 4;
    pub const output: u8 = 5;
    pub const future: u8 = 6;
    pub const error: u8 = 7;
    pub const on_error: u8 = 8;
    pub const lock: u8 = 9;
    pub const call: u8 = 10;

    //@ key = "k"
    pub async fn all() -> Result<u8, Error> {
        Ok(plan + body + edge + __edge + output + future + error + on_error + lock + call)
    }

    //@ key = "k"
    pub fn all_here() -> Result<u8, Error> {
        Ok(plan + body + edge + __edge + output + future + error + on_error + lock + call)
    }
}

pub mod preludes {
    #![allow(dead_code)]

    pub mod core {}
    pub mod std {}
    pub mod alloc {}
    pub mod rlock_core {}

    #[derive(Debug)]
    pub struct Box;
    #[derive(Debug)]
    pub enum Option {
        Some,
        None,
    }
    pub type Result<T> = ::core::result::Result<T, crate::support::Error>;
    pub struct Future;
    pub struct Pin;
    pub struct Plan;
    #[allow(non_snake_case)]
    pub fn Some(id: u8) -> u8 {
        id
    }
    #[allow(unused_macros)]
    macro_rules! format_args {
        ($($any:tt)*) => {
            compile_error!("this is not that of the standard library")
        };
    }

    //@ key = "k:<id:?>"
    pub async fn all(id: u8) -> Result<(u8, Box, Option)> {
        Ok((Some(id), Box, Option::None))
    }

    //@ key = "k:<id:?>"
    pub fn all_here(id: u8) -> Result<(u8, Box, Option)> {
        Ok((Some(id), Box, Option::Some))
    }
}

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

pub mod generic_names {
    use crate::support::Error;

    //@ key = "k"
    pub fn letters_here<F: Into<u8>, R: Into<u8>, T: Into<u8>, E: Into<u8>>(f: F, r: R, t: T, e: E) -> Result<u8, Error> {
        Ok(f.into() + r.into() + t.into() + e.into())
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
    run!(runs, "constants", constants::all());
    runs.value("constants_here", constants::all_here());
    run!(runs, "preludes", preludes::all(7));
    runs.value("preludes_here", preludes::all_here(7));
    run!(runs, "blanket", blanket::all(&[7, 8]));
    runs.value("blanket_here", blanket::all_here(&[7]));
    runs.value("blanket_skips_here", blanket::skips_here());
    run!(runs, "named", arguments::named(1, 2, 3, 4, 5));
    runs.value("named_here", arguments::named_here(1, 2, 3, 4, 5));
    runs.value("option_names_one", arguments::option_names_one(1, 2));
    runs.value("letters_here", generic_names::letters_here(1, 2, 3, 4));
}

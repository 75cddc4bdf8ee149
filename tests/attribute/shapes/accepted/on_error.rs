//! Values that replace the body's output, and their conversion to the return type.

use std::fmt::Debug;

use crate::support::{pause, Error, LockError, Runs};

#[derive(Debug)]
pub enum Sweep {
    Done(u64),
    Skipped(LockError),
}

//@ key = "k", on_error = Sweep::Skipped
pub async fn variant() -> Sweep {
    Sweep::Done(7)
}

//@ key = "k", on_error = |error| Box::new(error)
pub fn dynamic_here(id: u64) -> Box<dyn Debug> {
    Box::new(id)
}

//@ key = "k", on_error = |error| Err(Box::new(error))
pub async fn dynamic_error(id: u64) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    Ok(id)
}

//@ key = "k", on_error = |_| name
pub async fn borrowed(name: &str) -> &str {
    pause().await;
    &name[1..]
}

//@ key = "k", on_error = |_| double
pub fn function_pointer_here() -> fn(u64) -> u64 {
    |id| id
}

fn double(id: u64) -> u64 {
    2 * id
}

//@ key = "k", on_error = { let name = name.clone(); move |_| name }
pub async fn cloned(name: String) -> String {
    name + "!"
}

//@ key = "k", on_error = |_| Default::default()
pub async fn defaulted(id: u64) -> Vec<u64> {
    vec![id]
}

//@ key = "k", on_error = |error| return Err(error.into())
pub fn returned_here(id: u64) -> Result<u64, Error> {
    Ok(id)
}

//@ key = "k", on_error = |error| panic!("{}", error)
pub async fn diverging(id: u64) -> u64 {
    id
}

//@ key = "k", on_error = |_| 0
pub fn hidden_here(id: u64) -> impl Debug {
    id
}

//@ key = "k", on_error = |error| { eprintln!("{}", error); }
pub async fn logged() {
    pause().await;
}

//@ key = "k", on_error = |_| { Box::new(std::iter::empty()) }
pub fn iterator_here(id: u64) -> Box<dyn Iterator<Item = u64>> {
    Box::new(0..id)
}

pub fn runs(runs: &mut Runs) {
    run!(runs, "variant", variant());
    runs.value("dynamic_here", dynamic_here(7));
    run!(runs, "dynamic_error", dynamic_error(7));
    run!(runs, "borrowed", borrowed("seven"));
    runs.value("function_pointer_here", function_pointer_here()(7));
    run!(runs, "cloned", cloned("seven".to_owned()));
    run!(runs, "defaulted", defaulted(7));
    runs.value("returned_here", returned_here(7));
    run!(runs, "diverging", diverging(7));
    runs.value("hidden_here", hidden_here(7));
    run!(runs, "logged", logged());
    runs.value("iterator_here", iterator_here(3).collect::<Vec<_>>());
}

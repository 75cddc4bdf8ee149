//! Values that replace the body's output, and their conversion to the return type.

use std::fmt::{Debug, Display};

use crate::support::{pause, Error, LockError, Runs};

#[derive(Debug)]
pub enum Sweep {
    Done(u64),
    Skipped(LockError),
}

fn skipped(_: LockError) -> Sweep {
    Sweep::Done(0)
}

//@ key = "k", or_else = Sweep::Skipped
pub async fn variant() -> Sweep {
    Sweep::Done(7)
}

//@ key = "k", or_else = Sweep::Skipped
pub fn variant_here() -> Sweep {
    Sweep::Done(7)
}

//@ key = "k", or_else = skipped
pub async fn function() -> Sweep {
    Sweep::Done(7)
}

//@ key = "k", or_else = skipped
pub fn function_here() -> Sweep {
    Sweep::Done(7)
}

//@ key = "k", or_else = |error| Box::new(error)
pub async fn dynamic(id: u64) -> Box<dyn Display> {
    Box::new(id)
}

//@ key = "k", or_else = |error| Box::new(error)
pub fn dynamic_here(id: u64) -> Box<dyn Debug> {
    Box::new(id)
}

//@ key = "k", or_else = |error| Err(Box::new(error))
pub async fn dynamic_error(id: u64) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    Ok(id)
}

//@ key = "k", or_else = |error| Err(Box::new(error))
pub fn dynamic_error_here(id: u64) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    Ok(id)
}

//@ key = "k", or_else = |_| &[]
pub async fn list() -> &'static [u64] {
    &[7]
}

//@ key = "k", or_else = |_| &[]
pub fn list_here() -> &'static [u64] {
    &[7]
}

//@ key = "k", or_else = |_| name
pub async fn borrowed(name: &str) -> &str {
    pause().await;
    &name[1..]
}

//@ key = "k", or_else = |_| name
pub fn borrowed_here(name: &str) -> &str {
    &name[1..]
}

//@ key = "k", or_else = |_| double
pub fn function_pointer_here() -> fn(u64) -> u64 {
    |id| id
}

fn double(id: u64) -> u64 {
    2 * id
}

//@ key = "k", or_else = |_| double
pub async fn function_pointer() -> fn(u64) -> u64 {
    |id| id
}

//@ key = "k", or_else = |error: LockError| error.to_string()
pub async fn annotated(id: u64) -> String {
    id.to_string()
}

//@ key = "k", or_else = move |error| format!("{} {}", fallback, error)
pub fn moving_here(id: u64, fallback: &str) -> String {
    format!("{}{}", id, fallback)
}

//@ key = "k", or_else = { let name = name.clone(); move |_| name }
pub async fn cloned(name: String) -> String {
    name + "!"
}

//@ key = "k", or_else = { let name = name.clone(); move |_| name }
pub fn cloned_here(name: String) -> String {
    name + "!"
}

//@ key = "k", or_else = |_| Default::default()
pub async fn defaulted(id: u64) -> Vec<u64> {
    vec![id]
}

//@ key = "k", or_else = |_| Default::default()
pub fn defaulted_here(id: u64) -> Vec<u64> {
    vec![id]
}

//@ key = "k", or_else = |_| Vec::new()
pub fn inferred_here(id: u64) -> Vec<u64> {
    vec![id]
}

//@ key = "k", or_else = |error| return Err(error.into())
pub fn returned_here(id: u64) -> Result<u64, Error> {
    Ok(id)
}

//@ key = "k", or_else = |error| panic!("{}", error)
pub async fn diverging(id: u64) -> u64 {
    id
}

//@ key = "k", or_else = |error| panic!("{}", error)
pub fn diverging_here(id: u64) -> u64 {
    id
}

//@ key = "k", or_else = |_| 0
pub fn hidden_here(id: u64) -> impl Debug {
    id
}

//@ key = "k", or_else = |_| 0
pub async fn hidden(id: u64) -> impl Debug {
    id
}

//@ key = "k", or_else = |error| { eprintln!("{}", error); }
pub async fn logged() {
    pause().await;
}

//@ key = "k", or_else = |error| { eprintln!("{}", error); }
pub fn logged_here() {}

//@ key = "k", or_else = |_| Ok(None)
pub async fn nested() -> Result<Option<u64>, Error> {
    Ok(Some(7))
}

//@ key = "k", or_else = |_| (0, "none")
pub fn tuple_here(id: u64) -> (u64, &'static str) {
    (id, "some")
}

//@ key = "k", or_else = |_| { Box::new(std::iter::empty()) }
pub fn iterator_here(id: u64) -> Box<dyn Iterator<Item = u64>> {
    Box::new(0..id)
}

//@ key = "k", or_else = |_| { Box::new(std::iter::empty()) }
pub async fn iterator(id: u64) -> Box<dyn Iterator<Item = u64> + Send> {
    Box::new(0..id)
}

pub fn runs(runs: &mut Runs) {
    run!(runs, "variant", variant());
    runs.value("variant_here", variant_here());
    run!(runs, "function", function());
    runs.value("function_here", function_here());
    runs.value("dynamic_here", dynamic_here(7));
    run!(runs, "dynamic_error", dynamic_error(7));
    runs.value("dynamic_error_here", dynamic_error_here(7));
    run!(runs, "list", list());
    runs.value("list_here", list_here());
    run!(runs, "borrowed", borrowed("seven"));
    runs.value("borrowed_here", borrowed_here("seven"));
    runs.value("function_pointer_here", function_pointer_here()(7));
    run!(runs, "annotated", annotated(7));
    runs.value("moving_here", moving_here(7, "x"));
    run!(runs, "cloned", cloned("seven".to_owned()));
    runs.value("cloned_here", cloned_here("seven".to_owned()));
    run!(runs, "defaulted", defaulted(7));
    runs.value("defaulted_here", defaulted_here(7));
    runs.value("inferred_here", inferred_here(7));
    runs.value("returned_here", returned_here(7));
    run!(runs, "diverging", diverging(7));
    runs.value("diverging_here", diverging_here(7));
    runs.value("hidden_here", hidden_here(7));
    run!(runs, "hidden", hidden(7));
    run!(runs, "logged", logged());
    runs.value("logged_here", logged_here());
    run!(runs, "nested", nested());
    runs.value("tuple_here", tuple_here(7));
    runs.value("iterator_here", iterator_here(3).collect::<Vec<_>>());
}

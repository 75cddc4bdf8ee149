//! Values used after a move, or borrowed for too long.

use crate::support::{assert_send, pause, Error};

//@ key = "k"
pub async fn moved(name: String) -> Result<usize, Error> {
    drop(name);
    Ok(name.len())
}

//@ key = "k"
pub fn moved_here(name: String) -> Result<usize, Error> {
    drop(name);
    Ok(name.len())
}

//@ key = "k"
pub async fn immutable(list: Vec<u64>) -> Result<usize, Error> {
    list.push(1);
    Ok(list.len())
}

//@ key = "k"
pub async fn local_escapes<'a>(id: &'a u64) -> Result<&'a u64, Error> {
    let local = *id;
    Ok(&local)
}

//@ key = "k"
pub async fn borrowed_twice(list: &mut Vec<u64>) -> Result<usize, Error> {
    let first = &mut *list;
    let second = &mut *list;
    first.push(1);
    Ok(second.len())
}

//@ key = "k"
pub async fn holds_a_cell(id: u64) -> Result<u64, Error> {
    let cell = std::rc::Rc::new(id);
    pause().await;
    Ok(*cell)
}

pub fn is_not_send() {
    drop(assert_send(holds_a_cell(7)));
}

//@ key = "k"
pub async fn missing_end(id: u64) -> Result<u64, Error> {
    pause().await;
}

//@ key = "k"
pub fn missing_end_here(id: u64) -> Result<u64, Error> {
    drop(id);
}

//@ key = "k"
pub fn awaits_here(id: u64) -> Result<u64, Error> {
    pause().await;
    Ok(id)
}

//@ key = "k"
pub async fn unknown_name(id: u64) -> Result<u64, Error> {
    Ok(id + unknown)
}

//@ key = "k"
pub async fn no_such_method(id: u64) -> Result<u64, Error> {
    Ok(id.no_such_method())
}

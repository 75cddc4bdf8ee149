//! Values used after a move, or borrowed for too long.

use crate::support::{assert_send, pause, Error};

//@ key = "k"
pub async fn moved(name: String) -> Result<usize, Error> {
    drop(name);
    Ok(name.len())
}

//@ key = "k"
pub async fn local_escapes<'a>(id: &'a u64) -> Result<&'a u64, Error> {
    let local = *id;
    Ok(&local)
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

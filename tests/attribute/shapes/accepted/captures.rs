//! Futures that keep only what the body uses.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::support::{assert_send, assert_static, pause, Error, Noisy, Runs};

//@ key = "k"
pub fn unused_reference(_name: &str, id: u64) -> impl Future<Output = Result<u64, Error>> + 'static + Unused {
    async move {
        pause().await;
        Ok(id)
    }
}

pub trait Unused {}
impl<T> Unused for T {}

//@ key = "k"
pub fn boxed_unused_reference(_name: &str, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, Error>> + Send + 'static>> {
    Box::pin(async move { Ok(id) })
}

//@ key = "k"
pub fn boxed_unused_local(_name: Rc<Cell<u64>>, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>> {
    Box::pin(async move { Ok(id) })
}

//@ key = "k"
pub fn boxed_unused_owner(noisy: Noisy, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>> {
    Box::pin(async move { Ok(id) })
}

//@ key = "k:<name>"
pub fn in_the_key_alone<'a>(name: &'a str, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, Error>> + Send + 'a>> {
    Box::pin(async move { Ok(id + name.len() as u64) })
}

pub struct Client {
    calls: Cell<u64>,
}

impl Client {
    //@ key = "k"
    pub fn detached(&self, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>> {
        Box::pin(async move { Ok(id) })
    }

    //@ key = "k"
    pub fn attached<'a>(&'a self, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, Error>> + 'a>> {
        Box::pin(async move {
            self.calls.set(self.calls.get() + 1);
            Ok(id + self.calls.get())
        })
    }
}

#[async_trait::async_trait]
pub trait Charges {
    async fn refund(&self, _: Noisy, id: u64) -> Result<u64, Error>;
}

#[async_trait::async_trait]
impl Charges for u64 {
    //@ key = "k"
    async fn refund(&self, _: Noisy, id: u64) -> Result<u64, Error> {
        pause().await;
        Ok(id + self)
    }
}

#[async_trait::async_trait(?Send)]
pub trait Local {
    async fn local(&self, shared: Rc<Cell<u64>>) -> Result<u64, Error>;
}

#[async_trait::async_trait(?Send)]
impl Local for u64 {
    //@ key = "k"
    async fn local(&self, shared: Rc<Cell<u64>>) -> Result<u64, Error> {
        pause().await;
        Ok(shared.get() + self)
    }
}

pub fn probes() {
    let client = Client { calls: Cell::new(0) };
    drop(assert_static(assert_send(client.detached(7))));
    drop(assert_static(assert_send(boxed_unused_reference("seven", 7))));
    drop(assert_static(assert_send(boxed_unused_local(Rc::new(Cell::new(7)), 7))));
}

pub fn runs(runs: &mut Runs) {
    let client = || Client { calls: Cell::new(0) };
    run!(runs, "unused_reference", unused_reference("seven", 7));
    run!(runs, "boxed_unused_reference", boxed_unused_reference("seven", 7));
    run!(runs, "boxed_unused_local", boxed_unused_local(Rc::new(Cell::new(7)), 7));
    run!(runs, "boxed_unused_owner", boxed_unused_owner(Noisy("argument"), 7));
    run!(runs, "in_the_key_alone", in_the_key_alone("seven", 7));
    run!(runs, "detached", client().detached(7));
    run!(runs, "attached", client().attached(7));
    run!(runs, "refund", 1.refund(Noisy("argument"), 7));
    run!(runs, "local", 1.local(Rc::new(Cell::new(7))));
}

//! Receivers, parameters and return types.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::support::{assert_static, pause, say, Error, LockError, Noisy, Outcome, Runs};

#[derive(Clone, Copy, Debug)]
pub struct Shop {
    base: u64,
}

impl Shop {
    fn new() -> Self {
        Self { base: 5 }
    }

    //@ key = "k"
    pub async fn associated(id: u64) -> Result<u64, Error> {
        pause().await;
        Ok(id)
    }

    //@ key = "<self.base>"
    pub async fn shared(&self, name: &str) -> Result<usize, Error> {
        pause().await;
        Ok(name.len() + usize::from(self.base > 1))
    }

    //@ key = "<self.base>"
    pub async fn mutable(&mut self, more: u64) -> Result<u64, Error> {
        pause().await;
        self.base += more;
        Ok(self.base)
    }

    //@ key = "<self.base>"
    pub fn mutable_here(&mut self, more: u64) -> Result<u64, Error> {
        self.base += more;
        Ok(self.base)
    }

    //@ key = "<self.base>"
    pub async fn owned_mut(mut self, more: u64) -> Result<Self, Error> {
        self.base += more;
        Ok(self)
    }

    //@ key = "<self.base>"
    pub fn owned_mut_here(mut self, more: u64) -> Result<Self, Error> {
        self.base += more;
        Ok(self)
    }

    //@ key = "<self.base>"
    pub async fn boxed_self(self: Box<Self>) -> Result<u64, Error> {
        Ok(self.base)
    }

    //@ key = "<self.base>"
    pub async fn counted_here(self: Rc<Self>) -> Result<u64, Error> {
        pause().await;
        Ok(self.base)
    }

    //@ key = "<self.base>"
    pub async fn counted_ref(self: &Arc<Self>) -> Result<u64, Error> {
        pause().await;
        Ok(self.base)
    }

    //@ key = "<self.base>"
    pub async fn pinned(self: Pin<&mut Self>) -> Result<u64, Error> {
        pause().await;
        Ok(self.base)
    }

    //@ key = "<self.base>"
    pub fn boxed<'a>(&'a self, name: &'a str) -> Pin<Box<dyn Future<Output = Outcome<&'a str>> + Send + 'a>> {
        Box::pin(async move {
            pause().await;
            Ok(&name[usize::from(self.base > 1)..])
        })
    }
}

#[async_trait::async_trait]
pub trait Sells: Sized {
    async fn shared(&self, pair: (u64, u64)) -> Result<u64, Error>;
    async fn mutable(&mut self, noisy: Noisy) -> u64;
    async fn owned(self, list: [u64; 3]) -> Result<Box<dyn Debug + Send>, Error>;
    async fn counted<T: Into<u64> + Send + Sync>(self: Arc<Self>, id: T) -> Result<u64, Error>;
}

#[async_trait::async_trait]
impl Sells for Shop {
    //@ key = "<self.base>:<left>"
    async fn shared(&self, (mut left, _): (u64, u64)) -> Result<u64, Error> {
        pause().await;
        left += self.base;
        Ok(left)
    }

    //@ key = "k", on_error = |_| 0
    async fn mutable(&mut self, noisy: Noisy) -> u64 {
        self.base += noisy.0.len() as u64;
        self.base
    }

    //@ key = "k"
    async fn owned(self, list: [u64; 3]) -> Result<Box<dyn Debug + Send>, Error> {
        Ok(Box::new(self.base + list[0]))
    }

    //@ key = "k"
    async fn counted<T: Into<u64> + Send + Sync>(self: Arc<Self>, id: T) -> Result<u64, Error> {
        Ok(self.base + id.into())
    }
}

//@ key = "k"
pub async fn by_ref_mut(ref mut list: Vec<u64>, double: impl Fn(u64) -> u64 + Send + Sync) -> Result<u64, Error> {
    list.push(double(7));
    Ok(list.iter().sum())
}

//@ key = "k"
pub async fn unsized_and_constant<T: AsRef<str> + ?Sized, const N: usize>(name: &T, list: [u64; N]) -> Result<usize, Error> {
    pause().await;
    Ok(name.as_ref().len() + list.len())
}

//@ key = "k"
pub async fn two_owners(one: Noisy, _two: Noisy) -> Result<usize, Error> {
    let _three = Noisy("three");
    drop(one);
    say("body");
    Ok(1)
}

//@ key = "k"
pub fn two_owners_here(one: Noisy, _two: Noisy) -> Result<usize, Error> {
    let _three = Noisy("three");
    drop(one);
    say("body");
    Ok(1)
}

//@ key = "k"
pub async fn mutex_guard(guard: MutexGuard<'_, u64>, id: std::future::Ready<u64>) -> Result<u64, Error> {
    let held = *guard;
    drop(guard);
    Ok(held + id.await)
}

//@ key = "k"
pub async unsafe fn danger(id: *const u64) -> Result<u64, Error> {
    Ok(unsafe { *id })
}

//@ key = "k"
pub unsafe fn danger_here(id: *const u64) -> Result<u64, Error> {
    Ok(unsafe { *id })
}

//@ key = "k"
pub fn opaque(noisy: Noisy, id: u64) -> impl Future<Output = Result<u64, Error>> {
    async move {
        pause().await;
        Ok(id + noisy.0.len() as u64)
    }
}

//@ key = "k"
pub async fn lock_error(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

//@ key = "k"
pub async fn any_error(id: u64) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    if id > 1 {
        Err("many")?;
    }
    Ok(1)
}

//@ key = "k"
pub async fn any_error_here(id: u64) -> Result<u64, Box<dyn std::error::Error>> {
    if id > 100 {
        return Err(Box::new(Error::Other("many")));
    }
    Ok(1)
}

//@ key = "k", on_error = |_| None
pub async fn option(id: u64) -> Option<u64> {
    pause().await;
    Some(id)
}

//@ key = "k", on_error = |_| &[]
pub async fn static_slice(id: u64) -> &'static [u64] {
    if id > 100 { &[1] } else { &[1, 2] }
}

//@ key = "k"
pub async fn hidden(id: u64) -> Result<impl Debug, Error> {
    Ok(id)
}

pub fn runs(runs: &mut Runs) {
    let id = 7;
    let shop = Shop::new;
    run!(runs, "associated", assert_static(Shop::associated(7)));
    run!(runs, "shared", shop().shared("seven"));
    run!(runs, "mutable", shop().mutable(1));
    runs.value("mutable_here", shop().mutable_here(1));
    run!(runs, "owned_mut", assert_static(shop().owned_mut(1)));
    runs.value("owned_mut_here", shop().owned_mut_here(1));
    run!(runs, "boxed_self", Box::new(shop()).boxed_self());
    run!(runs, "counted_here", Rc::new(shop()).counted_here());
    run!(runs, "counted_ref", Arc::new(shop()).counted_ref());
    run!(runs, "pinned", Pin::new(&mut shop()).pinned());
    run!(runs, "boxed", shop().boxed("seven"));
    run!(runs, "Sells::shared", Sells::shared(&shop(), (3, 4)));
    run!(runs, "Sells::mutable", Sells::mutable(&mut shop(), Noisy("argument")));
    run!(runs, "Sells::owned", shop().owned([1, 2, 3]));
    run!(runs, "Sells::counted", Arc::new(shop()).counted(7_u32));
    run!(runs, "by_ref_mut", by_ref_mut(vec![1], |id| 2 * id));
    run!(runs, "unsized_and_constant", unsized_and_constant("seven", [1, 2, 3]));
    run!(runs, "two_owners", two_owners(Noisy("one"), Noisy("two")));
    runs.value("two_owners_here", two_owners_here(Noisy("one"), Noisy("two")));
    run!(runs, "mutex_guard", mutex_guard(Mutex::new(3).lock().unwrap(), std::future::ready(1)));
    run!(runs, "danger", unsafe { danger(&id) });
    runs.value("danger_here", unsafe { danger_here(&id) });
    run!(runs, "opaque", opaque(Noisy("argument"), 7));
    run!(runs, "lock_error", lock_error(7));
    run!(runs, "any_error", any_error(7));
    run!(runs, "any_error_here", any_error_here(7));
    run!(runs, "option", option(7));
    run!(runs, "static_slice", static_slice(7));
    run!(runs, "hidden", hidden(7));
}

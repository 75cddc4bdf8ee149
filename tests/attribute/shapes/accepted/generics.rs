//! Generics, lifetimes, associated types, traits.

use std::borrow::Cow;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use crate::support::{assert_send, pause, Error, Runs};

//@ key = "k:<id>"
pub async fn displayed<T: Display + Clone>(id: T) -> Result<T, Error> {
    pause().await;
    Ok(id.clone())
}

//@ key = "k"
pub async fn bounded<T, U>(t: T, u: U) -> Result<String, Error>
where
    T: IntoIterator<Item = U>,
    U: Display + PartialEq,
{
    let found = t.into_iter().any(|each| each == u);
    Ok(format!("{} {}", u, found))
}

//@ key = "k"
pub async fn higher_ranked_async<F>(find: F, text: &str) -> Result<usize, Error>
where
    F: for<'a> Fn(&'a str) -> Pin<Box<dyn Future<Output = usize> + Send + 'a>>,
{
    Ok(find(text).await)
}

//@ key = "k"
pub async fn two_lifetimes<'a, 'b: 'a>(one: &'a str, two: &'b str) -> Result<&'a str, Error> {
    pause().await;
    Ok(if one.len() > two.len() { one } else { two })
}

//@ key = "k"
pub async fn anonymous(text: Cow<'_, str>, ids: &mut dyn Iterator<Item = u64>) -> Result<u64, Error> {
    let ids: u64 = ids.sum();
    Ok(ids + text.len() as u64)
}

//@ key = "k"
pub async fn elided(text: &str) -> Result<&str, Error> {
    pause().await;
    text.get(1..).ok_or(Error::Other("short"))
}

//@ key = "k"
pub fn mutable_back<'a>(list: &'a mut Vec<u64>) -> Result<&'a mut u64, Error> {
    list.push(7);
    list.last_mut().ok_or(Error::Other("empty"))
}

pub struct Shelf<'a, T, const N: usize> {
    name: &'a str,
    kept: [T; N],
}

impl<'a, T: Debug + Clone, const N: usize> Shelf<'a, T, N> {
    //@ key = "<self.name>"
    pub async fn name(&self) -> Result<&'a str, Error> {
        pause().await;
        Ok(self.name)
    }

    //@ key = "k"
    pub async fn again(self) -> Result<Self, Error> {
        Ok(Self { name: "again", ..self })
    }

    //@ key = "k", on_error = |_| self
    pub fn itself(&self) -> &Self {
        self
    }
}

pub trait Store {
    type Id: Display + Debug + Clone + Default;
    type Row<'a>: Debug
    where
        Self: 'a;

    fn row(&self) -> Self::Row<'_>;

    //@ key = "k"
    fn fresh() -> Result<Self::Id, Error> {
        Ok(Self::Id::default())
    }

    //@ key = "k:<id>"
    fn take(&mut self, id: Self::Id) -> Result<(Self::Row<'_>, Self::Id), Error> {
        Ok((self.row(), id))
    }
}

#[derive(Debug)]
pub struct Memory(String);

impl Store for Memory {
    type Id = u64;
    type Row<'a> = &'a str;

    fn row(&self) -> &str {
        &self.0
    }
}

pub struct Phantom<T>(PhantomData<T>);

impl<T> Phantom<T> {
    //@ key = "k"
    pub async fn empty(&self) -> Result<(), Error> {
        pause().await;
        Ok(())
    }
}

impl<T> Drop for Phantom<T> {
    //@ key = "k", on_error = |_| ()
    fn drop(&mut self) {
        crate::support::say("phantom");
    }
}

impl std::str::FromStr for Memory {
    type Err = Error;

    //@ key = "k:<text>"
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

pub fn is_send<T: Display + Clone + Send + Sync>(id: T) {
    drop(assert_send(displayed(id)));
}

pub fn is_send_for_any<'a>(one: &'a str) -> impl Future<Output = Result<&'a str, Error>> + Send + 'a {
    assert_send(two_lifetimes(one, "two"))
}

pub fn boxed_send(text: &str) -> Pin<Box<dyn Future<Output = Result<&str, Error>> + Send + '_>> {
    Box::pin(elided(text))
}

pub fn runs(runs: &mut Runs) {
    run!(runs, "displayed", displayed(7));
    run!(runs, "bounded", bounded(vec![1, 2], 2));
    run!(runs, "higher_ranked_async", higher_ranked_async(|text| Box::pin(async move { text.len() }), "seven"));
    run!(runs, "two_lifetimes", two_lifetimes("one", "three"));
    run!(runs, "anonymous", anonymous(Cow::Borrowed("seven"), &mut (0..4)));
    run!(runs, "elided", elided("seven"));
    runs.value("mutable_back", mutable_back(&mut vec![1]));
    let shelf = || Shelf { name: "shelf", kept: [1, 2] };
    run!(runs, "Shelf::name", shelf().name());
    runs.value("Shelf::itself", shelf().itself().kept);
    let mut memory: Memory = "row".parse().unwrap();
    runs.value("fresh", Memory::fresh());
    runs.value("take", Store::take(&mut memory, 7));
    run!(runs, "empty", Phantom::<String>(PhantomData).empty());
    run!(runs, "is_send_for_any", is_send_for_any("one"));
    run!(runs, "boxed_send", boxed_send("seven"));
}

//! Generics, lifetimes, associated types, traits.

use std::borrow::Cow;
use std::collections::BTreeMap;
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
pub fn bounded_here<T, U>(t: T, u: U) -> Result<String, Error>
where
    T: IntoIterator<Item = U>,
    U: Display + PartialEq,
{
    let found = t.into_iter().any(|each| each == u);
    Ok(format!("{} {}", u, found))
}

//@ key = "k"
pub async fn constants<const N: usize, const M: usize>(list: [[u8; N]; M]) -> Result<usize, Error> {
    Ok(N * M + list.len())
}

//@ key = "k"
pub fn higher_ranked<F>(find: F) -> Result<usize, Error>
where
    F: for<'a> Fn(&'a str) -> &'a str,
{
    Ok(find("seven").len())
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
pub fn two_lifetimes_here<'a, 'b: 'a>(one: &'a str, two: &'b str) -> Result<&'a str, Error> {
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

//@ key = "k"
pub async fn mutable_back_async(list: &mut Vec<u64>) -> Result<&mut u64, Error> {
    list.push(7);
    list.last_mut().ok_or(Error::Other("empty"))
}

pub struct Shelf<'a, T, const N: usize> {
    name: &'a str,
    kept: [T; N],
}

impl<'a, T: Debug + Clone, const N: usize> Shelf<'a, T, N> {
    const SIZE: usize = N + 1;

    //@ key = "<self.name>"
    pub async fn name(&self) -> Result<&'a str, Error> {
        pause().await;
        Ok(self.name)
    }

    //@ key = "<self.name>"
    pub fn name_here(&self) -> Result<&'a str, Error> {
        Ok(self.name)
    }

    //@ key = "k"
    pub async fn first(&self) -> Result<Option<&T>, Error> {
        Ok(self.kept.first())
    }

    //@ key = "k"
    pub async fn mapped<U, F: FnMut(T) -> U>(&self, map: F) -> Result<Vec<U>, Error> {
        Ok(self.kept.iter().cloned().map(map).collect())
    }

    //@ key = "k"
    pub fn sized() -> Result<usize, Error> {
        Ok(Self::SIZE)
    }

    //@ key = "k"
    pub async fn again(self) -> Result<Self, Error> {
        Ok(Self { name: "again", ..self })
    }

    //@ key = "k", or_else = |_| self
    pub fn itself(&self) -> &Self {
        self
    }
}

pub trait Store {
    type Id: Display + Debug + Clone + Default;
    type Row<'a>: Debug
    where
        Self: 'a;
    const NAME: &'static str;

    fn row(&self) -> Self::Row<'_>;

    //@ key = "k"
    fn fresh() -> Result<Self::Id, Error> {
        Ok(Self::Id::default())
    }

    //@ key = "k"
    fn described(&self) -> Result<String, Error>
    where
        Self: Debug,
    {
        Ok(format!("{:?} {}", self, Self::NAME))
    }

    //@ key = "k:<id>"
    fn take(&mut self, id: Self::Id) -> Result<(Self::Row<'_>, Self::Id), Error> {
        Ok((self.row(), id))
    }
}

#[derive(Debug)]
pub struct Memory(BTreeMap<u64, String>);

impl Store for Memory {
    type Id = u64;
    type Row<'a> = &'a str;
    const NAME: &'static str = "memory";

    fn row(&self) -> &str {
        self.0.values().next().map_or("", |row| row)
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

impl<T> Display for Phantom<T>
where
    T: Default + Display,
{
    //@ key = "k", or_else = |_| Err(std::fmt::Error)
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", T::default())
    }
}

impl<T> Drop for Phantom<T> {
    //@ key = "k", or_else = |_| ()
    fn drop(&mut self) {
        crate::support::say("phantom");
    }
}

impl std::str::FromStr for Memory {
    type Err = Error;

    //@ key = "k:<text>"
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut rows = BTreeMap::new();
        rows.insert(1, text.to_owned());
        Ok(Self(rows))
    }
}

impl Iterator for Memory {
    type Item = String;

    //@ key = "k", or_else = |_| None
    fn next(&mut self) -> Option<Self::Item> {
        let key = *self.0.keys().next()?;
        self.0.remove(&key)
    }
}

pub trait Blanket {
    //@ key = "k"
    fn shown(&self) -> Result<String, Error>
    where
        Self: Display,
    {
        Ok(self.to_string())
    }
}

impl<T: ?Sized> Blanket for T {}

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
    runs.value("bounded_here", bounded_here(vec![1, 2], 2));
    run!(runs, "constants", constants([[1, 2], [3, 4], [5, 6]]));
    runs.value("higher_ranked", higher_ranked(|text| &text[1..]));
    run!(runs, "higher_ranked_async", higher_ranked_async(|text| Box::pin(async move { text.len() }), "seven"));
    run!(runs, "two_lifetimes", two_lifetimes("one", "three"));
    runs.value("two_lifetimes_here", two_lifetimes_here("one", "three"));
    run!(runs, "anonymous", anonymous(Cow::Borrowed("seven"), &mut (0..4)));
    run!(runs, "elided", elided("seven"));
    runs.value("mutable_back", mutable_back(&mut vec![1]));
    run!(runs, "mutable_back_async", mutable_back_async(&mut vec![1]));
    let shelf = || Shelf { name: "shelf", kept: [1, 2] };
    run!(runs, "Shelf::name", shelf().name());
    runs.value("Shelf::name_here", shelf().name_here());
    run!(runs, "Shelf::first", shelf().first());
    run!(runs, "Shelf::mapped", shelf().mapped(|id| id + 1));
    runs.value("Shelf::sized", Shelf::<u8, 4>::sized());
    runs.value("Shelf::itself", shelf().itself().kept);
    let mut memory: Memory = "row".parse().unwrap();
    runs.value("fresh", Memory::fresh());
    runs.value("described", memory.described());
    runs.value("take", Store::take(&mut memory, 7));
    runs.value("next", memory.next());
    run!(runs, "empty", Phantom::<String>(PhantomData).empty());
    runs.value("fmt", Phantom::<u64>(PhantomData).to_string());
    runs.value("shown", 7.shown());
    run!(runs, "is_send_for_any", is_send_for_any("one"));
    run!(runs, "boxed_send", boxed_send("seven"));
}

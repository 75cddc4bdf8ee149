//! The attribute above and below `#[instrument]`.

use tracing::{instrument, Span};

use crate::support::{pause, Error, Noisy, Runs};

//@ key = "k:<id>"
#[instrument]
pub async fn above(id: u64, name: &str) -> Result<u64, Error> {
    pause().await;
    Ok(id + name.len() as u64)
}

#[instrument]
//@ key = "k:<id>"
pub async fn below(id: u64, name: &str) -> Result<u64, Error> {
    pause().await;
    Ok(id + name.len() as u64)
}

//@ key = "k:<id>"
#[instrument]
pub fn above_here(id: u64, name: &str) -> Result<u64, Error> {
    Ok(id + name.len() as u64)
}

//@ key = "k"
#[instrument]
pub async fn unused_above(id: u64, name: &str) -> Result<u64, Error> {
    Ok(1)
}

//@ key = "k"
#[instrument(skip_all, fields(id = id, length = name.len()))]
pub async fn fields_alone(id: u64, name: String) -> Result<u64, Error> {
    Ok(1)
}

//@ key = "k"
#[instrument(follows_from = &causes)]
pub async fn following_borrowed(causes: Vec<Span>, id: u64) -> Result<u64, Error> {
    Ok(id)
}

//@ key = "k"
#[instrument(parent = &parent, skip(parent))]
pub fn with_parent_here(parent: Span, id: u64) -> Result<u64, Error> {
    Ok(id)
}

//@ key = "k"
#[instrument(parent = parent, skip_all)]
pub async fn with_parent_moved(parent: Option<tracing::Id>, id: u64) -> Result<u64, Error> {
    Ok(id)
}

//@ key = "k"
#[instrument(err)]
pub async fn with_error(id: u64) -> Result<u64, Error> {
    if id > 1 {
        Err("many")?;
    }
    Ok(id)
}

#[instrument(ret, err(Debug), level = "debug", name = "other", target = "somewhere")]
//@ key = "k"
pub async fn with_all(id: u64) -> Result<u64, Error> {
    Ok(id)
}

pub struct Shop {
    name: String,
}

impl Shop {
    fn new() -> Self {
        Self { name: "shop".to_owned() }
    }

    //@ key = "<self.name>"
    #[instrument(skip(self, noisy))]
    pub async fn owned(self, noisy: Noisy) -> Result<usize, Error> {
        Ok(self.name.len())
    }
}

#[async_trait::async_trait]
pub trait Sells {
    async fn sell(&self, id: u64) -> Result<u64, Error>;
    async fn resell(&self, id: u64) -> Result<u64, Error>;

    //@ key = "k:<id>"
    #[instrument(skip(self))]
    async fn default(&self, id: u64) -> Result<u64, Error> {
        self.sell(id).await
    }
}

#[async_trait::async_trait]
impl Sells for Shop {
    //@ key = "k:<id>"
    #[instrument(skip(self))]
    async fn sell(&self, id: u64) -> Result<u64, Error> {
        pause().await;
        Ok(id)
    }

    #[instrument(skip(self))]
    //@ key = "k:<id>"
    async fn resell(&self, id: u64) -> Result<u64, Error> {
        pause().await;
        Ok(id)
    }
}

//@ key = "k"
#[instrument]
pub async fn patterns((left, right): (u64, u64), [first, ..]: [u64; 3]) -> Result<u64, Error> {
    Ok(left + right + first)
}

//@ key = "k"
#[instrument]
pub fn boxed(id: u64) -> std::pin::Pin<Box<dyn std::future::Future<Output = Result<u64, Error>> + Send>> {
    Box::pin(async move { Ok(id) })
}

//@ key = "k", on_error = |_| 0
#[instrument]
pub async fn mutable(mut id: u64) -> u64 {
    id += 1;
    id
}

pub fn runs(runs: &mut Runs) {
    run!(runs, "above", above(7, "seven"));
    run!(runs, "below", below(7, "seven"));
    runs.value("above_here", above_here(7, "seven"));
    run!(runs, "unused_above", unused_above(7, "seven"));
    run!(runs, "fields_alone", fields_alone(7, "seven".to_owned()));
    run!(runs, "following_borrowed", following_borrowed(Vec::new(), 7));
    runs.value("with_parent_here", with_parent_here(Span::none(), 7));
    run!(runs, "with_parent_moved", with_parent_moved(None, 7));
    run!(runs, "with_error", with_error(7));
    run!(runs, "with_all", with_all(7));
    run!(runs, "owned", Shop::new().owned(Noisy("argument")));
    run!(runs, "sell", Shop::new().sell(7));
    run!(runs, "resell", Shop::new().resell(7));
    run!(runs, "default", Shop::new().default(7));
    run!(runs, "patterns", patterns((1, 2), [3, 4, 5]));
    run!(runs, "boxed", boxed(7));
    run!(runs, "mutable", mutable(7));
}

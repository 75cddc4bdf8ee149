#![deny(warnings)]
//! Every kind of signature; each body finds its lock held.

// What the attribute writes must not meet these.
mod core {}
mod std {}
#[allow(dead_code)]
struct Option;

use ::std::{boxed::Box, error::Error, fmt::Display, num::ParseIntError, pin::Pin, sync::Arc};

use rlock_core::{LockClient, LockError, current, distributed_lock};

#[derive(Debug)]
enum Fail {
    Lock,
    Number,
}

impl From<LockError> for Fail {
    fn from(_: LockError) -> Self {
        Self::Lock
    }
}

impl From<ParseIntError> for Fail {
    fn from(_: ParseIntError) -> Self {
        Self::Number
    }
}

type Outcome<T = ()> = Result<T, Fail>;

fn held() {
    assert!(current().is_some(), "the body runs without its lock");
}

fn is_send<T: Send>(future: T) -> T {
    future
}

struct Order {
    id: u64,
    lines: (u8, u8),
}

impl Order {
    fn number(&self) -> u64 {
        self.id
    }
}

#[distributed_lock(key = "free:<id>", lease = "30s")]
async fn free(id: u64) -> Outcome<u64> {
    held();
    Ok(id)
}

#[distributed_lock(key = "moved:<name>")]
async fn moved(name: String) -> Outcome<String> {
    held();
    let taken = name;
    Ok(taken)
}

#[distributed_lock(key = "generic:<value>")]
async fn generic<T>(value: T) -> Outcome<T>
where
    T: Display + Send,
{
    held();
    Ok(value)
}

#[distributed_lock(key = "const:<fill>")]
async fn const_generic<const N: usize>(fill: u8) -> Outcome<[u8; N]> {
    held();
    Ok([fill; N])
}

#[distributed_lock(key = "lifetime:<text>")]
async fn lifetime<'a>(text: &'a str, _other: &str) -> Outcome<&'a str> {
    held();
    Ok(&text[1..])
}

#[distributed_lock(key = "impl:<value>")]
async fn impl_argument(value: impl Display + Send) -> Outcome<String> {
    held();
    Ok(value.to_string())
}

#[distributed_lock(key = "impl:<count>")]
async fn impl_result(count: u8) -> Result<impl Iterator<Item = u8>, Fail> {
    held();
    let more: u8 = "1".parse()?;
    Ok(0..count + more)
}

#[distributed_lock(key = "boxed:<number>")]
async fn boxed(number: u8) -> Result<Box<dyn Display + Send>, Box<dyn Error + Send + Sync>> {
    held();
    if number > 3 {
        return Ok(Box::new(number));
    }
    "5".parse::<u8>()?;
    Ok(Box::new("text"))
}

#[distributed_lock(key = "<first>:<third>:<id>:<dots>:<line.1>")]
async fn patterns(
    (first, _): (u8, u8),
    [second, third]: [u8; 2],
    Order { id, lines: line @ (left, _) }: Order,
    &dots: &u8,
    mut total: u8,
    _: u8,
) -> Outcome<u8> {
    held();
    total += first + second + third + left + line.1 + dots;
    assert_eq!(id, 7);
    Ok(total)
}

#[distributed_lock(key = "order:<order.id>:<order.number()>:<order.lines.0>")]
async fn paths(order: Order) -> Outcome<Order> {
    held();
    Ok(order)
}

#[distributed_lock(key = "cfg:<there>")]
async fn conditional(there: u8, #[cfg(any())] gone: u8) -> Outcome<u8> {
    held();
    #[cfg(any())]
    return Ok(gone);
    Ok(there)
}

#[distributed_lock(key = "raw:<r#type>")]
async fn raw(r#type: u8) -> Outcome<u8> {
    held();
    Ok(r#type)
}

#[distributed_lock(key = "unsafe")]
async unsafe fn dangerous(number: u8) -> Outcome<u8> {
    held();
    Ok(number)
}

#[distributed_lock(key = "down:<number>")]
async fn recursive(number: u8) -> Outcome<u8> {
    held();
    if number == 0 { Ok(0) } else { Ok(recursive(number - 1).await? + 1) }
}

#[distributed_lock(key = "below")]
#[distributed_lock(key = "above")]
async fn stacked() -> Outcome {
    held();
    Ok(())
}

struct Service {
    locks: LockClient,
    shared: Arc<LockClient>,
    tenant: String,
    calls: u32,
}

impl Service {
    #[distributed_lock(key = "new:<tenant>")]
    async fn new(tenant: &str, locks: &LockClient) -> Outcome<Self> {
        held();
        let shared = Arc::new(locks.clone());
        Ok(Self { locks: locks.clone(), shared, tenant: tenant.to_owned(), calls: 0 })
    }

    #[distributed_lock(key = "<self.tenant>:<order.id>", client = self.locks)]
    async fn shared(&self, order: Order) -> Outcome<u64> {
        held();
        let order = order;
        Ok(order.id)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.shared)]
    async fn exclusive(&mut self) -> Outcome<u32> {
        held();
        self.calls += 1;
        Ok(self.calls)
    }

    #[distributed_lock(key = "<self.tenant>")]
    async fn pinned(mut self: Pin<&mut Self>) -> Outcome<u32> {
        held();
        self.calls += 1;
        Ok(self.calls)
    }

    #[distributed_lock(key = "<self.tenant>")]
    async fn borrowed(&self) -> Outcome<&str> {
        held();
        Ok(&self.tenant)
    }

    #[distributed_lock(key = "<self.tenant>", client = &self.locks)]
    async fn consumed(mut self) -> Outcome<Self> {
        held();
        self.calls = 0;
        Ok(self)
    }

    #[distributed_lock(key = "<self.tenant>", client = *self.shared)]
    async fn counted(self: Arc<Self>) -> Outcome<String> {
        held();
        Ok(self.tenant.clone())
    }
}

struct Wrapped<T>(T);

impl<T: Display + Send + Sync> Wrapped<T> {
    #[distributed_lock(key = "wrapped:<self.0>")]
    async fn get(&self) -> Outcome<&T> {
        held();
        Ok(&self.0)
    }
}

trait Native {
    async fn required(&self, number: u8) -> Outcome<u8>;

    #[distributed_lock(key = "provided:<number>")]
    async fn provided(&self, number: u8) -> Outcome<u8> {
        held();
        self.required(number).await
    }
}

impl Native for Service {
    #[distributed_lock(key = "required:<number>", client = self.locks)]
    async fn required(&self, number: u8) -> Outcome<u8> {
        held();
        Ok(number)
    }
}

fn order() -> Order {
    Order { id: 7, lines: (1, 2) }
}

async fn all(client: &LockClient) -> Outcome {
    is_send(free(1)).await?;
    is_send(moved("name".to_owned())).await?;
    is_send(generic(2)).await?;
    is_send(const_generic::<3>(0)).await?;
    assert_eq!(is_send(lifetime("text", "")).await?, "ext");
    is_send(impl_argument(5)).await?;
    assert_eq!(is_send(impl_result(3)).await?.count(), 4);
    assert_eq!(is_send(boxed(1)).await.unwrap().to_string(), "text");
    assert_eq!(is_send(patterns((1, 2), [3, 4], order(), &5, 6, 7)).await?, 22);
    is_send(paths(order())).await?;
    conditional(1).await?;
    raw(1).await?;
    unsafe { dangerous(1) }.await?;
    assert_eq!(is_send(recursive(5)).await?, 5);
    stacked().await?;

    let mut service = is_send(Service::new("tenant", client)).await?;
    is_send(service.shared(order())).await?;
    is_send(service.exclusive()).await?;
    is_send(Pin::new(&mut service).pinned()).await?;
    is_send(service.borrowed()).await?;
    is_send(service.required(1)).await?;
    service.provided(2).await?;
    let service = is_send(service.consumed()).await?;
    is_send(Arc::new(service).counted()).await?;
    is_send(Wrapped(1).get()).await?;
    Ok(())
}

#[tokio::main]
async fn main() {
    let client = LockClient::in_memory();
    client.scope(all(&client)).await.unwrap();
}

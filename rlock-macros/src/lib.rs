//! The attribute [`macro@distributed_lock`] of `rlock-core`, which re-exports it: depend on
//! `rlock-core`, and write `use rlock_core::distributed_lock`.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as TokenStream2;

mod args;
mod check;
mod duration;
mod errors;
mod expand;
mod fallback;
mod mention;
mod nearest;
mod signature;
mod template;

/// Runs an `async fn` under a distributed lock.
///
/// ```
/// use rlock_core::{LockError, distributed_lock};
///
/// #[distributed_lock(key = "order:<id>", lease = "30s")]
/// async fn pay(id: u64) -> Result<String, LockError> {
///     Ok(format!("order {id} is paid"))
/// }
/// ```
///
/// While `pay(42)` runs, nothing else in the fleet runs that locks `order:42`. A nested call that
/// locks the same key enters. Whatever ends the body, be it a return, `?`, a panic or a
/// cancellation, its values and the named arguments are dropped and then the lock is given back.
///
/// # Options
///
/// | option | value | default | meaning |
/// | --- | --- | --- | --- |
/// | `key` | a template, or a list of them | required | what is locked; several keys are taken together, all or none |
/// | `lease` | duration, 10ms to 24h | the client's, 30s | how long the server keeps the lock without renewal |
/// | `wait` | duration, or `"forever"` | the client's, 10s | how long to queue for the lock; `"0s"` does not wait |
/// | `watchdog` | `bool` | the client's, `true` | whether the lease is renewed while the body runs |
/// | `max_hold` | duration | none | how long the lock may be held, renewals and all |
/// | `at_least` | duration, up to 24h | none | how long the lock stays taken, even if the body is done sooner |
/// | `on_lost` | `"cancel"`, `"continue"` | `"cancel"` | what happens to the body when the lease is lost: it is stopped at its next await, or it runs on |
/// | `client` | expression that borrows as a `LockClient` | the task's, else the installed one | which client locks |
/// | `or_else` | function from `LockError` to the return type | none | what to return if there is no lock; without it the function returns a `Result` |
/// | `crate` | path | `::rlock_core` | where the core is, if it is renamed or re-exported |
///
/// A duration is a string such as `"30s"`, `"1m30s"`, `"1.5s"`, checked when it is compiled, or any
/// expression of type [`Duration`](std::time::Duration), checked when the function is called.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use rlock_core::{LockClient, LockError, distributed_lock};
///
/// const LEASE: Duration = Duration::from_secs(20);
///
/// struct Ledger {
///     locks: Arc<LockClient>,
///     tenant: String,
/// }
///
/// impl Ledger {
///     #[distributed_lock(
///         key = ["<self.tenant>:account:<from>", "<self.tenant>:account:<to>"],
///         client = self.locks,
///         lease = LEASE,
///         wait = "5s",
///         max_hold = "10min",
///     )]
///     async fn transfer(&self, from: u32, to: u32, cents: u64) -> Result<(), LockError> {
///         println!("{cents} from {from} to {to}");
///         Ok(())
///     }
/// }
///
/// #[distributed_lock(key = "report", wait = "0s", at_least = "10s", or_else = |_| false)]
/// async fn report_unless_another_does() -> bool {
///     true
/// }
/// ```
///
/// # Keys
///
/// Literal text stands verbatim. A placeholder in angle brackets is replaced by the value of an
/// argument `<id>`, a field `<order.id>` or `<self.tenant>`, an index `<pair.0>`, a method without
/// arguments `<user.id()>`, or a chain of these: by whatever implements
/// [`Display`](std::fmt::Display). A raw identifier is written raw, `<r#type>`.
/// `<<` and `>>` are literal angle brackets.
///
/// Different values make different keys: in values `%`, `:`, `{`, `}` and control characters are
/// percent-encoded, and between two placeholders the text must hold one of `:`, `{`, `}`.
///
/// A pair of braces in the text marks a Redis Cluster hash tag, as in `{order:<id>}:items`.
///
/// The key is rendered before the body starts, so the body may consume its arguments.
///
/// # The function
///
/// - is an `async fn`, free or a method, also of a trait `impl`, or a default method of a trait;
/// - returns `Result<T, E>` with `E: From<LockError>`, by whatever alias, unless `or_else` is given.
///
/// Generics, lifetimes, patterns and `impl Trait` are the function's own affair. Its future is
/// `Send` if it was so before, and lints judge it as before.
///
/// Attributes are applied from top to bottom, each to what the ones above it made. So of two locks
/// the lower one is taken first, and `#[distributed_lock]` stands above `#[tokio::test]`
/// and `#[tokio::main]`.
///
/// # Errors
///
/// In place of what the body would return, the function returns, converted by `From` or by
/// `or_else`: `Timeout` if the lock was not free in time, `Lost` if the lease was lost while the body
/// ran, `NoClient` if there is no client, and whatever else `rlock_core::LockError` lists.
///
/// A mistake in the attribute is reported where it was made. The function is then compiled
/// without its lock, so that nothing else is reported.
///
/// # Cancel safety
///
/// Dropping the future drops the body, and gives the lock back in the background.
///
/// # Expands to
///
/// The signature stays as it is. The body of `pay` above becomes, with shorter paths:
///
/// ```ignore
/// async fn pay(id: u64) -> Result<String, LockError> {
///     let plan = Plan::new(key(&[Part::Text("order:"), Part::Value(&id)])).lease(Duration::new(30, 0));
///     let body = Box::pin(async move {
///         let _ = &id; // moved in whole, to be dropped before the lock is released
///         if let Some(edge) = None::<Result<String, LockError>> {
///             return edge; // never: tells the compiler what the body returns
///         }
///         { Ok(format!("order {id} is paid")) }
///     });
///     run(plan, body).await
/// }
/// ```
///
/// No more is decided here; policy is in `rlock-core`.
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(args.into(), &item.into()).into()
}

fn expand(args: TokenStream2, item: &TokenStream2) -> TokenStream2 {
    let mut errors = errors::Errors::default();
    let args = args::Args::parse(args, &mut errors);
    check::options(&args, &mut errors);
    let function = errors.collect(signature::Function::parse(item.clone()));
    if let Some(function) = &function {
        check::function(function, &args, &mut errors);
    }
    match function {
        Some(function) if errors.is_empty() => expand::expand(&function, &args),
        _ => fallback::keep(item, errors),
    }
}

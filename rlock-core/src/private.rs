//! The functions that an expanded `#[distributed_lock]` calls: they find the client, and run the body by a
//! plan. Not part of the public interface.

#![allow(missing_docs, clippy::missing_errors_doc)]

use std::{fmt::Display, future::Future, ops::Deref, pin::Pin, time::Duration};

use rlock_proto::{
    few::Few,
    key::{escaped, shortened},
    mode::LockMode,
    options::{LockOptions, Site},
};

use crate::{
    client::LockClient,
    engine::{call_chain, shell::AcquiredFor},
    error::LockError,
    lock::{Lock, NamedKey},
    options::lock_option_setters,
    run::{BlockingBody, OnLost, Run, Session, has_failed},
    scope::{CurrentHold, current},
};

mod debugged;
mod returned;

// A crate without `std` cannot name it otherwise.
pub use std::boxed::Box;

pub use debugged::{HasOrder, debugged};
pub use returned::{RunsUnderLock, Value, returned, returned_by};

/// The arguments of an annotation, with rendered keys. Boxed, because each annotated function
/// compiles every move of it.
#[derive(Debug)]
#[must_use]
pub struct Plan(Box<Annotation>);

#[derive(Debug)]
struct Annotation {
    keys: Few<NamedKey>,
    /// The template of a list that may be empty.
    empty: Option<&'static str>,
    /// The first key with a value that cannot be formatted.
    unrendered: Option<Unrendered>,
    client: Option<LockClient>,
    /// `None`: the client's.
    options: Option<LockOptions>,
    site: Site,
    on_lost: OnLost,
}

impl Plan {
    /// `template` is that of the first key. `local` returns the path of an item inside the annotated function.
    pub fn new(template: &'static str, local: fn() -> &'static str) -> Self {
        Self(Box::new(Annotation {
            keys: Few::new(),
            empty: None,
            unrendered: None,
            client: None,
            options: None,
            site: Site::in_function(template, local),
            on_lost: OnLost::default(),
        }))
    }

    /// Takes a further key together with the others.
    pub fn and(mut self, template: &'static str, key: KeyText) -> Self {
        self.0.push(template, key, NamedKey::new);
        self
    }

    /// Takes a further key, which is shared.
    pub fn and_shared(mut self, template: &'static str, key: KeyText) -> Self {
        self.0.push(template, key, NamedKey::shared);
        self
    }

    /// Adds a key for each element of a list.
    pub fn and_list<I: Iterator>(
        mut self,
        template: &'static str,
        elements: I,
        key: impl FnMut(I::Item) -> KeyText,
    ) -> Self {
        self.0.empty = Some(template);
        let push = |key| self.0.push(template, key, NamedKey::new);
        elements.map(key).for_each(push);
        self
    }

    /// Adds a key for each element of a list, all of them shared.
    pub fn and_shared_list<I: Iterator>(
        mut self,
        template: &'static str,
        elements: I,
        key: impl FnMut(I::Item) -> KeyText,
    ) -> Self {
        self.0.empty = Some(template);
        let push = |key| self.0.push(template, key, NamedKey::shared);
        elements.map(key).for_each(push);
        self
    }

    pub fn client<C: AsClient + ?Sized>(mut self, client: &C) -> Self {
        self.0.client = Some(client.as_client().clone());
        self
    }

    /// Returns the options. They begin as those of the client, which is set before.
    fn options(&mut self) -> &mut LockOptions {
        let Annotation {
            client, options, ..
        } = &mut *self.0;
        options.get_or_insert_with(|| {
            let client = find_client(client);
            client.map_or_else(LockOptions::default, |client| client.core().options.lock)
        })
    }

    lock_option_setters!();

    pub fn continue_when_lost(mut self) -> Self {
        self.0.on_lost = OnLost::Continue;
        self
    }

    /// Acquires the locks and enters them on this thread.
    fn enter(self) -> Result<BlockingBody, LockError> {
        let on_lost = self.0.on_lost;
        (*self.0).into_lock()?.enter(on_lost)
    }
}

impl From<Plan> for Session {
    fn from(Plan(annotation): Plan) -> Self {
        let on_lost = annotation.on_lost;
        Self::new(on_lost, async move {
            let acquiring = (*annotation).into_lock()?.acquire_for(AcquiredFor::Body);
            acquiring.await
        })
    }
}

/// Returns the client that the annotation names, else that of the current scope or the process.
fn find_client(named: &mut Option<LockClient>) -> Option<&LockClient> {
    if named.is_none() {
        *named = call_chain::client()
            .map(LockClient::new)
            .or_else(LockClient::installed);
    }
    named.as_ref()
}

impl Annotation {
    fn push(
        &mut self,
        template: &'static str,
        KeyText { text, failed }: KeyText,
        named: fn(String) -> NamedKey,
    ) {
        if let (None, Some(placeholder)) = (&self.unrendered, failed) {
            self.unrendered = Some(Unrendered {
                template,
                key: text.clone(),
                placeholder,
            });
        }
        self.keys.push(named(text).rendered_from(template));
    }

    fn into_lock(mut self) -> Result<Lock, LockError> {
        if self.keys.is_empty() {
            return Err(LockError::invalid_key(
                self.empty.unwrap_or_default(),
                "the list is empty, so the body would run without a lock; add a key that is always there, as in \
                 `key = [\"accounts\", \"account:<ids[]>\"]`, or do not call with an empty list",
            ));
        }
        let Some(client) = find_client(&mut self.client).cloned() else {
            let key = self.site.label_or("").to_owned();
            return Err(LockError::NoClient { key });
        };
        if let Some(unrendered) = self.unrendered {
            return Err(unrendered.into_error(client.core().options.redact_keys));
        }
        let options = LockOptions {
            site: self.site,
            ..self.options.unwrap_or(client.core().options.lock)
        };
        Ok(Lock::new(client.handle().clone(), self.keys, options))
    }
}

/// What `client = …` may be: a client, or a value that leads to one by [`Deref`], through any layers.
#[diagnostic::on_unimplemented(
    message = "`client` takes a `LockClient`, and `{Self}` neither is one nor leads to one",
    label = "no `LockClient`",
    note = "write a `LockClient`, a reference to one, or an `Arc` of one, as in `client = self.locks`"
)]
pub trait AsClient {
    fn as_client(&self) -> &LockClient;
}

impl AsClient for LockClient {
    fn as_client(&self) -> &LockClient {
        self
    }
}

// An error should be about the type that was written, not about the innermost one.
#[diagnostic::do_not_recommend]
impl<T: Deref<Target: AsClient> + ?Sized> AsClient for T {
    fn as_client(&self) -> &LockClient {
        (**self).as_client()
    }
}

/// The value of the placeholder at the character `AT` of a key. The compiler infers `P`, which tells an `Option` from
/// other values.
#[diagnostic::on_unimplemented(
    message = "the placeholder at character {AT} of the key takes a value with `Display`, and `{Self}` has none",
    label = "the value at character {AT} is of type `{Self}`",
    note = "implement `Display` for the type, or add `Display` to the bounds of a type parameter",
    note = "or write a format, as in `<id:?>`, or `<ids[]>` for a key of each element of a list"
)]
pub trait KeyValue<const AT: usize, P> {
    fn as_display(&self) -> &dyn Display
    where
        P: HasText<AT>;
}

#[derive(Debug)]
pub enum ByDisplay {}

#[derive(Debug)]
pub enum ByOption {}

// The error should be about the placeholder.
#[diagnostic::do_not_recommend]
impl<T: Display, const AT: usize> KeyValue<AT, ByDisplay> for T {
    fn as_display(&self) -> &dyn Display {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<T, const AT: usize> KeyValue<AT, ByOption> for Option<T> {
    fn as_display(&self) -> &dyn Display
    where
        ByOption: HasText<AT>,
    {
        unreachable!("the bound does not hold")
    }
}

#[diagnostic::do_not_recommend]
impl<T, const AT: usize> KeyValue<AT, ByOption> for &Option<T> {
    fn as_display(&self) -> &dyn Display
    where
        ByOption: HasText<AT>,
    {
        unreachable!("the bound does not hold")
    }
}

/// The text of a value. [`ByOption`] has none, so that the compiler reports an error of the attribute's own.
#[diagnostic::on_unimplemented(
    message = "the placeholder at character {AT} of the key: an `Option` has no text of its own, and `None` would be one key for all",
    label = "the value at character {AT} is an `Option`",
    note = "write `<id:?>` if you want that, or make the key where the value is known"
)]
pub trait HasText<const AT: usize> {}

#[diagnostic::do_not_recommend]
impl<const AT: usize> HasText<AT> for ByDisplay {}

/// The text of a key, rendered part by part: text verbatim, values escaped.
#[derive(Debug)]
#[must_use]
pub struct KeyText {
    text: String,
    /// The first placeholder whose value cannot be formatted. The text contains the placeholder in its place.
    failed: Option<&'static str>,
}

impl KeyText {
    pub fn new(text: &str) -> Self {
        let key = Self {
            text: String::with_capacity(32),
            failed: None,
        };
        key.text(text)
    }

    pub fn text(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    pub fn value(mut self, placeholder: &'static str, value: &dyn Display) -> Self {
        if let Ok(value) = escaped(value) {
            return self.text(&value);
        }
        self.failed = self.failed.or(Some(placeholder));
        self.text("<").text(placeholder).text(">")
    }

    /// Appends parts that are already rendered.
    pub fn and(mut self, parts: &Self) -> Self {
        self.failed = self.failed.or(parts.failed);
        self.text(&parts.text)
    }

    /// Returns the text of the key.
    ///
    /// # Panics
    ///
    /// Panics if a value cannot be formatted.
    #[must_use]
    #[track_caller]
    pub fn into_text(self) -> String {
        let Self { text, failed } = self;
        match failed {
            None => text,
            Some(placeholder) => panic!("{}", unformatted(placeholder)),
        }
    }
}

/// Makes a key for each element of a list, for `key!`.
///
/// # Panics
///
/// As [`KeyText::into_text`].
#[must_use]
#[track_caller]
pub fn texts<I: Iterator>(elements: I, mut key: impl FnMut(I::Item) -> KeyText) -> Vec<String> {
    let mut texts = Vec::with_capacity(elements.size_hint().0);
    for element in elements {
        texts.push(key(element).into_text());
    }
    texts
}

/// Explains why a key has no text.
fn unformatted(placeholder: &str) -> String {
    format!(
        "formatting the value of `<{placeholder}>` returned an error, and a key without that value would also be \
         the key of other values; pass a value that can be formatted, or correct its `Display`"
    )
}

/// A key with a placeholder whose value cannot be formatted.
#[derive(Debug)]
struct Unrendered {
    template: &'static str,
    key: String,
    placeholder: &'static str,
}

impl Unrendered {
    fn into_error(self, is_hidden: bool) -> LockError {
        let key = if is_hidden { self.template } else { &self.key };
        let reason = unformatted(self.placeholder);
        LockError::invalid_key(shortened(key), reason)
    }
}

/// What an annotated function may return: a place for the error of the lock.
#[diagnostic::on_unimplemented(
    message = "a function with `#[distributed_lock]` returns a `Result`, and `{Self}` has no value for the error of a lock",
    label = "`{Self}` cannot hold a `LockError`",
    note = "return `Result<_, E>` with `E: From<rlock_core::LockError>`, or give `on_error = |error| …`"
)]
pub trait FromLockError {
    fn from_lock_error(error: LockError) -> Self;
}

impl<T, E: From<LockError>> FromLockError for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(error.into())
    }
}

/// Returns `value` if the lock is taken, and the result of `on_error` for every other error.
pub fn if_taken<R, V, H>(value: V, on_error: H) -> impl FnOnce(LockError) -> R
where
    V: FnOnce() -> R,
    H: FnOnce(LockError) -> R,
{
    |error| {
        if error.is_contention() {
            value()
        } else {
            on_error(error)
        }
    }
}

/// Returns the hold for the variable of the option `guard`, at the start of the body.
///
/// # Panics
///
/// Panics outside of a body.
#[must_use]
pub fn hold() -> CurrentHold {
    current().expect("the body of a locked function runs inside its locks")
}

/// Runs the body of an annotated function that makes its own of a lock's error.
pub fn run_on_error<F, R, H>(plan: Plan, on_error: H, body: Pin<Box<F>>) -> Run<F, H>
where
    F: Future<Output = R>,
    H: FnOnce(LockError) -> R,
{
    Run::new(plan.into(), body, has_failed, on_error)
}

/// Runs the body of an annotated synchronous function. `returned` checks the type of its result.
pub fn run_blocking<F, R>(plan: Plan, body: F) -> Result<R, LockError>
where
    F: FnOnce() -> R,
{
    plan.enter()?.leave(body())
}

/// Infers the types of a synchronous `on_error` before the body is checked.
pub fn handler<R, H: FnOnce(LockError) -> R>(on_error: H) -> H {
    on_error
}

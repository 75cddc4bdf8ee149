//! Reads the options in the attribute's parentheses: each at most once, each with a value of the right kind.

mod answers;
mod errors;
mod keys;
mod modes;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Expr, ExprGroup, ExprLit, ExprParen, ExprPath, ExprUnary, Lit, LitStr, Path, Token};

use crate::duration::{self, Bounds, Time};
use crate::errors::{Errors, error};
use crate::options::LockOption;

pub(crate) use self::keys::Key;
use self::keys::Written;

/// The options of one attribute.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) keys: Vec<Key>,
    /// The keys as written, including those with a broken template.
    written: Vec<Written>,
    pub(crate) shared: bool,
    pub(crate) permits: Option<Expr>,
    pub(crate) take: Option<Expr>,
    pub(crate) lease: Option<Time>,
    pub(crate) wait: Option<Wait>,
    pub(crate) watchdog: Option<Expr>,
    pub(crate) max_hold: Option<Time>,
    pub(crate) min_hold: Option<Time>,
    pub(crate) retain: Option<Time>,
    pub(crate) continue_when_lost: bool,
    pub(crate) guard: Option<Ident>,
    pub(crate) client: Option<Expr>,
    pub(crate) if_taken: Option<Expr>,
    pub(crate) on_error: Option<Expr>,
    pub(crate) allow_future_output: bool,
    pub(crate) krate: Option<Path>,
    /// The names read, of options with a broken value too.
    pub(crate) named: Vec<LockOption>,
}

pub(crate) enum Wait {
    For(Time),
    Forever,
}

impl Args {
    /// Reads as much as can be read; what cannot goes to `errors`.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let options = |input: ParseStream<'_>| {
            while !input.is_empty() {
                let option = args.option(input, errors);
                errors.collect(option);
                skip_to_comma(input)?;
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        let parsed = options.parse2(tokens);
        // An error inside parentheses is reported a second time when they are left.
        if errors.is_empty() {
            errors.collect(parsed);
        }
        args
    }

    /// Checks what the options ask of each other.
    pub(crate) fn check(&self, errors: &mut Errors) {
        errors.collect(self.key_given());
        errors.collect(self.hold_times());
        errors.collect(self.retention_renewed());
        errors.collect(answers::no_retention(self));
        modes::check(self, errors);
    }

    fn key_given(&self) -> syn::Result<()> {
        if self.named.contains(&LockOption::Key) {
            return Ok(());
        }
        let message = "`key` is missing: write what is locked, for example \
                       `#[distributed_lock(key = \"order:<id>\")]`";
        error(Span::call_site(), message)
    }

    fn hold_times(&self) -> syn::Result<()> {
        let (Some(Time::Literal(max_hold, most)), Some(Time::Literal(min_hold, least))) =
            (&self.max_hold, &self.min_hold)
        else {
            return Ok(());
        };
        if max_hold >= min_hold {
            return Ok(());
        }
        let (written, other) = (most.value(), least.value());
        let message = format_args!(
            "`max_hold = {written:?}` is shorter than `min_hold = {other:?}`: raise `max_hold` or lower `min_hold`"
        );
        error(most.span(), message)
    }

    /// Returns the span of `retain`, unless it is a literal zero.
    fn retained_at(&self) -> Option<Span> {
        match self.retain.as_ref()? {
            Time::Literal(time, _) if time.is_zero() => None,
            Time::Literal(_, text) => Some(text.span()),
            Time::Expression(value) => Some(value.span()),
        }
    }

    /// Refuses `retain` without the watchdog.
    fn retention_renewed(&self) -> syn::Result<()> {
        let is_off = matches!(
            &self.watchdog,
            Some(Expr::Lit(ExprLit { lit: Lit::Bool(on), .. })) if !on.value
        );
        match self.retained_at().filter(|_| is_off) {
            None => Ok(()),
            Some(at) => error(
                at,
                "`retain` with `watchdog = false`: a lock is retained by renewals; remove `retain` or `watchdog = false`",
            ),
        }
    }

    /// The values that are expressions, which may use the arguments of the function.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let wait = match &self.wait {
            Some(Wait::For(time)) => Some(time),
            Some(Wait::Forever) | None => None,
        };
        [
            self.lease.as_ref(),
            wait,
            self.max_hold.as_ref(),
            self.min_hold.as_ref(),
            self.retain.as_ref(),
        ]
        .into_iter()
        .flatten()
        .filter_map(Time::expression)
        .chain(&self.permits)
        .chain(&self.take)
        .chain(&self.watchdog)
        .chain(&self.client)
        .chain(self.answers())
    }

    /// Returns the expressions that replace the body's output. They are needed for as long as the body runs.
    pub(crate) fn answers(&self) -> impl Iterator<Item = &Expr> {
        self.if_taken.iter().chain(&self.on_error)
    }

    /// Reads one `name = value`, or a flag.
    fn option(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        if !input.peek(Ident::peek_any) {
            if input.peek(LitStr) {
                // Certainly the key: that it is missing would be said twice.
                self.named.push(LockOption::Key);
            }
            return Err(errors::no_option(input));
        }
        let name = input.call(Ident::parse_any)?;
        let at_name = |message| syn::Error::new(name.span(), message);
        let written = name.to_string();
        let known = LockOption::of(&written).map_err(at_name)?;
        if self.named.contains(&known) {
            errors.push(errors::given_twice(&name, known));
        }
        self.named.push(known);
        match known {
            LockOption::Shared => modes::flag(&name, input)?,
            _ => equals_sign(&name, known, input)?,
        }
        self.set(known, input, errors)
    }

    /// Reads the value of an option.
    fn set(
        &mut self,
        option: LockOption,
        input: ParseStream<'_>,
        errors: &mut Errors,
    ) -> syn::Result<()> {
        let mut read = || expression(option, input, errors);
        match option {
            LockOption::Key => {
                let written = keys::read(input)?;
                comma(input, errors);
                for key in written {
                    self.keys.extend(errors.collect(Key::parse(&key)));
                    self.written.push(key);
                }
            }
            LockOption::Shared => {
                comma(input, errors);
                self.shared = true;
            }
            LockOption::Permits => self.permits = Some(modes::permits(option, read()?)?),
            LockOption::Take => self.take = Some(modes::permits(option, read()?)?),
            LockOption::Lease => self.lease = Some(time(option, read()?, &duration::LEASE)?),
            LockOption::Wait => {
                let value = read()?;
                self.wait = Some(match string(&value) {
                    Some(text) if text.value() == "forever" => Wait::Forever,
                    _ => Wait::For(time(option, value, &duration::WAIT)?),
                });
            }
            LockOption::MaxHold => {
                self.max_hold = Some(time(option, read()?, &duration::MAX_HOLD)?);
            }
            LockOption::MinHold => {
                self.min_hold = Some(time(option, read()?, &duration::MIN_HOLD)?);
            }
            LockOption::Retain => self.retain = Some(time(option, read()?, &duration::RETAIN)?),
            LockOption::Watchdog => {
                self.watchdog = Some(match read()? {
                    value @ Expr::Lit(ExprLit {
                        lit: Lit::Bool(_), ..
                    }) => value,
                    value => no_literal(option, value)?,
                });
            }
            LockOption::OnLost => {
                let value = read()?;
                let text = string(&value).ok_or_else(|| errors::wrong_kind(option, &value))?;
                self.continue_when_lost = errors::on_lost(text)?;
            }
            LockOption::Guard => match read()? {
                Expr::Path(ExprPath {
                    qself: None, path, ..
                }) if is_variable(&path) => self.guard = path.get_ident().cloned(),
                value => return Err(errors::wrong_kind(option, &value)),
            },
            LockOption::Client => self.client = Some(no_literal(option, read()?)?),
            LockOption::IfTaken => {
                let value = read()?;
                answers::if_taken(&value)?;
                self.if_taken = Some(value);
            }
            LockOption::OnError => {
                let value = read()?;
                answers::on_error(&value)?;
                self.on_error = Some(no_literal(option, value)?);
            }
            LockOption::AllowFutureOutput => match read()? {
                Expr::Lit(ExprLit {
                    lit: Lit::Bool(may_be),
                    ..
                }) => self.allow_future_output = may_be.value,
                value => return Err(errors::wrong_kind(option, &value)),
            },
            LockOption::Crate => match read()? {
                Expr::Path(ExprPath {
                    qself: None, path, ..
                }) => self.krate = Some(path),
                value => return Err(errors::wrong_kind(option, &value)),
            },
        }
        Ok(())
    }
}

/// Reads the `=` between an option and its value.
fn equals_sign(name: &Ident, option: LockOption, input: ParseStream<'_>) -> syn::Result<()> {
    if input.peek(Token![:]) || input.peek(Token![=>]) || input.peek(Token![==]) {
        return Err(errors::no_equals_sign(input, option));
    }
    if !input.peek(Token![=]) {
        return Err(errors::no_value(name, option));
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(errors::no_value(name, option));
    }
    Ok(())
}

fn expression(
    option: LockOption,
    input: ParseStream<'_>,
    errors: &mut Errors,
) -> syn::Result<Expr> {
    let written = input.fork();
    let value: Expr = input
        .parse()
        .map_err(|error| errors::no_expression(&written, option, &error))?;
    comma(input, errors);
    Ok(peel(&value).clone())
}

/// Reports a missing comma behind an option.
fn comma(input: ParseStream<'_>, errors: &mut Errors) {
    if !input.is_empty() && !input.peek(Token![,]) {
        errors.push(errors::no_comma(input));
    }
}

/// Takes off the invisible brackets around what a macro passed on, and visible ones.
pub(crate) fn peel(value: &Expr) -> &Expr {
    match value {
        Expr::Group(ExprGroup { expr, .. }) | Expr::Paren(ExprParen { expr, .. }) => peel(expr),
        value => value,
    }
}

pub(crate) fn string(value: &Expr) -> Option<&LitStr> {
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Some(text),
        _ => None,
    }
}

fn time(option: LockOption, value: Expr, bounds: &Bounds) -> syn::Result<Time> {
    if string(&value).is_none() && is_literal(&value) {
        return Err(errors::wrong_kind(option, &value));
    }
    Time::read(option, value, bounds)
}

fn no_literal(option: LockOption, value: Expr) -> syn::Result<Expr> {
    if is_literal(&value) {
        Err(errors::wrong_kind(option, &value))
    } else {
        Ok(value)
    }
}

fn is_literal(value: &Expr) -> bool {
    match value {
        Expr::Lit(_) => true,
        Expr::Unary(ExprUnary { expr, .. }) => matches!(**expr, Expr::Lit(_)),
        _ => false,
    }
}

/// Returns whether a path can be the name of a new variable.
fn is_variable(path: &Path) -> bool {
    path.get_ident()
        .is_some_and(|name| !matches!(&*name.to_string(), "self" | "Self" | "super" | "crate"))
}

/// Skips the rest of a broken option, and returns it.
fn skip_to_comma(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let mut skipped = TokenStream::new();
    while !input.is_empty() && !input.peek(Token![,]) {
        skipped.extend([input.parse::<TokenTree>()?]);
    }
    Ok(skipped)
}

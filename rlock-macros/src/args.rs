//! The options in the parentheses: each at most once, each with a value of the right kind.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{
    Expr, ExprArray, ExprGroup, ExprLit, ExprParen, ExprPath, ExprUnary, Lit, LitStr, Path, Token,
};

use crate::check;
use crate::duration::{self, Bounds, Time};
use crate::errors::Errors;
use crate::template::Template;

/// An option: its name, what it takes, and how that is written.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    pub(crate) takes: &'static str,
    pub(crate) form: &'static str,
}

const TIME: &str = "a duration: a string, or an expression of type `Duration`";

pub(crate) const OPTIONS: [Known; 12] = [
    Known {
        name: "key",
        takes: "a string literal or a list of them",
        form: "key = \"order:<id>\"",
    },
    Known {
        name: "lease",
        takes: TIME,
        form: "lease = \"30s\"",
    },
    Known {
        name: "wait",
        takes: TIME,
        form: "wait = \"5s\"` or `wait = \"forever\"",
    },
    Known {
        name: "watchdog",
        takes: "a bool",
        form: "watchdog = false",
    },
    Known {
        name: "max_hold",
        takes: TIME,
        form: "max_hold = \"10min\"",
    },
    Known {
        name: "at_least",
        takes: TIME,
        form: "at_least = \"10s\"",
    },
    Known {
        name: "retain",
        takes: TIME,
        form: "retain = \"200ms\"",
    },
    Known {
        name: "on_lost",
        takes: "`\"cancel\"` or `\"continue\"`",
        form: "on_lost = \"continue\"",
    },
    Known {
        name: "client",
        takes: "an expression that is a `LockClient` or leads to one",
        form: "client = self.locks",
    },
    Known {
        name: "if_taken",
        takes: "an expression of the return type",
        form: "if_taken = Ok(false)",
    },
    Known {
        name: "or_else",
        takes: "a function from `LockError` to the return type",
        form: "or_else = |error| Outcome::Skipped",
    },
    Known {
        name: "crate",
        takes: "a path to `rlock_core`",
        form: "crate = ::my_crate::rlock_core",
    },
];

/// The options of one attribute.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) keys: Vec<Template>,
    pub(crate) lease: Option<Time>,
    pub(crate) wait: Option<Wait>,
    pub(crate) watchdog: Option<Expr>,
    pub(crate) max_hold: Option<Time>,
    pub(crate) at_least: Option<Time>,
    pub(crate) retain: Option<Time>,
    pub(crate) continue_when_lost: bool,
    pub(crate) client: Option<Expr>,
    pub(crate) if_taken: Option<Expr>,
    pub(crate) or_else: Option<Expr>,
    pub(crate) krate: Option<Path>,
    /// The names read, of options with a broken value too.
    pub(crate) named: Vec<&'static str>,
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
        // An error inside of parentheses is reported a second time when they are left.
        if errors.is_empty() {
            errors.collect(parsed);
        }
        args
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
            self.at_least.as_ref(),
            self.retain.as_ref(),
        ]
        .into_iter()
        .flatten()
        .filter_map(Time::expression)
        .chain(&self.watchdog)
        .chain(&self.client)
        .chain(self.answers())
    }

    /// Returns the expressions that replace the body's output. They are needed for as long as the body runs.
    pub(crate) fn answers(&self) -> impl Iterator<Item = &Expr> {
        self.if_taken.iter().chain(&self.or_else)
    }

    /// Reads one `name = value`.
    fn option(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        if !input.peek(Ident::peek_any) {
            if input.peek(LitStr) {
                // Certainly the key: that it is missing would be said twice.
                self.named.push("key");
            }
            return Err(check::no_option(input));
        }
        let name = input.call(Ident::parse_any)?;
        let known = check::option_name(&name)?;
        if self.named.contains(&known.name) {
            errors.push(check::given_twice(&name, known));
        }
        self.named.push(known.name);
        if input.peek(Token![:]) || input.peek(Token![=>]) || input.peek(Token![==]) {
            return Err(check::no_equals_sign(input, known));
        }
        if !input.peek(Token![=]) {
            return Err(check::no_value(&name, known));
        }
        input.parse::<Token![=]>()?;
        if input.is_empty() || input.peek(Token![,]) {
            return Err(check::no_value(&name, known));
        }
        let value = peel(input.parse()?);
        if !input.is_empty() && !input.peek(Token![,]) {
            errors.push(check::no_comma(input));
        }
        self.set(known, value, errors)
    }

    fn set(&mut self, option: &Known, value: Expr, errors: &mut Errors) -> syn::Result<()> {
        match option.name {
            "key" => {
                for literal in literals(option, &value)? {
                    self.keys.extend(errors.collect(Template::parse(&literal)));
                }
            }
            "lease" => self.lease = Some(time(option, value, &duration::LEASE)?),
            "wait" => {
                self.wait = Some(match string(&value) {
                    Some(text) if text.value() == "forever" => Wait::Forever,
                    _ => Wait::For(time(option, value, &duration::WAIT)?),
                });
            }
            "max_hold" => self.max_hold = Some(time(option, value, &duration::MAX_HOLD)?),
            "at_least" => self.at_least = Some(time(option, value, &duration::AT_LEAST)?),
            "retain" => self.retain = Some(time(option, value, &duration::RETAIN)?),
            "watchdog" => match value {
                Expr::Lit(ExprLit {
                    lit: Lit::Bool(_), ..
                }) => self.watchdog = Some(value),
                value => self.watchdog = Some(no_literal(option, value)?),
            },
            "on_lost" => match string(&value) {
                Some(text) => self.continue_when_lost = check::on_lost(text)?,
                None => return Err(check::wrong_kind(option, &value)),
            },
            "client" => self.client = Some(no_literal(option, value)?),
            "if_taken" => self.if_taken = Some(value),
            "or_else" => self.or_else = Some(no_literal(option, value)?),
            _ => match value {
                Expr::Path(ExprPath {
                    qself: None, path, ..
                }) => self.krate = Some(path),
                value => return Err(check::wrong_kind(option, &value)),
            },
        }
        Ok(())
    }
}

/// Takes off the invisible brackets around what a macro passed on, and visible ones.
fn peel(value: Expr) -> Expr {
    match value {
        Expr::Group(ExprGroup { expr, .. }) | Expr::Paren(ExprParen { expr, .. }) => peel(*expr),
        value => value,
    }
}

fn string(value: &Expr) -> Option<&LitStr> {
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Some(text),
        _ => None,
    }
}

fn literals(option: &Known, value: &Expr) -> syn::Result<Vec<LitStr>> {
    match value {
        Expr::Array(ExprArray { elems, .. }) if elems.is_empty() => Err(check::no_keys(value)),
        Expr::Array(ExprArray { elems, .. }) => elems
            .iter()
            .map(|element| literal(option, &peel(element.clone())))
            .collect(),
        value => Ok(vec![literal(option, value)?]),
    }
}

fn literal(option: &Known, value: &Expr) -> syn::Result<LitStr> {
    match value {
        Expr::Path(constant) => Err(check::no_constant(option, constant)),
        Expr::Macro(_) => Err(check::no_text_yet(option, value)),
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Reference(_) => {
            Err(check::no_list(option, value))
        }
        value => string(value)
            .cloned()
            .ok_or_else(|| check::wrong_kind(option, value)),
    }
}

fn time(option: &Known, value: Expr, bounds: &Bounds) -> syn::Result<Time> {
    if string(&value).is_none() && is_literal(&value) {
        return Err(check::wrong_kind(option, &value));
    }
    Time::read(option, value, bounds)
}

fn no_literal(option: &Known, value: Expr) -> syn::Result<Expr> {
    if is_literal(&value) {
        Err(check::wrong_kind(option, &value))
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

/// Leaves the remains of a broken option behind.
fn skip_to_comma(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

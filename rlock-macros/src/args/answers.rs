//! Checks the options `if_taken` and `on_error`.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, ExprAsync, ExprAwait, ExprBlock, ExprClosure, Item, Stmt};

use super::{Args, peel};
use crate::errors::error;

/// Refuses an `if_taken` that awaits. A closure evaluates it.
pub(super) fn if_taken(value: &Expr) -> syn::Result<()> {
    let Some(at) = asynchronous(value) else {
        return Ok(());
    };
    error(
        at,
        "`if_taken` cannot await: it is evaluated in a closure that is not `async`; write a value that needs no `await`, or \
         leave `if_taken` out and check `LockError::is_contention` where the function is called",
    )
}

/// Refuses an `on_error` that is `async` or awaits.
pub(super) fn on_error(value: &Expr) -> syn::Result<()> {
    let Expr::Closure(closure) = last(value) else {
        return Ok(());
    };
    let asyncness = closure.asyncness.as_ref().map(Spanned::span);
    let Some(at) = asyncness.or_else(|| asynchronous(&closure.body)) else {
        return Ok(());
    };
    error(
        at,
        "`on_error` cannot be `async` or await: it returns the function's value, not a future; handle the `LockError` where \
         the function is called instead",
    )
}

/// Refuses `retain` with `if_taken`.
pub(super) fn no_retention(args: &Args) -> syn::Result<()> {
    match args.retained_at().filter(|_| args.if_taken.is_some()) {
        None => Ok(()),
        Some(at) => error(
            at,
            "`retain` with `if_taken` skips calls that could run: a lock that another client retains is taken, although no \
             body runs; remove `retain` or `if_taken`",
        ),
    }
}

/// Finds what makes an expression asynchronous: its value is an `async` block, or it awaits.
fn asynchronous(value: &Expr) -> Option<Span> {
    if let Expr::Async(block) = last(value) {
        return Some(block.async_token.span);
    }
    let mut awaits = Awaits(None);
    awaits.visit_expr(value);
    awaits.0
}

/// Returns the expression that gives a value: the last one of a block.
fn last(value: &Expr) -> &Expr {
    match peel(value) {
        Expr::Block(ExprBlock { block, .. }) => match block.stmts.last() {
            Some(Stmt::Expr(value, None)) => last(value),
            _ => value,
        },
        value => value,
    }
}

/// Finds an `await` outside of `async` blocks and closures.
struct Awaits(Option<Span>);

impl<'ast> Visit<'ast> for Awaits {
    fn visit_expr_await(&mut self, found: &'ast ExprAwait) {
        self.0.get_or_insert(found.await_token.span);
        visit::visit_expr_await(self, found);
    }

    fn visit_expr_async(&mut self, _: &'ast ExprAsync) {}

    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        if closure.asyncness.is_none() {
            visit::visit_expr_closure(self, closure);
        }
    }

    fn visit_item(&mut self, _: &'ast Item) {}
}

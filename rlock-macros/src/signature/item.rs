//! Words the errors for items that are not functions, and for signatures that cannot be parsed.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::Signature;

/// Returns the error for an item without a body.
pub(super) fn no_body(signature: &Signature) -> syn::Error {
    let name = &signature.ident;
    syn::Error::new(
        name.span(),
        format_args!(
            "`{name}` has no body to run under a lock: put `#[distributed_lock(…)]` on its implementation"
        ),
    )
}

/// Finds `Fn(…)` as a type without `dyn`, which editions up to 2018 allow and the parser does not.
fn bare_function_trait(tokens: TokenStream) -> Option<Ident> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_bound = |before: Option<&TokenTree>| match before {
        Some(TokenTree::Ident(word)) => word == "dyn" || word == "impl",
        Some(TokenTree::Punct(punct)) => matches!(punct.as_char(), ':' | '+' | '>' | '?'),
        _ => false,
    };
    tokens
        .iter()
        .enumerate()
        .find_map(|(index, token)| match token {
            TokenTree::Ident(word) => {
                let is_trait = word == "Fn" || word == "FnMut" || word == "FnOnce";
                let before = index.checked_sub(1).and_then(|before| tokens.get(before));
                let is_called = matches!(
                    tokens.get(index + 1),
                    Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis
                );
                (is_trait && is_called && !is_bound(before)).then(|| word.clone())
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
                bare_function_trait(group.stream())
            }
            _ => None,
        })
}

/// Returns the error for an item that is not a function.
pub(super) fn no_function(item: TokenStream, error: &syn::Error) -> syn::Error {
    if let Some(bare) = bare_function_trait(item.clone()) {
        return syn::Error::new(
            bare.span(),
            format_args!("`{bare}(…)` as a type needs `dyn`: write `dyn {bare}(…)`"),
        );
    }
    let mut mocked = false;
    let mut span = Span::call_site();
    let mut what = "something else";
    let mut after_const = false;
    let mut words = item.into_iter().filter_map(|token| match token {
        TokenTree::Ident(word) => Some(word),
        _ => None,
    });
    while let Some(word) = words.next() {
        let text = word.to_string();
        span = word.span();
        what = match &*text {
            "pub" | "unsafe" | "async" | "default" | "extern" | "auto" => continue,
            "const" => {
                after_const = true;
                continue;
            }
            "fn" => {
                let message =
                    format_args!("`#[distributed_lock]` cannot read this signature: {error}");
                return syn::Error::new(error.span(), message);
            }
            "struct" => "a struct",
            "enum" => "an enum",
            "union" => "a union",
            "trait" => "a trait",
            "impl" => "an `impl` block",
            "mod" => {
                mocked = words
                    .next()
                    .is_some_and(|name| name.to_string().starts_with("__mock"));
                "a module"
            }
            "static" => "a static",
            "type" => "a type alias",
            "use" => "an import",
            _ if after_const => "a constant",
            _ => "something else",
        };
        break;
    }
    let way_out = match what {
        "an `impl` block" => {
            "put it on each method that is to be locked, and set what they share on their client, with \
             `LockClient::builder()`"
        }
        "a trait" => "put it on each method that is to be locked",
        _ if mocked => {
            "`#[automock]` copies the attributes of what it mocks; put the lock on the methods of an implementation that \
             is not mocked itself"
        }
        _ => "put it on a function or a method",
    };
    syn::Error::new(
        span,
        format_args!("`#[distributed_lock]` locks a function, and this is {what}: {way_out}"),
    )
}

//! Finds out whether tokens mention a name (as an identifier, also inside macro calls, or in a format string), and which name
//! they use for the hold.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;

/// Returns whether `tokens` may use the variable `name`.
///
/// Errs on the side of yes: macros see only tokens, so what they make of a name is not known. Names
/// after a single dot are fields and methods, never variables.
pub(crate) fn mentions(tokens: &TokenStream, name: &Ident) -> bool {
    let name = name.unraw().to_string();
    mentions_word(tokens.clone(), &name)
}

fn mentions_word(tokens: TokenStream, name: &str) -> bool {
    let mut dots = 0;
    for token in tokens {
        let found = match &token {
            TokenTree::Ident(ident) => dots != 1 && ident.unraw() == name,
            TokenTree::Group(group) => mentions_word(group.stream(), name),
            TokenTree::Literal(literal) => interpolates(&literal.to_string(), name),
            TokenTree::Punct(_) => false,
        };
        if found {
            return true;
        }
        dots = if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.') {
            dots + 1
        } else {
            0
        };
    }
    false
}

/// Returns whether a literal, as a format string, interpolates `name`: `{name}`, `{name:?}`, `{:name$}`.
fn interpolates(literal: &str, name: &str) -> bool {
    if !literal.ends_with(['"', '#']) {
        return false;
    }
    literal
        .split('{')
        .skip(1)
        .filter_map(|after| after.split_once('}'))
        .any(|(inside, _)| {
            inside
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == name)
        })
}

/// Methods that only holds have.
const OF_HOLDS: [&str; 6] = [
    "fence",
    "fences",
    "fencing_token",
    "fencing_token_i64",
    "guard",
    "guards",
];

/// Returns the name that a function uses for its hold, for example `lock` in `lock.fence()`. Ignores a name that occurs in any
/// other way than before a method call, because the function may bind it there.
pub(crate) fn unbound_hold(function: &TokenStream) -> Option<Ident> {
    let mut uses = Vec::new();
    find_uses(function.clone(), &mut uses);
    let is_bound = |name: &Ident| {
        let mut uses = uses.iter();
        uses.any(|(used, method)| used == name && method.is_none())
    };
    let is_of_hold = |method: &Option<String>| {
        let method = method.as_deref();
        method.is_some_and(|method| OF_HOLDS.contains(&method))
    };
    let mut of_holds = uses.iter().filter(|(_, method)| is_of_hold(method));
    let (name, _) = of_holds.find(|(name, _)| name != "self" && !is_bound(name))?;
    Some(name.clone())
}

/// Finds the identifiers that are neither fields nor methods, with the method that is called on each.
fn find_uses(tokens: TokenStream, uses: &mut Vec<(Ident, Option<String>)>) {
    let tokens = Vec::from_iter(tokens);
    let is = |index: Option<usize>, sign: char| matches!(index.and_then(|index| tokens.get(index)), Some(TokenTree::Punct(punct)) if punct.as_char() == sign);
    for (index, token) in tokens.iter().enumerate() {
        let before = index.checked_sub(1);
        match token {
            TokenTree::Group(group) => find_uses(group.stream(), uses),
            TokenTree::Ident(name) if !is(before, '.') => {
                let method = match tokens.get(index + 2..) {
                    Some([TokenTree::Ident(method), TokenTree::Group(group), ..])
                        if group.delimiter() == Delimiter::Parenthesis
                            && is(Some(index + 1), '.')
                            && !is(before, ':') =>
                    {
                        Some(method.to_string())
                    }
                    _ => None,
                };
                uses.push((name.clone(), method));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{mentions, unbound_hold};
    use proc_macro2::{Ident, Span, TokenStream};

    fn mentions_id(source: &str) -> bool {
        let tokens: TokenStream = source.parse().unwrap();
        mentions(&tokens, &Ident::new("id", Span::call_site()))
    }

    #[test]
    fn a_name_is_found_wherever_a_body_can_use_it() {
        for source in [
            "id",
            "{ (1, [id]) }",
            "println!(\"{}\", id)",
            "println!(\"{id}\")",
            "println!(\"{{ {id:?}\")",
            "println!(\"{:>id$}\", 1)",
            "println!(r#\"{id}\"#)",
            "a..id",
            "a..=id",
            "r#id",
            "Order { id }",
            "id.0",
        ] {
            assert!(mentions_id(source), "{source}");
        }
    }

    #[test]
    fn fields_methods_and_plain_text_are_no_mentions() {
        for source in [
            "order.id",
            "order.id()",
            "\"id\"",
            "\"the id {} of\"",
            "ids",
            "'i'",
            "b'{'",
            "{ }",
        ] {
            assert!(!mentions_id(source), "{source}");
        }
    }

    #[test]
    fn a_name_that_is_used_as_a_hold_and_never_bound_is_found() {
        for (source, found) in [
            ("{ save(&lock.fence()).await }", true),
            ("{ println!(\"{}\", lock.fencing_token()); }", true),
            ("{ if lock.is_valid() { lock.guard()?; } }", true),
            ("{ order.lock.fence(); }", false),
            ("{ self.fence(); }", false),
            ("{ crate::lock.fence(); }", false),
            ("{ lock.is_valid(); }", false),
            ("{ lock.fence; }", false),
            ("{ let lock = acquire()?; lock.fence(); }", false),
            ("{ run(|lock| lock.fence()); }", false),
            ("{ if let Some(lock) = current() { lock.fence(); } }", false),
            ("{ bind!(lock); lock.fence(); }", false),
            ("(lock: &LockGuard) { lock.fence(); }", false),
            ("#[other(guard = lock)] fn f() { lock.fence(); }", false),
        ] {
            let tokens: TokenStream = source.parse().unwrap();
            let name = unbound_hold(&tokens).map(|name| name.to_string());
            assert_eq!(name.as_deref(), found.then_some("lock"), "{source}");
        }
    }

    #[test]
    fn the_receiver_is_found_as_any_name() {
        let tokens: TokenStream = "{ self.pay(1) }".parse().unwrap();
        assert!(mentions(&tokens, &Ident::new("self", Span::call_site())));
    }
}

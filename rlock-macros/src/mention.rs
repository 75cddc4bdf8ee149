//! Finds out whether tokens mention a variable, also inside macro calls and format strings.

use proc_macro2::{Ident, TokenStream, TokenTree};
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

#[cfg(test)]
mod tests {
    use super::mentions;
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
    fn the_receiver_is_found_as_any_name() {
        let tokens: TokenStream = "{ self.pay(1) }".parse().unwrap();
        assert!(mentions(&tokens, &Ident::new("self", Span::call_site())));
    }
}

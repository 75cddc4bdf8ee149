//! States what holds for every template, for tests and the fuzzer. Tried with random input by the tests below, and
//! with found input by the targets in `fuzz/`.

use proc_macro2::{Ident, Span};

use super::{Part, Placeholder, parse};

/// A template says the same when it is written again, or its error points at what is wrong.
pub(crate) fn template(template: &str) {
    let parts = match parse(template) {
        Ok(parts) => parts,
        Err(message) => {
            assert!(points_right(template, &message), "{template:?}: {message}");
            return;
        }
    };
    assert_eq!(written(&parts), template);
    for placeholder in placeholders(&parts) {
        let at: String = template.chars().skip(placeholder.position - 1).collect();
        assert!(at.starts_with(&format!("<{}>", placeholder.text)));
        let root = Ident::new("parameter", Span::call_site());
        let root = (!placeholder.may_be_constant()).then_some(&root);
        let expression = placeholder.expression(root, Span::call_site());
        assert!(syn::parse2::<syn::Expr>(expression).is_ok());
        if let Some(list) = placeholder.list(root, Span::call_site()) {
            assert!(syn::parse2::<syn::Expr>(list).is_ok());
        }
    }
}

/// Values that differ give keys that differ, and the hash tag stays where the template has it. `escape` is the function of
/// this name in `rlock-core`.
pub(crate) fn values(template: &str, one: [&str; 3], other: [&str; 3], escape: fn(&str) -> String) {
    let Ok(parts) = parse(template) else {
        return;
    };
    let names = names(&parts);
    let used = names.len().min(one.len());
    let keys = [one, other].map(|values| {
        let values = values.map(escape);
        rendered(&parts, &names, &values)
    });
    if one[..used] == other[..used] {
        assert_eq!(keys[0], keys[1]);
    } else {
        assert_ne!(keys[0], keys[1], "{template:?} with {one:?} and {other:?}");
    }
    let braces = |text: &str| -> Vec<String> {
        let braces = text.matches(['{', '}']);
        braces.map(str::to_owned).collect()
    };
    let tag = braces(&parts.iter().map(text_of).collect::<String>());
    assert!(tag.is_empty() || tag == ["{", "}"], "{template:?}");
    for key in keys {
        assert_eq!(braces(&key), tag, "{key}");
    }
}

fn text_of(part: &Part) -> &str {
    match part {
        Part::Text(text) => text,
        Part::Value(_) => "",
    }
}

fn placeholders(parts: &[Part]) -> impl Iterator<Item = &Placeholder> {
    parts.iter().filter_map(|part| match part {
        Part::Value(placeholder) => Some(placeholder),
        Part::Text(_) => None,
    })
}

/// Different placeholders, in the order of the template.
fn names(parts: &[Part]) -> Vec<&str> {
    let mut names = Vec::new();
    for placeholder in placeholders(parts) {
        if !names.contains(&&*placeholder.text) {
            names.push(&placeholder.text);
        }
    }
    names
}

/// As the attribute's expansion renders it. Placeholders beyond the values have none.
fn rendered(parts: &[Part], names: &[&str], values: &[String]) -> String {
    parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => text,
            Part::Value(placeholder) => {
                let at = names.iter().position(|name| *name == placeholder.text);
                let value = values.get(at.expect("collected from the same parts"));
                value.map_or("", String::as_str)
            }
        })
        .collect()
}

fn written(parts: &[Part]) -> String {
    parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => text.replace('<', "<<").replace('>', ">>"),
            Part::Value(placeholder) => format!("<{}>", placeholder.text),
        })
        .collect()
}

/// Whether the character that a message names is the one at the position that it names.
fn points_right(template: &str, message: &str) -> bool {
    const AT: &str = "` at character ";
    let about_all = if template.is_empty() {
        "the key is empty"
    } else {
        "the key has "
    };
    message.starts_with(about_all)
        || message.match_indices(AT).any(|(end, _)| {
            let digits = message[end + AT.len()..].split(' ').next();
            let Some(position) = digits.and_then(|digits| digits.parse::<usize>().ok()) else {
                return false;
            };
            let rest: String = template.chars().skip(position.wrapping_sub(1)).collect();
            let named = &message[..end];
            named
                .match_indices('`')
                .any(|(tick, _)| end > tick + 1 && rest.starts_with(&named[tick + 1..]))
        })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn templates() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            8 => prop::sample::select(vec![
                "order", ":", "<a>", "<b>", "<c:?>", "<a.0>", "<self.x()>", "{", "}", "<<", ">>", "-", "%",
                "é", "<d:>>8>", "<r#type>",
            ]),
            1 => prop::sample::select(vec![
                "<", ">", "<a/*b*/>", "<a.b//\n>", "<a.b\u{200e}>", "<type>", "<>", "<a.x:y>", "<a.>", "\"", "\0",
                "<:?>", "<a:<<", "<a:1025>", "<_>", "<a.r#self>", "<a.99999999999>",
            ]),
        ]
        .prop_map(str::to_owned);
        let any = prop_oneof![9 => piece, 1 => any::<String>()];
        vec(any, 0..7).prop_map(|pieces| pieces.concat())
    }

    fn texts() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "", ":", "%", "%3A", "{", "}", "<a>", "-", "order", "\r\n", "\0", "é", "1",
        ]);
        vec(piece, 0..4).prop_map(|pieces| pieces.concat())
    }

    /// What `rlock_core::escape` does. A dependency on `rlock-core` would build it and its dependencies twice, and the
    /// fuzz target uses the original.
    fn escape(value: &str) -> String {
        let mut escaped = String::new();
        for c in value.chars() {
            if matches!(c, '%' | ':' | '{' | '}') || c.is_control() {
                for byte in c.to_string().bytes() {
                    write!(escaped, "%{byte:02X}").expect("a string takes everything");
                }
            } else {
                escaped.push(c);
            }
        }
        escaped
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn every_template_is_what_it_says_or_its_error_points_at_why(text in templates()) {
            template(&text);
        }

        #[test]
        fn different_values_give_different_keys_with_the_same_hash_tag(
            template in templates(), one in [texts(), texts(), texts()], other in [texts(), texts(), texts()]
        ) {
            values(&template, one.each_ref().map(|text| &**text), other.each_ref().map(|text| &**text), escape);
        }

        #[test]
        fn text_that_moves_from_one_value_into_the_next_gives_another_key(
            separator in prop_oneof![texts(), "[-:%{}a]{0,2}"], x in texts(), y in texts(), z in texts()
        ) {
            let template = format!("<a>{separator}<b>");
            let (early, late) = (format!("{x}{separator}{y}"), format!("{y}{separator}{z}"));
            values(&template, [&early, &z, ""], [&x, &late, ""], escape);
        }
    }
}

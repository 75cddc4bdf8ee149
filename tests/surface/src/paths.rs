//! Shortens the paths in a signature, as a reader writes them.

/// Replaces each path in the text. A path is names with `::` between them.
pub(crate) fn each(text: &str, mut replace: impl FnMut(&str) -> String) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find(is_start) {
        // A lifetime, as `'a`, is no path.
        let is_lifetime = rest[..start].ends_with('\'');
        out.push_str(&rest[..start]);
        let length = length(&rest[start..]);
        let path = &rest[start..start + length];
        if is_lifetime {
            out.push_str(path);
        } else {
            out.push_str(&replace(path));
        }
        rest = &rest[start + length..];
    }
    out.push_str(rest);
    out
}

fn is_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of the path at the start of the text.
fn length(text: &str) -> usize {
    let mut at = 0;
    loop {
        let name = &text[at..];
        at += name.find(|c| !is_name(c)).unwrap_or(name.len());
        match text[at..].strip_prefix("::") {
            Some(next) if next.starts_with(is_start) => at += 2,
            _ => return at,
        }
    }
}

/// Returns the path without the crate and the modules of the standard library. Of another crate, the crate remains,
/// because a public type of it binds the users of rlock-core to its version.
pub(crate) fn shortened(path: &str) -> String {
    let names: Vec<&str> = path.split("::").collect();
    let [first, .., module, last] = names[..] else {
        return match names[..] {
            ["core" | "alloc" | "std", last] => last.to_owned(),
            _ => path.to_owned(),
        };
    };
    let is_std = matches!(first, "core" | "alloc" | "std");
    if !is_std {
        // `F::Output` is no path of a crate.
        return if first.starts_with(char::is_uppercase) {
            path.to_owned()
        } else {
            format!("{first}::{last}")
        };
    }
    let is_ambiguous = matches!(last, "Result" | "Error") && !matches!(module, "result" | "error");
    if is_ambiguous {
        format!("{module}::{last}")
    } else {
        last.to_owned()
    }
}

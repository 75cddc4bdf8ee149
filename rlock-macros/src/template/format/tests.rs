//! Tests which formats a placeholder accepts.

use super::check;
use crate::template::{Part, Placeholder, parse};

#[test]
fn every_format_without_arguments_is_accepted() {
    for format in [
        "?", "#?", "x?", "#X?", "x", "#x", "X", "o", "b", "#010b", "e", "E", "8", "08", "+",
        "+08.3", ".2", ".2e", "<8", "*^8", ":>8", "0>8", "é<8", ">>8", " <8", "-", "04?",
    ] {
        assert_eq!(check(format), Ok(()), "{format}");
    }
}

#[test]
fn formats_that_rust_refuses_are_refused() {
    for format in [
        "y", "??", "8 ", " 8", "8 8", "d", "s", "x8", "8.", ".", ".x", "#+", "{<8", "}", "id",
        "Debug",
    ] {
        let error = check(format).expect_err(format);
        assert!(error.contains("is not a format"), "{format}: {error}");
    }
}

#[test]
fn arguments_addresses_and_endless_widths_are_refused_for_what_they_are() {
    for format in ["w$", "8.*", ".p$", "*", "1$"] {
        let error = check(format).expect_err(format);
        assert!(error.contains("takes no arguments"), "{format}: {error}");
    }
    assert!(check("p").expect_err("p").contains("address"));
    assert!(check("#p").expect_err("p").contains("address"));
    assert!(check("").expect_err("empty").contains("no format stands"));
    assert_eq!(check("1024"), Ok(()));
    for format in ["1025", ".1025", "99999999999999999999999"] {
        assert!(check(format).expect_err(format).contains("too many"));
    }
}

fn error(template: &str) -> String {
    parse(template).expect_err(template)
}

/// The placeholder that a whole template is, as its path and its format.
#[track_caller]
fn formatted(template: &str) -> (String, Option<String>) {
    let parts = parse(template).unwrap();
    let [Part::Value(Placeholder { root, format, .. })] = &*parts else {
        panic!("{parts:?}")
    };
    (root.clone(), format.clone())
}

#[test]
fn a_format_stands_after_a_colon() {
    for (template, format) in [
        ("<id:?>", "?"),
        ("<id:08>", "08"),
        ("<id :#x>", "#x"),
        ("<id:_^8>", "_^8"),
        ("<id::^8>", ":^8"),
        ("<id: ^8>", " ^8"),
    ] {
        assert_eq!(
            formatted(template),
            ("id".to_owned(), Some(format.to_owned())),
            "{template}"
        );
    }
}

#[test]
fn an_alignment_by_brackets_is_doubled_like_them() {
    for (template, format) in [
        ("<id:>>8>", ">8"),
        ("<id:<<8>", "<8"),
        ("<id:0>>8>", "0>8"),
        ("<id:-<<8.2>", "-<8.2"),
        ("<id:é>>8?>", "é>8?"),
    ] {
        assert_eq!(
            formatted(template),
            ("id".to_owned(), Some(format.to_owned())),
            "{template}"
        );
    }
    assert!(error("<id:>8>").contains("an alignment is written twice"));
    assert!(error("<id:<8>").contains("is never closed"));
}

#[test]
fn brackets_after_a_format_are_literal() {
    for format in ["?", "x", "8", "08"] {
        let parts = parse(&format!("<id:{format}>>>")).expect(format);
        assert_eq!(parts[1], Part::Text(">".to_owned()), "{format}");
    }
}

//! Tests how key templates are parsed, and which are refused.

use super::placeholder::Step;
use super::{Part, Placeholder, parse};
use proc_macro2::Span;

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

fn value(text: &str, position: usize, root: &str, steps: Vec<Step>) -> Part {
    Part::Value(Placeholder {
        text: text.to_owned(),
        position,
        root: root.to_owned(),
        steps,
        format: None,
    })
}

fn field(name: &str) -> Step {
    Step::Field(name.to_owned())
}

fn call(name: &str) -> Step {
    Step::Call(name.to_owned())
}

fn error(template: &str) -> String {
    parse(template).expect_err(template)
}

#[test]
fn text_stands_verbatim_between_placeholders() {
    assert_eq!(parse("nightly").unwrap(), [text("nightly")]);
    assert_eq!(
        parse("order:<id>").unwrap(),
        [text("order:"), value("id", 7, "id", vec![])]
    );
    assert_eq!(
        parse("<a>:b%c d<e>").unwrap(),
        [
            value("a", 1, "a", vec![]),
            text(":b%c d"),
            value("e", 10, "e", vec![])
        ]
    );
}

#[test]
fn a_placeholder_walks_fields_calls_and_indices() {
    for (inside, root, steps) in [
        ("order.id", "order", vec![field("id")]),
        ("self.tenant", "self", vec![field("tenant")]),
        ("self", "self", vec![]),
        ("user.id()", "user", vec![call("id")]),
        ("pair.0", "pair", vec![Step::Index(0)]),
        ("pair.0.1", "pair", vec![Step::Index(0), Step::Index(1)]),
        (
            "a.b().c.0",
            "a",
            vec![call("b"), field("c"), Step::Index(0)],
        ),
        ("r#type", "r#type", vec![]),
        ("a.r#type", "a", vec![field("r#type")]),
        ("größe", "größe", vec![]),
        ("_id", "_id", vec![]),
        ("N", "N", vec![]),
        ("Self::NAME", "Self::NAME", vec![]),
        (
            "crate::limits::R1.0",
            "crate::limits::R1",
            vec![Step::Index(0)],
        ),
        ("ids[]", "ids", vec![Step::Each]),
        ("a.b()[].c", "a", vec![call("b"), Step::Each, field("c")]),
    ] {
        assert_eq!(
            parse(&format!("<{inside}>")).expect(inside),
            [value(inside, 1, root, steps)]
        );
    }
}

#[test]
fn a_constant_is_the_path_that_it_reads_as_and_may_have_a_format() {
    let parts = parse("<crate::m::LIMITS.0:08>:<N::>>8>").unwrap();
    let [Part::Value(limit), _, Part::Value(number)] = &*parts else {
        panic!("{parts:?}")
    };
    let expression = limit.expression(None, Span::call_site());
    assert_eq!(expression.to_string(), "crate :: m :: LIMITS . 0");
    assert_eq!(limit.format.as_deref(), Some("08"));
    assert_eq!(number.root, "N");
    assert_eq!(number.format.as_deref(), Some(":>8"));
}

#[test]
fn doubled_brackets_are_literal() {
    assert_eq!(parse("a<<b>>c").unwrap(), [text("a<b>c")]);
    assert_eq!(
        parse("<<<id>").unwrap(),
        [text("<"), value("id", 3, "id", vec![])]
    );
    assert_eq!(
        parse("<id>>>").unwrap(),
        [value("id", 1, "id", vec![]), text(">")]
    );
    assert_eq!(parse("<<>>").unwrap(), [text("<>")]);
}

#[test]
fn an_invalid_placeholder_is_refused() {
    for (template, part) in [
        ("a:<>", "`<>` at character 3 of the key names nothing"),
        ("a:< >", "`< >` at character 3 of the key names nothing"),
        ("<type>", "`type` is a keyword, write `r#type`"),
        ("<a.fn()>", "`fn` is a keyword, write `r#fn`"),
        ("<id()>", "is not a placeholder"),
        ("<0>", "is not a placeholder"),
        ("<a + b>", "is not a placeholder"),
        ("<a.>", "is not a placeholder"),
        ("<a..b>", "is not a placeholder"),
        ("<a.f(1)>", "is not a placeholder"),
        ("<a[0]>", "is not a placeholder"),
        ("<m::c>", "a path in a key names a constant"),
        ("<Self::name()>", "a path in a key names a constant"),
        ("<::C>", "a path in a key names a constant"),
        ("<m::fn::C>", "a path in a key names a constant"),
        ("<m:: C>", "`: C` is not a format"),
        ("<a[][]>", "is not a placeholder"),
        ("<a[].b[]>", "not through a list of lists"),
        ("<a[]>:<b[]>", "go through two lists"),
        ("<a.b[]>:<a.c[]>", "go through two lists"),
        ("<a.b/* c */>", "is not a placeholder"),
        ("<a//\n>", "is not a placeholder"),
        ("<a.b\u{200e}>", "is not a placeholder"),
        ("<a.\u{feff}b>", "is not a placeholder"),
        ("<a.0x1>", "`0x1` is not an index of a tuple"),
        (
            "<a.99999999999>",
            "`99999999999` is not an index of a tuple",
        ),
    ] {
        assert!(
            error(template).contains(part),
            "{template}: {}",
            error(template)
        );
    }
}

#[test]
fn placeholders_need_a_separator_that_no_value_contains() {
    for apart in [
        "<a>:<b>",
        "<a>-:-<b>",
        "{<a>}<b>",
        "<a>{<b>}",
        "<a>:<b>:<c>",
    ] {
        assert!(parse(apart).is_ok(), "{apart}");
    }
    for together in ["<a><b>", "<a>-<b>", "<a>%<b>", "<a>><<<b>", "<a>:<b><c>"] {
        assert!(parse(together).is_err(), "{together}");
    }
    assert_eq!(
        error("<a>/<b>"),
        "`<a>` and `<b>` at character 5 of the key run into each other, so that different values would share a key: \
         put `:` between them, as in `<a>:<b>`"
    );
}

#[test]
fn braces_are_one_closed_pair_around_something() {
    for tag in ["{order:<id>}:items", "{<id>}", "a{b}c", "{a}"] {
        assert!(parse(tag).is_ok(), "{tag}");
    }
    for (template, start) in [
        ("{}", "`}` at character 2"),
        ("a{}b", "`}` at character 3"),
        ("{a", "`{` at character 1"),
        ("a}", "`}` at character 2"),
        ("{a{b}}", "`{` at character 3"),
        ("{a}{b}", "`{` at character 4"),
        ("{a}}", "`}` at character 4"),
    ] {
        assert!(
            error(template).starts_with(start),
            "{template}: {}",
            error(template)
        );
    }
}

#[test]
fn a_key_has_a_byte_at_least_and_1024_at_most() {
    assert!(error("").starts_with("the key is empty"));
    assert!(parse(&"k".repeat(1024)).is_ok());
    assert_eq!(
        error(&"k".repeat(1025)),
        "the key has 1025 bytes, the longest may have 1024"
    );
    assert_eq!(
        error(&"ö".repeat(513)),
        "the key has 1026 bytes, the longest may have 1024"
    );
}

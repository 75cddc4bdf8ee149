//! Compares the attribute's page with the options.

use super::LockOption;

const PAGE: &str = include_str!("../../docs/attribute.md");

/// Returns the anchor of a heading, as rustdoc generates it.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_is_a_heading_of_the_page_or_an_address() {
    let anchors: Vec<String> = PAGE
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(anchor)
        .collect();
    // The crate that re-exports the attribute does not resolve links to items.
    for link in PAGE.split("](").skip(1) {
        let target = link.split(')').next().unwrap_or_default();
        let known = match target.strip_prefix('#') {
            Some(heading) => anchors.iter().any(|anchor| anchor == heading),
            None => target.starts_with("https://"),
        };
        assert!(known, "`{target}` leads nowhere");
    }
    for link in PAGE.split("[`").skip(1) {
        let (item, after) = link.split_once('`').unwrap_or_default();
        assert!(
            !after.starts_with(']') || after.starts_with("]("),
            "[`{item}`] needs an address"
        );
    }
}

#[test]
fn every_option_has_a_row_and_a_heading() {
    for option in LockOption::ALL {
        let row = format!("| [`{}`](#", option.name());
        assert!(PAGE.contains(&row), "no row of `{}`", option.name());
    }
    let rows = PAGE.matches("\n| [`").count();
    assert_eq!(rows, LockOption::ALL.len(), "rows and options differ");
}

//! Compares the attribute's page with the options.

use super::LockOption;

const PAGE: &str = include_str!("../../docs/attribute.md");

#[test]
fn every_link_is_a_heading_of_the_page_or_an_address() {
    // `scripts/links` checks that the heading exists.
    for link in PAGE.split("](").skip(1) {
        let leads_somewhere = link.starts_with('#') || link.starts_with("https://");
        assert!(
            leads_somewhere,
            "`{}`",
            link.split(')').next().unwrap_or_default()
        );
    }
    // The crate that re-exports the attribute does not resolve links to items.
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

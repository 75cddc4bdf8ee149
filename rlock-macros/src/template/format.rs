//! Parses the format of a placeholder, such as `?`, `08` or `.2`.

use super::LONGEST;

/// Returns an error that describes what is wrong with a format.
pub(super) fn check(format: &str) -> Result<(), String> {
    if format.is_empty() {
        return Err("no format stands after the colon: leave the colon out, or write one, as in `<id:08>`; \
             an alignment is written twice, as in `<id:>>8>`"
            .to_owned());
    }
    let spec = Spec::of(format);
    if spec.rest.contains(['$', '*']) {
        return Err(
            "a format in a key takes no arguments: write the number itself, as in `<id:08>`"
                .to_owned(),
        );
    }
    if spec.rest == "p" {
        return Err(
            "an address differs from process to process, so the processes would share no key"
                .to_owned(),
        );
    }
    if !spec.is_known() {
        return Err(format!(
            "`{format}` is not a format: write what stands after the colon in `{{:…}}`, as in `<id:?>`, `<id:08>`, `<id:#x>`"
        ));
    }
    if let Some(number) = spec.numbers.into_iter().find(|number| is_too_long(number)) {
        return Err(format!(
            "{number} characters are too many, the longest key has {LONGEST} bytes"
        ));
    }
    Ok(())
}

/// Splits a placeholder at the colon into the path and the format.
///
/// `::` before a name separates path segments. Otherwise it starts a format that fills with `:`.
pub(super) fn split(placeholder: &str) -> (&str, Option<&str>) {
    let is_start = |c: char| c == '_' || c.is_alphabetic();
    let mut from = 0;
    while let Some(found) = placeholder[from..].find(':') {
        let (path, format) = (
            &placeholder[..from + found],
            &placeholder[from + found + 1..],
        );
        if !format
            .strip_prefix(':')
            .is_some_and(|name| name.starts_with(is_start))
        {
            return (path, Some(format));
        }
        from = path.len() + 2;
    }
    (placeholder, None)
}

/// Returns whether an alignment may follow after `placeholder`: right after the colon, or after one
/// character to fill with.
///
/// A character that is a whole format is not taken for one to fill with: `<id:?>>>` is `<id:?>`
/// and a literal bracket.
pub(super) fn may_be_aligned(placeholder: &str) -> bool {
    let (_, Some(format)) = split(placeholder) else {
        return false;
    };
    let mut characters = format.chars();
    match (characters.next(), characters.next()) {
        (None, _) => true,
        (Some(fill), None) => !matches!(
            fill,
            '?' | 'x' | 'X' | 'o' | 'b' | 'e' | 'E' | '1'..='9' | '<' | '^' | '>'
        ),
        (Some(_), Some(_)) => false,
    }
}

/// A format taken apart.
struct Spec<'a> {
    /// Width and precision.
    numbers: [&'a str; 2],
    /// What comes after them, the trait.
    rest: &'a str,
}

impl<'a> Spec<'a> {
    fn of(format: &'a str) -> Self {
        let aligned = without_alignment(format);
        let signed = aligned.strip_prefix(['+', '-']).unwrap_or(aligned);
        let plain = signed.strip_prefix('#').unwrap_or(signed);
        let (width, rest) = split_number(plain);
        // A dot without a number stays in the rest, which is wrong then.
        let (precision, rest) = match rest.strip_prefix('.').map(split_number) {
            Some((precision, after)) if !precision.is_empty() => (precision, after),
            _ => ("", rest),
        };
        Self {
            numbers: [width, precision],
            rest,
        }
    }

    fn is_known(&self) -> bool {
        matches!(
            self.rest,
            "" | "?" | "x?" | "X?" | "x" | "X" | "o" | "b" | "e" | "E"
        )
    }
}

fn without_alignment(format: &str) -> &str {
    let mut characters = format.chars();
    let first = characters.next();
    let filled = characters.as_str();
    match filled.strip_prefix(['<', '^', '>']) {
        Some(aligned) if !matches!(first, Some('{' | '}')) => aligned,
        _ => format.strip_prefix(['<', '^', '>']).unwrap_or(format),
    }
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

fn is_too_long(number: &str) -> bool {
    !number.is_empty()
        && number
            .parse::<usize>()
            .map_or(true, |number| number > LONGEST)
}

#[cfg(test)]
#[path = "format/tests.rs"]
mod tests;

//! The compiler's diagnostics, reduced to their comparable parts.

use serde_json::Value;

/// A warning or an error.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Diagnostic {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// `unused_variables`, `E0382`, or nothing.
    pub(crate) code: String,
    pub(crate) is_error: bool,
    pub(crate) message: String,
}

impl Diagnostic {
    /// Parses a diagnostic from the compiler's JSON. Skips summaries such as "3 warnings emitted".
    pub(crate) fn of(message: &Value) -> Option<Self> {
        let spans = message["spans"].as_array()?;
        let primary = spans.iter().find(|span| span["is_primary"] == true)?;
        let (file, line, column) = in_our_sources(primary)?;
        Some(Self {
            file,
            line,
            column,
            code: message["code"]["code"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            is_error: message["level"] == "error",
            message: message["message"].as_str()?.to_owned(),
        })
    }
}

/// Returns the module, line and column of a span. For a span inside a foreign macro, returns the place of the call.
fn in_our_sources(span: &Value) -> Option<(String, usize, usize)> {
    let file = span["file_name"].as_str()?;
    if let Some((_, name)) = file.rsplit_once("src/")
        && let Some(name) = name.strip_suffix(".rs")
        && !file.starts_with('/')
    {
        let number = |name: &str| usize::try_from(span[name].as_u64()?).ok();
        return Some((
            name.to_owned(),
            number("line_start")?,
            number("column_start")?,
        ));
    }
    in_our_sources(&span["expansion"]["span"])
}

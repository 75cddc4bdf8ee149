//! The permanent differences, each with its reason and a sentence of the documentation.

use std::path::Path;
use std::{fs, io};

use serde::Deserialize;

use super::findings::{Change, Finding};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    known: Vec<Known>,
}

/// A difference that is not a fault, or a fault that cannot be fixed.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    pub(crate) change: Change,
    /// The lint or the error. For a value, the end of its name.
    pub(crate) code: String,
    /// A part of the message, if the code is not specific.
    #[serde(default)]
    message: String,
    /// All shapes with this difference, as `file` or `file::function`. An empty list allows the difference
    /// everywhere.
    #[serde(default)]
    pub(crate) shapes: Vec<String>,
    /// The cause of the difference.
    pub(crate) reason: String,
    /// The sentence of `docs/attribute.md` about it.
    pub(crate) documented: String,
}

impl Known {
    pub(crate) fn read(path: &Path) -> io::Result<Vec<Self>> {
        let text = fs::read_to_string(path)?;
        let file: File = toml::from_str(&text).map_err(io::Error::other)?;
        Ok(file.known)
    }

    pub(crate) fn covers(&self, finding: &Finding) -> bool {
        let code = match self.change {
            Change::Value => finding.code.ends_with(&self.code),
            Change::Appears | Change::Disappears | Change::Reworded => finding.code == self.code,
        };
        let is_named = |shape: &String| covers_shape(shape, finding);
        self.change == finding.change
            && code
            && finding.message.contains(&self.message)
            && (self.shapes.is_empty() || self.shapes.iter().any(is_named))
    }

    /// Returns the listed differences that no longer occur.
    pub(crate) fn gone(&self, findings: &[&Finding]) -> Vec<String> {
        let covered: Vec<_> = findings
            .iter()
            .filter(|finding| self.covers(finding))
            .collect();
        let Self { change, code, .. } = self;
        if self.shapes.is_empty() {
            let gone = covered
                .is_empty()
                .then(|| format!("{code} {change:?}, anywhere"));
            return gone.into_iter().collect();
        }
        let gone = |shape: &&String| !covered.iter().any(|finding| covers_shape(shape, finding));
        let shapes = self.shapes.iter().filter(gone);
        shapes
            .map(|shape| format!("{code} {change:?}, in {shape}"))
            .collect()
    }
}

fn covers_shape(shape: &str, finding: &Finding) -> bool {
    let (file, function) = shape.split_once("::").unwrap_or((shape, ""));
    file == finding.file && (function.is_empty() || function == finding.shape)
}

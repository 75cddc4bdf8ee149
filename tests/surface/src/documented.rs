//! Reads what rustdoc has written about a crate: its public items as text, and what the text leaves out.

use std::{fs, path::Path};

use public_api::Builder;
use serde_json::Value;

/// A crate's public items.
pub(crate) struct Documented {
    pub(crate) items: Vec<Item>,
    json: Value,
}

/// One item, as public-api shows it: `pub fn rlock_core::LockGuard::is_valid(&self) -> bool`.
pub(crate) struct Item {
    pub(crate) id: u32,
    /// The item that contains this one, such as the `impl` of a method.
    pub(crate) parent: Option<u32>,
    pub(crate) text: String,
}

impl Documented {
    /// Reads the JSON of rustdoc.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let failed = |reason: String| format!("could not read {}: {reason}", path.display());
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let json = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        let api = Builder::from_rustdoc_json(path)
            .omit_auto_trait_impls(true)
            .omit_blanket_impls(true)
            .include_function_parameter_names(true)
            .build()
            .map_err(|error| {
                failed(format!(
                    "{error}; does the version of public-api match the toolchain's rustdoc?"
                ))
            })?;
        let items = api.items().map(|item| Item {
            id: item.id().0,
            parent: item.parent_id().map(|parent| parent.0),
            text: item.to_string(),
        });
        Ok(Self {
            items: items.collect(),
            json,
        })
    }

    /// Returns the path at which the item of this id is defined, even in another crate.
    fn definition(&self, id: &Value) -> Option<String> {
        let path = self.json["paths"][id.to_string()]["path"].as_array()?;
        let segments: Option<Vec<&str>> = path.iter().map(Value::as_str).collect();
        Some(segments?.join("::"))
    }

    fn imports(&self) -> impl Iterator<Item = (&Value, &Value)> {
        let items = self.json["index"].as_object().into_iter().flatten();
        items.filter_map(|(_, item)| Some((item, item["inner"].get("use")?)))
    }

    /// Returns where the item that a `pub use` exports is defined.
    pub(crate) fn origin(&self, export: &Item) -> Option<String> {
        let import = &self.json["index"][export.id.to_string()]["inner"]["use"];
        self.definition(&import["id"])
    }

    /// Returns the feature of the crate without which the item, or what contains it, is missing.
    pub(crate) fn feature(&self, item: &Item) -> Option<&str> {
        let of = |id: u32| gate(&self.json["index"][id.to_string()]);
        let of_import = || {
            let mut exports = self.imports().filter(|(_, import)| import["id"] == item.id);
            exports.find_map(|(item, _)| gate(item))
        };
        of(item.id).or_else(|| of(item.parent?)).or_else(of_import)
    }
}

/// Returns the feature in an item's attribute `cfg`, which rustdoc shows as the compiler does.
fn gate(item: &Value) -> Option<&str> {
    let attributes = item["attrs"].as_array()?.iter();
    let mut texts = attributes.filter_map(|attribute| attribute["other"].as_str());
    texts.find_map(|text| {
        let (_, value) = text
            .strip_prefix("#[attr = CfgTrace(")?
            .split_once("name: \"feature\", value: Some(\"")?;
        Some(value.split_once('"')?.0)
    })
}

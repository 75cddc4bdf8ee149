//! What the attribute rejects is in `ui`; `tests/ui.rs` tries it. `shapes` has functions with it and without.

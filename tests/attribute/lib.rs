//! What the attribute accepts and rejects is in `ui`; `tests/ui.rs` tries it.

//! The JSON Schema of `weir.toml`, from the types that read it.

use crate::cli::config::WeirToml;

/// The schema, for an editor that completes and checks TOML.
pub fn pretty() -> String {
    let schema = schemars::schema_for!(WeirToml);
    serde_json::to_string_pretty(schema.as_value()).expect("a schema is plain JSON")
}

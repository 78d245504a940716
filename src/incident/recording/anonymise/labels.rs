//! Which values of labels name nobody, and what the others are names of. Remembers nothing.
//!
//! A label's name alone is no proof: the values of the commonest names are listed, and a value that
//! could be a path or an address never stays.

/// Labels whose values come out of programs and name nobody.
const KEPT_LABELS: &[&str] = &[
    "action",
    "asked",
    "attempt",
    "cause",
    "class",
    "code",
    "decision",
    "direction",
    "envoy_response_code",
    "envoy_response_code_class",
    "error_code",
    "error_type",
    "evidence",
    "exception_class",
    "exception_status",
    "finished_reason",
    "flag",
    "gen_ai_operation_name",
    "gen_ai_token_type",
    "kind",
    "lane",
    "layer",
    "le",
    "meter",
    "method",
    "mode",
    "outcome",
    "phase",
    "quantile",
    "reason",
    "request_type",
    "response_source",
    "result",
    "severity",
    "stage",
    "state",
    "status",
    "status_code",
    "status_class",
    "store",
    "token_type",
    "unit",
    "version",
    "window",
];
/// Labels that everybody uses for something else, with the values that adapters select by.
const KEPT_VALUES: &[(&str, &[&str])] = &[
    ("from", &["closed", "half_open", "open"]),
    ("source", &["kong", "own", "provider", "service"]),
    ("to", &["closed", "half_open", "open"]),
    ("type", &["request", "requests", "tokens", "upstream"]),
];
/// Labels whose names are words of their own for what they name.
const WORDS: &[(&str, &str)] = &[
    ("tenant", "tenant"),
    ("team", "tenant"),
    ("team_alias", "tenant"),
    ("consumer", "tenant"),
    ("user", "tenant"),
    ("end_user", "tenant"),
    ("customer", "tenant"),
    ("org", "tenant"),
    ("api_key", "key"),
    ("api_key_alias", "key"),
    ("hashed_api_key", "key"),
    ("key", "key"),
    ("virtual_key", "key"),
    ("virtual_key_name", "key"),
    ("virtual_key_id", "key"),
    ("instance", "host"),
    ("host", "host"),
    ("hostname", "host"),
    ("pod", "host"),
    ("node", "host"),
    ("server", "host"),
    ("endpoint", "host"),
    ("url", "host"),
    ("api_base", "host"),
    ("scope", "scope"),
    ("model", "model"),
    ("model_id", "model"),
    ("model_name", "model"),
];
/// Names that everybody's are called, of sources, environments and listeners.
const COMMON: &[&str] = &[
    "admin",
    "gateway",
    "provider",
    "clients",
    "weir",
    "litellm",
    "envoy",
    "production",
    "staging",
    "drill",
    "dev",
    "development",
    "test",
    "virtual",
];
/// What adapters tell the paths of an API by, and a path of which nothing else is left.
const API: &str = "/v1/";
const API_PATH: &str = "/v1/path";

/// Whether this value of this label comes out of a program and names nobody.
pub fn stays(label: &str, value: &str) -> bool {
    if value.contains(['/', '@']) {
        return false;
    }
    let values = KEPT_VALUES.iter().find(|(name, _)| *name == label);
    KEPT_LABELS.contains(&label) || values.is_some_and(|(_, values)| values.contains(&value))
}

/// What a value that does not stay is called.
pub fn kind<'a>(label: &'a str, value: &str) -> &'a str {
    if value.contains(API) {
        return API_PATH;
    }
    WORDS.iter().find(|(name, _)| *name == label).map_or(label, |(_, word)| word)
}

/// Whether a name says no more than what something is.
pub fn is_common(name: &str) -> bool {
    name.is_empty() || COMMON.contains(&name)
}

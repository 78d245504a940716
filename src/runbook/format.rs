//! The TOML of a runbook's blocks, key by key. Unknown keys are errors.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use toml::value::Datetime;

/// The `toml weir.runbook` block.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) format: u32,
    pub(super) owner: String,
    pub(super) reviewed: Spanned<Datetime>,
    pub(super) review_every: Spanned<String>,
    #[serde(default)]
    pub(super) scope: Vec<String>,
    #[serde(default)]
    pub(super) opens_on: Vec<String>,
    pub(super) entry: Spanned<String>,
    #[serde(default)]
    pub(super) signals: BTreeMap<Spanned<String>, String>,
    #[serde(default)]
    pub(super) evidence: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(super) flags: BTreeMap<String, Bounds>,
    pub(super) cause: Option<CauseBlock>,
}

/// `[cause]`: what the cause rests on, and what may be offered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CauseBlock {
    pub(super) say: String,
    #[serde(default)]
    pub(super) requires: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) supports: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) refutes: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) unless: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) tentative: Vec<Spanned<String>>,
    pub(super) plan: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) feeds: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) asked_at: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) pages_owner: bool,
    #[serde(default)]
    pub(super) lasting: String,
    #[serde(default)]
    pub(super) price: String,
}

/// Within which bounds a file may touch a flag.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bounds {
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    pub(super) values: Option<Vec<toml::Value>>,
}

/// The kind of a node, read before the rest.
#[derive(Debug, Deserialize)]
pub(super) struct KindOnly {
    pub(super) kind: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecideBlock {
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    pub(super) show: Vec<String>,
    pub(super) otherwise: Option<Spanned<String>>,
    pub(super) unknown: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) branch: Vec<BranchBlock>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BranchBlock {
    pub(super) when: Spanned<String>,
    pub(super) say: String,
    pub(super) goto: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RankBlock {
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    pub(super) show: Vec<String>,
    #[serde(default)]
    pub(super) among: Vec<Spanned<String>>,
    pub(super) none: Option<Spanned<String>>,
    pub(super) unknown: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) hypothesis: Vec<HypothesisBlock>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HypothesisBlock {
    pub(super) id: String,
    pub(super) title: String,
    #[serde(default)]
    pub(super) requires: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) supports: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) refutes: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) unless: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) tentative: Vec<Spanned<String>>,
    pub(super) goto: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HumanBlock {
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    pub(super) show: Vec<String>,
    pub(super) ask: String,
    pub(super) answers: BTreeMap<String, Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionBlock {
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    pub(super) show: Vec<String>,
    pub(super) flag: Spanned<String>,
    pub(super) set: Spanned<toml::Value>,
    pub(super) direction: Spanned<DirectionWord>,
    #[serde(default)]
    pub(super) needs: BTreeMap<String, toml::Value>,
    pub(super) guard: Spanned<String>,
    pub(super) preview: Vec<Spanned<String>>,
    pub(super) confirm: ConfirmWord,
    pub(super) second_person: Option<String>,
    pub(super) ttl: Spanned<String>,
    pub(super) on_expire: Spanned<ExpireWord>,
    pub(super) verify: Spanned<String>,
    pub(super) verify_within: Spanned<String>,
    pub(super) verified: Spanned<String>,
    pub(super) failed: Spanned<String>,
    pub(super) unknown: Spanned<String>,
    pub(super) undo: Option<UndoBlock>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum DirectionWord {
    Safe,
    Unsafe,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum ConfirmWord {
    Enter,
    Type,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum ExpireWord {
    Remind,
    Revert,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UndoBlock {
    pub(super) set: Spanned<toml::Value>,
    pub(super) goto: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndBlock {
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    pub(super) show: Vec<String>,
    pub(super) outcome: OutcomeWord,
    pub(super) say: String,
    pub(super) cause: Option<Spanned<String>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OutcomeWord {
    Resolved,
    NotApplicable,
    Inconclusive,
    Unresolved,
}

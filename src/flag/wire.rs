//! The admin API's JSON, field by field, for both ends: the client here and the gateway's server.
//!
//! Holds no rules beyond shape: values are checked by the flag table of `admission`, interlocks by
//! the gate and by [`super::plan`]. Unknown request fields are refused, because a misspelt `ttl_s`
//! that is ignored would be a flip without a timer.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::admission::{FlagValue, Kind, flag};

use super::types::{FlagState, FlagTable, OnExpire, Revision};

pub use super::event_wire::{EventChangeRow, EventRow, EventsBody, NoteBody};
pub use super::forecast::wire::{
    CameRow, EarlierRow, ForecastBody, HindsightRow, MeasureRow, ScopeRow,
};
pub use super::plan_wire::{GuardRow, PlanBody, PlannedRow};
pub use super::snapshot_wire::{ReadingRow, SnapshotBody, SnapshotsBody};

/// Path of the table.
pub const FLAGS_PATH: &str = "/admin/v1/flags";
/// Path of a change of several flags.
pub const APPLY_PATH: &str = "/admin/v1/flags:apply";
/// Path of the dry run.
pub const PLAN_PATH: &str = "/admin/v1/flags:plan";
/// Path of the audit.
pub const EVENTS_PATH: &str = "/admin/v1/events";
/// Path of the notes, which stand among the events.
pub const NOTES_PATH: &str = "/admin/v1/notes";
/// Header of the second token, which an [`OverrideRow`] needs.
pub const BREAK_GLASS_HEADER: &str = "x-weir-break-glass";
/// Path of the signals as the gate sees them.
pub const SNAPSHOT_PATH: &str = "/admin/v1/snapshot";
/// One original is below this, by its number.
pub const ORIGINALS_PATH: &str = "/admin/v1/originals";

/// A flag's value as plain JSON: `true`, `2`, `0.5`, `"enforce"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WireValue {
    /// A switch.
    Bool(bool),
    /// A whole number, written without a fraction.
    Whole(i64),
    /// Any other number.
    Number(f64),
    /// A word.
    Word(String),
}

impl From<&FlagValue> for WireValue {
    fn from(value: &FlagValue) -> Self {
        /// Above this, neighbouring whole numbers share one float.
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        match value {
            FlagValue::Bool(on) => Self::Bool(*on),
            FlagValue::Number(number) if number.fract() == 0.0 && number.abs() <= EXACT_MAX =>
            {
                #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
                Self::Whole(*number as i64)
            }
            FlagValue::Number(number) => Self::Number(*number),
            FlagValue::Word(word) => Self::Word(word.clone()),
        }
    }
}

impl From<WireValue> for FlagValue {
    fn from(value: WireValue) -> Self {
        match value {
            WireValue::Bool(on) => Self::Bool(on),
            #[expect(
                clippy::cast_precision_loss,
                reason = "the flag table bounds values below 2^53"
            )]
            WireValue::Whole(whole) => Self::Number(whole as f64),
            WireValue::Number(number) => Self::Number(number),
            WireValue::Word(word) => Self::Word(word),
        }
    }
}

/// What a timer does when it runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WireOnExpire {
    /// Drops the override.
    Revert,
    /// Leaves it and reminds people.
    Remind,
}

impl From<OnExpire> for WireOnExpire {
    fn from(on_expire: OnExpire) -> Self {
        match on_expire {
            OnExpire::Revert => Self::Revert,
            OnExpire::Remind => Self::Remind,
        }
    }
}

impl From<WireOnExpire> for OnExpire {
    fn from(on_expire: WireOnExpire) -> Self {
        match on_expire {
            WireOnExpire::Revert => Self::Revert,
            WireOnExpire::Remind => Self::Remind,
        }
    }
}

/// What a flag accepts, as a word. A key that this build does not know is `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WireKind {
    /// true or false.
    Bool,
    /// A whole number.
    Whole,
    /// A number.
    Real,
    /// One of a few words.
    Word,
    /// Of a newer server.
    #[serde(other)]
    Unknown,
}

impl WireKind {
    /// The kind of the flag with this key.
    #[must_use]
    pub fn of(key: &str) -> Self {
        match flag(key).map(|def| def.kind) {
            Ok(Kind::Bool) => Self::Bool,
            Ok(Kind::Whole { .. }) => Self::Whole,
            Ok(Kind::Real { .. }) => Self::Real,
            Ok(Kind::Words(_)) => Self::Word,
            Err(_) => Self::Unknown,
        }
    }
}

/// One flag of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlagRow {
    /// Its key.
    pub key: String,
    /// What it accepts.
    #[serde(rename = "type")]
    pub kind: WireKind,
    /// The value without an override.
    pub base: WireValue,
    /// The override, null when there is none.
    #[serde(rename = "override")]
    pub overridden: Option<WireValue>,
    /// What each instance uses, by instance name.
    pub effective: BTreeMap<String, WireValue>,
    /// Revision of its last change, 0 when it was never changed.
    pub revision: u64,
    /// Its safe end.
    pub safe: WireValue,
    /// Who changed it last.
    pub by: Option<String>,
    /// When.
    pub at: Option<DateTime<Utc>>,
    /// When its timer runs out.
    pub expires: Option<DateTime<Utc>>,
    /// What the timer does then; absent without one, and where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_expire: Option<WireOnExpire>,
    /// Its last change passed interlocks by break-glass; absent when it did not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub break_glass: bool,
}

/// `GET flags`, and the answer to every change: the whole table at one revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableBody {
    /// The table's revision, also sent as the `ETag`.
    pub revision: u64,
    /// Every flag, in the order of the flag table.
    pub flags: Vec<FlagRow>,
}

impl From<&FlagTable> for TableBody {
    fn from(table: &FlagTable) -> Self {
        let row = |flag: &FlagState| FlagRow {
            key: flag.key.clone(),
            kind: WireKind::of(&flag.key),
            base: (&flag.base).into(),
            overridden: flag.overridden.as_ref().map(WireValue::from),
            effective: flag
                .effective
                .iter()
                .map(|(instance, value)| (instance.clone(), value.into()))
                .collect(),
            revision: flag.revision.0,
            safe: (&flag.safe).into(),
            by: flag.by.clone(),
            at: flag.at,
            expires: flag.expires,
            on_expire: flag.timer().map(|(_, what)| what.into()),
            break_glass: flag.broke_glass(),
        };
        Self { revision: table.revision.0, flags: table.flags.iter().map(row).collect() }
    }
}

impl From<TableBody> for FlagTable {
    fn from(body: TableBody) -> Self {
        let state = |row: FlagRow| FlagState {
            key: row.key,
            base: row.base.into(),
            overridden: row.overridden.map(FlagValue::from),
            effective: row
                .effective
                .into_iter()
                .map(|(instance, value)| (instance, value.into()))
                .collect(),
            safe: row.safe.into(),
            revision: Revision(row.revision),
            by: row.by,
            at: row.at,
            expires: row.expires,
            on_expire: row.on_expire.map(OnExpire::from),
        };
        Self {
            revision: Revision(body.revision),
            flags: body.flags.into_iter().map(state).collect(),
        }
    }
}

/// One wanted change of an [`ApplyBody`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeRow {
    /// The flag.
    pub key: String,
    /// The value to store; null drops the override. It must be there: a field that was forgotten
    /// must not drop anything.
    #[serde(deserialize_with = "Option::deserialize")]
    pub value: Option<WireValue>,
}

/// `POST flags:apply` and `POST flags:plan`: several flags under one reason, all or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyBody {
    /// The changes; no key twice.
    pub changes: Vec<ChangeRow>,
    /// Seconds until the timer, when one is wanted.
    pub ttl_s: Option<u64>,
    /// What the timer does.
    pub on_expire: WireOnExpire,
    /// Why. Must not be empty.
    pub reason: String,
    /// Who. Must not be empty.
    pub actor: String,
    /// The incident that it belongs to.
    pub incident: Option<String>,
    /// Makes a repeat harmless. Must not be empty.
    pub request_id: String,
    /// Where the author's journal stands; kept with the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// Carries it out although interlocks refuse.
    #[serde(rename = "override", default, skip_serializing_if = "Option::is_none")]
    pub overriding: Option<OverrideRow>,
}

/// The wish to pass interlocks. It counts only beside the second token, in [`BREAK_GLASS_HEADER`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideRow {
    /// By what right.
    pub by: OverrideBy,
    /// Why the interlocks do not count this time. Must not be empty.
    pub reason: String,
}

/// By what right interlocks are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OverrideBy {
    /// The second token, kept for the case that an interlock stands in the way of the cure.
    #[serde(rename = "break-glass")]
    BreakGlass,
}

/// `PUT flags/{key}` and, without a value, `DELETE flags/{key}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlagBody {
    /// The value to store; null or absent drops the override.
    pub value: Option<WireValue>,
    /// As in [`ApplyBody`].
    pub ttl_s: Option<u64>,
    /// As in [`ApplyBody`].
    pub on_expire: WireOnExpire,
    /// As in [`ApplyBody`].
    pub reason: String,
    /// As in [`ApplyBody`].
    pub actor: String,
    /// As in [`ApplyBody`].
    pub incident: Option<String>,
    /// As in [`ApplyBody`].
    pub request_id: String,
    /// As in [`ApplyBody`].
    #[serde(rename = "override", default, skip_serializing_if = "Option::is_none")]
    pub overriding: Option<OverrideRow>,
}

impl FlagBody {
    /// The same change as an [`ApplyBody`], so that a server has one path for both.
    #[must_use]
    pub fn into_apply(self, key: impl Into<String>) -> ApplyBody {
        ApplyBody {
            changes: vec![ChangeRow { key: key.into(), value: self.value }],
            ttl_s: self.ttl_s,
            on_expire: self.on_expire,
            reason: self.reason,
            actor: self.actor,
            incident: self.incident,
            request_id: self.request_id,
            anchor: None,
            overriding: self.overriding,
        }
    }
}

/// Why the admin API refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// No bearer token, or a wrong one.
    Unauthorized,
    /// A good token without the right to do this.
    Forbidden,
    /// No such flag.
    UnknownFlag,
    /// An interlock refuses.
    Interlock,
    /// The table has moved on since it was read.
    Revision,
    /// A value or the body does not fit.
    Value,
    /// A change without `If-Match`.
    IfMatchRequired,
    /// The token asks too often.
    RateLimited,
    /// Of a newer server.
    #[serde(other)]
    Other,
}

impl ErrorCode {
    /// The HTTP status that goes with it.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::UnknownFlag => 404,
            Self::Interlock => 409,
            Self::Revision => 412,
            Self::Value => 422,
            Self::IfMatchRequired => 428,
            Self::RateLimited => 429,
            Self::Other => 500,
        }
    }
}

/// The inside of an [`ErrorBody`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// For programs.
    pub code: ErrorCode,
    /// For people: what is wrong and what would be right.
    pub message: String,
    /// The present table; always there with [`ErrorCode::Revision`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub current: Option<TableBody>,
}

/// Every refusal of the admin API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

impl ErrorBody {
    /// A refusal without a table.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { error: ErrorDetail { code, message: message.into(), current: None } }
    }

    /// Adds the table as it is now.
    #[must_use]
    pub fn with_current(mut self, current: TableBody) -> Self {
        self.error.current = Some(current);
        self
    }
}

/// A revision as the `ETag` and `If-Match` headers carry it.
#[must_use]
pub fn etag(revision: Revision) -> String {
    format!("\"{revision}\"")
}

/// Reads an `If-Match` header: one quoted revision. `*` and lists are `None`, since a change that
/// fits any revision is what the header is there to prevent.
#[must_use]
pub fn parse_if_match(header: &str) -> Option<Revision> {
    let digits = header.trim().strip_prefix('"')?.strip_suffix('"')?;
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().ok()).flatten().map(Revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_plain_json() {
        let check = |value: FlagValue, expected: &str| {
            let wire = serde_json::to_string(&WireValue::from(&value)).expect("plain");
            assert_eq!(wire, expected);
            let back: WireValue = serde_json::from_str(&wire).expect("own output");
            assert_eq!(FlagValue::from(back), value);
        };
        check(FlagValue::Bool(true), "true");
        check(FlagValue::Number(2.0), "2");
        check(FlagValue::Number(0.98), "0.98");
        check(FlagValue::Word("off".to_owned()), "\"off\"");
    }

    #[test]
    fn a_forgotten_value_is_not_a_drop() {
        let body = |change: serde_json::Value| {
            serde_json::from_value::<ApplyBody>(json!({
                "changes": [change], "on_expire": "remind", "reason": "r", "actor": "a",
                "request_id": "1",
            }))
        };
        assert!(body(json!({"key": "retry.owner"})).is_err());
        let dropped = body(json!({"key": "retry.owner", "value": null})).expect("explicit null");
        assert_eq!(dropped.changes[0].value, None);
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let body = json!({"value": 2, "ttl": 60, "on_expire": "remind", "reason": "r",
            "actor": "a", "request_id": "1"});
        let error = serde_json::from_value::<FlagBody>(body).expect_err("ttl is not ttl_s");
        assert!(error.to_string().contains("unknown field `ttl`"), "{error}");
    }

    #[test]
    fn if_match_takes_one_revision_only() {
        for (header, expected) in [
            ("\"41\"", Some(Revision(41))),
            (" \"0\" ", Some(Revision(0))),
            ("41", None),
            ("*", None),
            ("W/\"41\"", None),
            ("\"41\", \"42\"", None),
            ("\"+41\"", None),
            ("\"\"", None),
        ] {
            assert_eq!(parse_if_match(header), expected, "{header}");
        }
        assert_eq!(parse_if_match(&etag(Revision(7))), Some(Revision(7)));
    }

    #[test]
    fn a_newer_servers_words_do_not_break_the_client() {
        let error: ErrorBody =
            serde_json::from_value(json!({"error": {"code": "quorum", "message": "m"}}))
                .expect("unknown codes are read");
        assert_eq!(error.error.code, ErrorCode::Other);
    }
}

//! A file of flags in flagd's format: what weir reads out of it, and how it writes into it.
//!
//! Each flag of weir is the flagd flag of the same key behind a prefix. What is in force is the variant
//! that `defaultVariant` names; weir adds the variants `base` and `override`, and keeps its bookkeeping
//! in `metadata`, where flagd allows text, numbers and switches. Everything else stays as it is.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Value;

use crate::admission::{FLAGS, FlagDef, FlagValue, Kind, Settings};
use crate::flag::types::{FlagTable, Revision};
use crate::flag::wire::WireValue;

use super::super::json_value;
use super::super::layer::{self, Held};
use super::object::Object;

const FLAGS_NAME: &str = "flags";
const METADATA: &str = "metadata";
const VARIANTS: &str = "variants";
const DEFAULT_VARIANT: &str = "defaultVariant";
const TARGETING: &str = "targeting";

const BASE: &str = "base";
const OVERRIDE: &str = "override";

/// Names of the bookkeeping.
const BY: &str = "weir.by";
const AT: &str = "weir.at";
const REASON: &str = "weir.reason";
const INCIDENT: &str = "weir.incident";
const EXPIRES: &str = "weir.expires";
const REVISION: &str = "weir.revision";
const SEAL: &str = "weir.seal";
const REQUEST: &str = "weir.request";

/// Who changed a flag past weir: the file does not say.
const OUTSIDE: &str = "outside";

/// Room for the contents of one written revision: two edits past weir fall together once in a million.
const CONTENTS: u64 = 1_000_000;

/// Who changes something, and why.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub by: String,
    pub at: DateTime<Utc>,
    pub reason: String,
    pub incident: Option<String>,
    /// When the timer of an override runs out. The file cannot drop it.
    pub expires: Option<DateTime<Utc>>,
    /// The revision's number that the change makes.
    pub number: u64,
    pub request_id: String,
}

/// One file of flags.
#[derive(Clone, Debug)]
pub(super) struct Document {
    top: Object,
    flags: Object,
    metadata: Object,
    prefix: String,
}

impl Document {
    /// Reads a file's text. The error says where, and what to do.
    pub(super) fn parse(text: &str, prefix: &str) -> Result<Self, String> {
        let top = Object::parse(text).map_err(|error| {
            format!("is no flagd JSON: {error}; put it right, or take it back from where it came")
        })?;
        let part = |name: &str| {
            let Some(part) = top.get(name) else { return Ok(None) };
            Object::parse(part).map(Some).map_err(|error| {
                let before = text.find(part).and_then(|at| text.get(..at)).unwrap_or_default();
                let line = before.matches('\n').count() + error.line();
                format!("has a bad `{name}` at line {line}: {}; put it right", what(&error))
            })
        };
        let flags = part(FLAGS_NAME)?
            .ok_or("has no `flags`; is it a file of flagd? The smallest is {\"flags\": {}}")?;
        let metadata = part(METADATA)?.unwrap_or_default();
        Ok(Self { top, flags, metadata, prefix: prefix.to_owned() })
    }

    /// Its text, with a last line's end.
    pub(super) fn render(&self) -> Result<String, String> {
        let mut top = self.top.clone();
        let set = |top: &mut Object, name, object: &Object| {
            top.set(name, object.render(1)).map_err(|error| error.to_string())
        };
        set(&mut top, FLAGS_NAME, &self.flags)?;
        set(&mut top, METADATA, &self.metadata)?;
        Ok(format!("{}\n", top.render(0)))
    }

    /// Whether the last change that weir wrote was this request's.
    pub(super) fn is_of_request(&self, request_id: &str) -> bool {
        self.is_untouched() && self.metadata.text(REQUEST).as_deref() == Some(request_id)
    }

    /// The flag table over these base values, or which flag cannot be read and why.
    pub(super) fn table(&self, base: &Settings) -> Result<FlagTable, String> {
        let mut all = Vec::new();
        for def in FLAGS {
            let value = base.get(def.key).map_err(|error| error.to_string())?;
            let held = self.held(def, &value).map_err(|why| self.bad_flag(def, &why))?;
            all.push((def.key, held));
        }
        Ok(layer::table(base, self.revision(), |key| {
            all.iter().find(|(known, _)| *known == key).map(|(_, held)| held.clone())
        }))
    }

    /// The revision of its flags: the number that weir wrote last, plus one when somebody has changed
    /// them since, and then what they contain. So a change past weir has a larger revision than what
    /// weir wrote, the next change of weir a larger one still, and two of them after another are told
    /// apart although the file has no place where others would count.
    pub(super) fn revision(&self) -> Revision {
        let contents = self.contents();
        let head =
            contents.as_bytes().first_chunk::<8>().map_or(0, |head| u64::from_le_bytes(*head));
        Revision(self.number().saturating_mul(CONTENTS).saturating_add(head % CONTENTS))
    }

    /// Sets or drops the override of `def`; [`Self::sign`] comes after the last.
    pub(super) fn change(
        &mut self,
        def: &FlagDef,
        base: &FlagValue,
        to: Option<&FlagValue>,
        entry: &Entry,
    ) -> Result<(), String> {
        let mut flag = self.flag(def)?.unwrap_or_default();
        if flag.get(TARGETING).is_some_and(|rules| !is_empty(rules)) {
            let why = "has `targeting` rules, which would win over an override: change those";
            return Err(self.bad_flag(def, why));
        }
        self.put(def, &mut flag, base, to, entry)
            .map_err(|error| self.bad_flag(def, &no_flag(&error)))
    }

    fn put(
        &mut self,
        def: &FlagDef,
        flag: &mut Object,
        base: &FlagValue,
        to: Option<&FlagValue>,
        entry: &Entry,
    ) -> Result<(), serde_json::Error> {
        let mut variants = part(flag, VARIANTS)?;
        variants.set(BASE, json(def, base))?;
        match to {
            Some(value) => variants.set(OVERRIDE, json(def, value))?,
            None => variants.remove(OVERRIDE),
        }
        flag.set("state", quoted("ENABLED"))?;
        flag.set(VARIANTS, variants.render(3))?;
        flag.set(DEFAULT_VARIANT, quoted(if to.is_some() { OVERRIDE } else { BASE }))?;
        let mut metadata = part(flag, METADATA)?;
        let expires = entry.expires.filter(|_| to.is_some());
        for (name, text) in [
            (BY, Some(entry.by.clone())),
            (AT, Some(moment(entry.at))),
            (REASON, Some(entry.reason.clone())),
            (INCIDENT, entry.incident.clone()),
            (EXPIRES, expires.map(moment)),
            (SEAL, Some(seal(flag))),
        ] {
            match text {
                Some(text) => metadata.set(name, quoted(&text))?,
                None => metadata.remove(name),
            }
        }
        metadata.set(REVISION, entry.number.to_string())?;
        flag.set(METADATA, metadata.render(3))?;
        self.flags.set(&self.name(def), flag.render(2))
    }

    /// The number of the revision that the next change makes.
    pub(super) fn next_number(&self) -> u64 {
        self.number().saturating_add(1)
    }

    /// Closes a change: its number, and what the flags contain at it.
    pub(super) fn sign(&mut self, entry: &Entry) -> Result<(), String> {
        let contents = self.contents().to_hex();
        let mut sign = || {
            self.metadata.set(REVISION, entry.number.to_string())?;
            self.metadata.set(SEAL, quoted(short(&contents)))?;
            self.metadata.set(REQUEST, quoted(&entry.request_id))
        };
        sign().map_err(|error: serde_json::Error| error.to_string())
    }

    fn name(&self, def: &FlagDef) -> String {
        format!("{}{}", self.prefix, def.key)
    }

    fn bad_flag(&self, def: &FlagDef, why: &str) -> String {
        format!("has a flag `{}` that {why}", self.name(def))
    }

    fn flag(&self, def: &FlagDef) -> Result<Option<Object>, String> {
        let text = self.flags.get(&self.name(def));
        text.map(Object::parse).transpose().map_err(|error| self.bad_flag(def, &no_flag(&error)))
    }

    fn held(&self, def: &FlagDef, base: &FlagValue) -> Result<Held, String> {
        let text = self.flags.get(&self.name(def));
        let parsed = text.map(Object::parse).transpose();
        let Some(flag) = parsed.map_err(|error| no_flag(&error))? else {
            return Ok(Held::default());
        };
        let overridden = in_force(def, &flag, base)?;
        let metadata = part(&flag, METADATA).map_err(|error| no_flag(&error))?;
        let revision = metadata.get(REVISION).and_then(|number| number.parse::<u64>().ok());
        let sealed = metadata.text(SEAL).is_some_and(|stands| stands == seal(&flag));
        if let (true, Some(number)) = (sealed, revision) {
            let time = |name| metadata.text(name).and_then(|text| text.parse().ok());
            return Ok(Held {
                revision: number.saturating_mul(CONTENTS),
                by: metadata.text(BY),
                at: time(AT),
                expires: time(EXPIRES).filter(|_| overridden.is_some()),
                overridden,
                ..Held::default()
            });
        }
        // A flag at its base that weir has never written is nobody's change.
        let by = (overridden.is_some() || revision.is_some()).then(|| OUTSIDE.to_owned());
        let revision = if self.is_untouched() {
            revision.unwrap_or_default().saturating_mul(CONTENTS)
        } else {
            self.revision().0
        };
        Ok(Held { overridden, revision, by, ..Held::default() })
    }

    /// The number of the revision as it stands: one more than weir wrote if the flags are others by now.
    fn number(&self) -> u64 {
        let written = self.metadata.get(REVISION).and_then(|number| number.parse::<u64>().ok());
        written.map_or(0, |number| number.saturating_add(u64::from(!self.is_untouched())))
    }

    /// Whether the flags are as weir left them; true as well when weir was never here.
    fn is_untouched(&self) -> bool {
        let contents = self.contents().to_hex();
        self.metadata.text(SEAL).is_none_or(|stands| stands == short(&contents))
    }

    /// What weir's flags contain, however the file is laid out.
    fn contents(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for def in FLAGS {
            if let Some(flag) = self.flags.get(&self.name(def)) {
                hasher.update(format!("{}\n{}\n", def.key, plain(flag)).as_bytes());
            }
        }
        hasher.finalize()
    }
}

/// The override in force, `None` where the base is.
fn in_force(def: &FlagDef, flag: &Object, base: &FlagValue) -> Result<Option<FlagValue>, String> {
    match flag.text("state").as_deref() {
        Some("ENABLED") => {}
        // Services take their own default then.
        Some("DISABLED") => return Ok(None),
        _ => return Err("has a `state` other than ENABLED or DISABLED; put it right".to_owned()),
    }
    let Some(named) = flag.get(DEFAULT_VARIANT).filter(|named| *named != "null") else {
        return Ok(None);
    };
    // A variant may be called true or false, without quotes.
    let name = serde_json::from_str::<String>(named).unwrap_or_else(|_| named.to_owned());
    let variants = part(flag, VARIANTS)
        .map_err(|error| format!("has bad `variants`: {}; put them right", what(&error)))?;
    let Some(value) = variants.get(&name) else {
        return Err(format!("names the variant `{name}`, which it does not have; put it right"));
    };
    let value = json_value::read(def, value);
    Ok((name != BASE || value != *base).then_some(value))
}

/// What is wrong, without a place: it would be counted from the flag's own first line.
fn what(error: &serde_json::Error) -> String {
    let words = error.to_string();
    words.rsplit_once(" at line ").map_or(words.clone(), |(what, _)| what.to_owned())
}

fn no_flag(error: &serde_json::Error) -> String {
    format!("is not as flagd wants it: {}; put it right", what(error))
}

/// A member that is an object; an empty one where it is absent.
fn part(object: &Object, name: &str) -> Result<Object, serde_json::Error> {
    object.get(name).map_or(Ok(Object::default()), Object::parse)
}

/// What a flag says apart from its metadata, to see whether somebody else has changed it.
fn seal(flag: &Object) -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, value) in flag.members().filter(|(name, _)| *name != METADATA) {
        hasher.update(format!("{name}\n{}\n", plain(value)).as_bytes());
    }
    short(&hasher.finalize().to_hex()).to_owned()
}

/// JSON without its layout.
fn plain(json: &str) -> String {
    serde_json::from_str::<Value>(json).map_or_else(|_| json.to_owned(), |value| value.to_string())
}

/// Enough of a hash for a person to compare.
fn short(hex: &str) -> &str {
    hex.get(..16).unwrap_or(hex)
}

fn is_empty(rules: &str) -> bool {
    matches!(plain(rules).as_str(), "{}" | "null")
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn moment(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A value as services read it: typed readers take `1` for a whole number and not for a real one.
fn json(def: &FlagDef, value: &FlagValue) -> String {
    match (def.kind, value) {
        (Kind::Real { .. }, FlagValue::Number(number)) => Value::from(*number).to_string(),
        _ => serde_json::to_string(&WireValue::from(value)).unwrap_or_default(),
    }
}

//! The hash chain of the journal's lines: how one is written, and how it is checked.
//!
//! A line is canonical JSON (keys sorted, no blanks) with its hash appended as the last member:
//! `{"at":…,"event":…,"prev":…,"seq":…,"v":1,"hash":"…"}`. The hash is BLAKE3 over the line without
//! that member, so any changed byte shows, and checking needs no agreement on how numbers are
//! printed. `prev` is the hash of the line before, or 64 zeros. Pure; the file is `journal`'s.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use super::event::Event;

/// Form of the lines.
const FORMAT: u64 = 1;
/// Hex digits of a hash.
const HASH_LEN: usize = 64;
/// What stands between the hashed text and the hash.
const HASH_MEMBER: &str = ",\"hash\":\"";

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Entry {
    /// Position, from 1.
    pub seq: u64,
    /// When.
    pub at: DateTime<Utc>,
    /// What.
    pub event: Event,
    /// Hash of the entry before.
    prev: String,
    v: u64,
}

/// The end of a chain: what the next entry must continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Position of the last entry, 0 for an empty journal.
    pub seq: u64,
    /// Its hash; 64 zeros for an empty journal.
    pub hash: String,
}

impl Default for Head {
    fn default() -> Self {
        Self { seq: 0, hash: "0".repeat(HASH_LEN) }
    }
}

impl Head {
    /// Writes the next line, without the line end, and moves on to it.
    ///
    /// # Errors
    /// When the event has no JSON form.
    pub(super) fn write(
        &mut self,
        event: &Event,
        at: DateTime<Utc>,
    ) -> Result<String, serde_json::Error> {
        let mut entry: Value = json!({
            "at": at.to_rfc3339_opts(SecondsFormat::Millis, true),
            "event": serde_json::to_value(event)?,
            "prev": self.hash,
            "seq": self.seq + 1,
            "v": FORMAT,
        });
        entry.sort_all_objects();
        let text = serde_json::to_string(&entry)?;
        let hash = blake3::hash(text.as_bytes()).to_hex();
        *self = Self { seq: self.seq + 1, hash: hash.to_string() };
        let open = text.strip_suffix('}').unwrap_or(&text);
        Ok(format!("{open}{HASH_MEMBER}{hash}\"}}"))
    }

    /// Checks the next line and moves on to it.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn read(&mut self, line: &str) -> Result<Entry, String> {
        let (open, hash) = split(line).ok_or("the line does not end in its hash")?;
        let text = format!("{open}}}");
        let found = blake3::hash(text.as_bytes()).to_hex();
        if found.as_str() != hash {
            return Err(format!("its content was changed: hash is {found}, the line says {hash}"));
        }
        let entry: Entry = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if entry.v != FORMAT {
            return Err(format!("form {} of the journal is not known to this weir", entry.v));
        }
        if entry.seq != self.seq + 1 {
            let expected = self.seq + 1;
            return Err(format!(
                "entry {expected} was expected here and {} found: lines were removed, added or moved",
                entry.seq
            ));
        }
        if entry.prev != self.hash {
            return Err(format!(
                "it does not continue the line before, whose hash is {}",
                self.hash
            ));
        }
        *self = Self { seq: entry.seq, hash: hash.to_owned() };
        Ok(entry)
    }
}

/// The text before the hash member, and the hash.
fn split(line: &str) -> Option<(&str, &str)> {
    let (open, hash) = line.strip_suffix("\"}")?.rsplit_once(HASH_MEMBER)?;
    (hash.len() == HASH_LEN).then_some((open, hash))
}

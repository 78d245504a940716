//! Names in texts: found wherever they stand, longest first, and what is quoted goes with them.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::flag::Marks;
use crate::incident::{Event, FlipNotes};

/// What stands where a text was taken out.
pub const REMOVED: &str = "(removed)";
/// A name as short as this is one where it stands alone, and not inside of words, and no number.
const SHORT: usize = 3;

/// Names and what stands for them.
#[derive(Debug, Default)]
pub struct Words {
    of: BTreeMap<String, String>,
    counts: BTreeMap<String, usize>,
}

impl Words {
    /// The pseudonym of a name, a new one if it has none.
    pub fn name(&mut self, kind: &str, name: &str) -> String {
        if let Some(known) = self.of.get(name) {
            return known.clone();
        }
        let count = self.counts.entry(kind.to_owned()).or_insert(0);
        *count += 1;
        let pseudonym = format!("{kind}-{count}");
        self.of.insert(name.to_owned(), pseudonym.clone());
        pseudonym
    }

    /// How many names there are of each kind.
    pub fn counts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.counts.iter().map(|(kind, count)| (kind.as_str(), *count))
    }

    /// The pseudonym of a text that is a name, else the text.
    pub fn exact(&self, text: &str) -> String {
        self.of.get(text).cloned().unwrap_or_else(|| text.to_owned())
    }

    /// A text of a program without names and without what it quotes.
    pub fn hide(&self, text: &str) -> String {
        let text = unquoted(text);
        let mut hidden = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(letter) = rest.chars().next() {
            if let Some((name, pseudonym)) = self.longest_at(rest, hidden.chars().next_back()) {
                hidden.push_str(pseudonym);
                rest = &rest[name.len()..];
            } else {
                hidden.push(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
        hidden
    }

    /// The longest name that a text begins with. A short one is none inside of a word.
    fn longest_at(&self, text: &str, before: Option<char>) -> Option<(&str, &str)> {
        let is_part = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
        let stands = |name: &str| {
            let is_number = name.chars().all(|letter| letter.is_ascii_digit());
            let after = text[name.len()..].chars().next();
            name.len() > SHORT || !is_number && !is_part(before) && !is_part(after)
        };
        let names = self.of.iter().filter(|(name, _)| text.starts_with(name.as_str()));
        let found = names.filter(|(name, _)| stands(name)).max_by_key(|(name, _)| name.len());
        found.map(|(name, pseudonym)| (name.as_str(), pseudonym.as_str()))
    }

    /// The same for every string of a value.
    pub fn hide_all(&self, value: &mut Json) {
        match value {
            Json::String(text) => *text = self.hide(text),
            Json::Array(list) => list.iter_mut().for_each(|one| self.hide_all(one)),
            _ => {}
        }
    }
}

/// An entry of the journal without what a person typed.
pub fn event(event: Event, words: &mut Words) -> Event {
    let removed = || REMOVED.to_owned();
    match event {
        Event::Flip {
            request_id,
            plan,
            revision,
            actor,
            changes,
            ttl_s,
            on_expire,
            verify,
            notes,
            ..
        } => Event::Flip {
            request_id: words.name("id", &request_id),
            plan: words.hide(&plan),
            revision,
            actor: words.name("person", &actor),
            incident: None,
            reason: removed(),
            changes,
            ttl_s,
            on_expire,
            verify,
            store: None,
            notes: Box::new(FlipNotes {
                timer_of: notes.timer_of.map(|id| words.name("id", &id)),
                marks: Marks {
                    undoes: notes.marks.undoes,
                    overridden: notes.marks.overridden.iter().map(|one| words.hide(one)).collect(),
                    override_reason: notes.marks.override_reason.map(|_| removed()),
                    token: notes.marks.token.map(|name| words.name("token", &name)),
                },
            }),
        },
        Event::Plan { name, changes, refused } => {
            Event::Plan { name: words.hide(&name), changes, refused: refused.map(|_| removed()) }
        }
        Event::Outcome { request_id, plan, end, .. } => Event::Outcome {
            request_id: words.name("id", &request_id),
            plan: words.hide(&plan),
            end,
            say: removed(),
        },
        Event::Verify { request_id, plan, state, why } => Event::Verify {
            request_id: words.name("id", &request_id),
            plan: words.hide(&plan),
            state,
            why: why.map(|_| removed()),
        },
        Event::Note { actor, .. } => {
            Event::Note { actor: words.name("person", &actor), text: removed() }
        }
        Event::Seen { revision, since, changes, .. } => {
            Event::Seen { store: removed(), revision, since, changes }
        }
        other @ (Event::Torn { .. } | Event::Other) => other,
    }
}

/// The hosts of the addresses in a text, with port and without.
pub fn hosts(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for rest in text.split("://").skip(1) {
        let end =
            rest.find(|c: char| c == '/' || c == '?' || c.is_whitespace() || "\"'`)>,".contains(c));
        let authority = &rest[..end.unwrap_or(rest.len())];
        let authority = authority.rsplit('@').next().unwrap_or(authority);
        if authority.is_empty() {
            continue;
        }
        found.push(authority.to_owned());
        if let Some((host, port)) = authority.rsplit_once(':')
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && !host.is_empty()
        {
            found.push(host.to_owned());
        }
    }
    found
}

/// The text with nothing between quotes.
fn unquoted(text: &str) -> String {
    let mut plain = text.to_owned();
    for quote in ['"', '`'] {
        let parts: Vec<&str> = plain.split(quote).collect();
        if parts.len() < 2 {
            continue;
        }
        let shown = parts.iter().enumerate().map(|(place, part)| {
            if place % 2 == 0 { (*part).to_owned() } else { REMOVED.to_owned() }
        });
        plain = shown.collect::<Vec<_>>().concat();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hidden_wherever_a_text_says_them() {
        let mut words = Words::default();
        for (kind, name) in [("tenant", "acme"), ("host", "gw.acme.example:9000"), ("key", "k1")] {
            words.name(kind, name);
        }
        for (text, expected) in [
            ("at http://gw.acme.example:9000/m (refused)", "at http://host-1/m (refused)"),
            ("acme-prod k1 k12", "tenant-1-prod key-1 k12"),
            ("needs {job=\"acme\"}", "needs {job=(removed)}"),
            ("`acme` and \"b", "(removed) and (removed)"),
            ("", ""),
        ] {
            assert_eq!(words.hide(text), expected, "{text}");
        }
    }

    #[test]
    fn hosts_are_found_in_addresses() {
        for (text, expected) in [
            ("http://a.b:1/x?y", &["a.b:1", "a.b"][..]),
            ("(https://u:p@c) and http://d", &["c", "d"]),
            ("no", &[]),
        ] {
            assert_eq!(hosts(text), expected, "{text}");
        }
    }
}

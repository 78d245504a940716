//! Keys of a person's own: the registry of actions with other keys, checked before it is used.
//!
//! Every screen, the help and the footer read the registry that the model holds, so what is changed here
//! is changed everywhere. What changes flags keeps its key: nothing that was learnt elsewhere fires there.

use std::collections::BTreeMap;

use crossterm::event::KeyCode;
use thiserror::Error;

use super::action::{Action, Danger, Entry, Key, REGISTRY};
use super::mode::Context;

/// Keys by the name of their action, as `[keys]` has them.
pub type Wishes = BTreeMap<String, Vec<String>>;

/// Letters that somebody else takes when Ctrl is held, and who.
const TAKEN: [(char, &str); 8] = [
    ('a', "the prefix of screen, and of many a tmux"),
    ('b', "the prefix of tmux"),
    ('c', "interrupt"),
    ('q', "flow control"),
    ('s', "flow control"),
    ('z', "suspend"),
    // What a terminal sends for these two is Tab and Enter.
    ('i', "the same as Tab"),
    ('m', "the same as Enter"),
];
/// Where letters are typed.
const TYPED: [Context; 3] = [Context::Edit, Context::Typing, Context::Field];
/// Most keys of one action.
const KEYS_MAX: usize = 8;

/// Why a wish cannot be met.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{why}; {remedy}")]
pub struct KeyError {
    /// The action whose keys are wrong.
    pub action: String,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

/// The registry with these keys in place of its own.
///
/// # Errors
/// [`KeyError`] for the first wish that cannot be met.
pub fn remapped(wishes: &Wishes) -> Result<&'static [Entry], KeyError> {
    if wishes.is_empty() {
        return Ok(REGISTRY);
    }
    let mut entries = REGISTRY.to_vec();
    for (name, keys) in wishes {
        let refuse = |why: String, remedy: &str| KeyError {
            action: name.clone(),
            why,
            remedy: remedy.to_owned(),
        };
        let rows: Vec<usize> =
            (0..entries.len()).filter(|place| entries[*place].name == name).collect();
        let Some(first) = rows.first().map(|place| &entries[*place]) else {
            let remedy = "name one of those that `weir keys` lists";
            return Err(refuse(format!("there is no action `{name}`"), remedy));
        };
        if first.danger == Danger::Changes || first.action == Action::Interrupt {
            let why = format!("`{name}` keeps its key, so that nobody presses it by habit");
            return Err(refuse(why, "leave it out"));
        }
        if keys.is_empty() || keys.len() > KEYS_MAX {
            return Err(refuse(format!("`{name}` has {} keys", keys.len()), "give it 1 to 8"));
        }
        let mut fitting: Vec<Vec<Key>> = vec![Vec::new(); rows.len()];
        for text in keys {
            let fits = rows.iter().map(|place| key_for(&entries[*place], text));
            let fits: Vec<_> = fits.collect();
            if let (Some(Err((why, remedy))), true) =
                (fits.first(), fits.iter().all(Result::is_err))
            {
                return Err(refuse(why.clone(), remedy));
            }
            for (row, key) in fitting.iter_mut().zip(fits) {
                row.extend(key.ok());
            }
        }
        for (place, keys) in rows.into_iter().zip(fitting) {
            // Where none of them can be pressed, the own ones stay: a field still needs its arrows.
            if !keys.is_empty() {
                // A table for the rest of the session; there are few of them.
                entries[place].keys = Box::leak(keys.into_boxed_slice());
            }
        }
    }
    let entries = without_repeats(entries);
    if let Some((one, other, key, context)) = clash(&entries) {
        let is_wished = |entry: &Entry| wishes.contains_key(entry.name);
        let (new, old) = if is_wished(one) { (one, other) } else { (other, one) };
        return Err(KeyError {
            action: new.name.to_owned(),
            why: format!("{key} is `{}` on {} already", old.name, context.words()),
            remedy: format!("take another, or give `{}` other keys too", old.name),
        });
    }
    Ok(Box::leak(entries.into_boxed_slice()))
}

/// Without rows that another row of the same action says already.
fn without_repeats(entries: Vec<Entry>) -> Vec<Entry> {
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries {
        let says = |other: &Entry| {
            let is_within = entry.contexts.both(other.contexts) == entry.contexts;
            other.name == entry.name && other.keys == entry.keys && is_within
        };
        if !kept.iter().any(says) {
            kept.push(entry);
        }
    }
    kept
}

/// Two actions that have one key in one context.
fn clash(entries: &[Entry]) -> Option<(&Entry, &Entry, Key, Context)> {
    entries.iter().enumerate().find_map(|(place, one)| {
        let others = entries[place + 1..].iter().filter(|other| other.action != one.action);
        others.into_iter().find_map(|other| {
            let context = one.contexts.both(other.contexts).iter().next()?;
            let key = one.keys.iter().find(|key| other.keys.contains(key))?;
            Some((one, other, *key, context))
        })
    })
}

fn key_for(entry: &Entry, text: &str) -> Result<Key, (String, &'static str)> {
    let key = parse(text)
        .map_err(|why| (why, "write such as x, G, ctrl-r, f5, enter, pgdn, shift-tab or space"))?;
    if let Some(letter) = key.letter() {
        let typed = entry.contexts.iter().find(|context| TYPED.contains(context));
        if !key.is_ctrl()
            && let Some(context) = typed
        {
            let why = format!(
                "`{text}` cannot be `{}`: letters are typed on {}",
                entry.name,
                context.words()
            );
            return Err((why, "take a key that types nothing, such as esc, f5 or ctrl-r"));
        }
        let taken = TAKEN.iter().find(|(one, _)| key.is_ctrl() && *one == letter);
        if let Some((_, by)) = taken.filter(|_| !entry.keys.contains(&key)) {
            return Err((
                format!("`{text}` never arrives, or is needed: it is {by}"),
                "take another",
            ));
        }
    }
    Ok(key)
}

/// A key as a person writes it.
fn parse(text: &str) -> Result<Key, String> {
    let wrong = || format!("`{text}` is no key");
    let mut letters = text.chars();
    if let (Some(letter), None) = (letters.next(), letters.next()) {
        // A blank alone is most likely a slip; it is written `space`.
        let is_seen = !letter.is_control() && !letter.is_whitespace();
        return if is_seen { Ok(Key::of_letter(letter, false)) } else { Err(wrong()) };
    }
    let low = text.to_ascii_lowercase();
    if let Some(rest) = low.strip_prefix("ctrl-") {
        let mut letters = rest.chars();
        return match (letters.next(), letters.next()) {
            (Some(letter @ 'a'..='z'), None) => Ok(Key::of_letter(letter, true)),
            _ => Err(format!("`{text}` is no key: Ctrl goes with a letter from a to z")),
        };
    }
    if low.starts_with("alt-") || low.starts_with("meta-") {
        return Err(format!("`{text}` cannot be told from Esc and a letter on many terminals"));
    }
    let code = match low.as_str() {
        "space" => KeyCode::Char(' '),
        "enter" => KeyCode::Enter,
        "esc" => KeyCode::Esc,
        "tab" => KeyCode::Tab,
        "shift-tab" => KeyCode::BackTab,
        "backspace" => KeyCode::Backspace,
        "delete" => KeyCode::Delete,
        "insert" => KeyCode::Insert,
        "up" => KeyCode::Up,
        "down" => KeyCode::Down,
        "left" => KeyCode::Left,
        "right" => KeyCode::Right,
        "home" => KeyCode::Home,
        "end" => KeyCode::End,
        "pgup" | "pageup" => KeyCode::PageUp,
        "pgdn" | "pagedown" => KeyCode::PageDown,
        other => {
            let number = other.strip_prefix('f').and_then(|number| number.parse::<u8>().ok());
            KeyCode::F(number.filter(|number| (1..=12).contains(number)).ok_or_else(wrong)?)
        }
    };
    Ok(Key::of_code(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(name: &str, keys: &[&str]) -> Wishes {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        BTreeMap::from([(name.to_owned(), keys)])
    }

    fn refused(name: &str, keys: &[&str]) -> String {
        remapped(&wish(name, keys)).expect_err(name).to_string()
    }

    #[test]
    fn every_way_to_write_a_key_is_shown_as_it_is_in_the_help() {
        for (text, shown) in [
            ("x", "x"),
            ("G", "G"),
            ("?", "?"),
            ("ctrl-r", "Ctrl-R"),
            ("Ctrl-R", "Ctrl-R"),
            ("space", "Space"),
            ("F5", "F5"),
            ("pgdn", "PgDn"),
            ("shift-tab", "Shift-Tab"),
            ("enter", "Enter"),
        ] {
            assert_eq!(parse(text).expect(text).to_string(), shown);
        }
        for text in ["", " ", "xx", "f13", "f0", "ctrl-", "ctrl-1", "alt-x", "hyper-x", "\u{7}"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    fn keys(entries: &[Entry], name: &str) -> Vec<Vec<String>> {
        let rows = entries.iter().filter(|entry| entry.name == name);
        rows.map(|entry| entry.keys.iter().map(ToString::to_string).collect()).collect()
    }

    #[test]
    fn other_keys_take_the_place_of_the_own_ones() {
        let entries = remapped(&wish("freeze", &["x1", "f5"]));
        assert!(entries.is_err());
        let entries = remapped(&wish("freeze", &["ö", "f7"])).expect("free keys");
        assert_eq!(keys(entries, "freeze"), [["ö", "F7"]], "its two rows say the same now");
        assert_eq!(entries.len(), REGISTRY.len() - 1);
        let none = remapped(&Wishes::new()).expect("nothing");
        assert_eq!(none.len(), REGISTRY.len());
    }

    #[test]
    fn a_row_that_cannot_have_a_letter_keeps_its_own_key() {
        let entries = remapped(&wish("up", &["ö"])).expect("a free key");
        assert_eq!(keys(entries, "up"), [["Up"], ["ö"]]);
    }

    #[test]
    fn two_may_change_places() {
        let mut wishes = wish("diagnose", &["f"]);
        wishes.extend(wish("flags", &["d"]));
        assert!(remapped(&wishes).is_ok());
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason_and_a_remedy() {
        for (name, keys, words) in [
            ("fly", &["x"][..], "there is no action `fly`; name one of"),
            ("freeze", &["d"], "d is `diagnose` on"),
            ("freeze", &[], "has 0 keys"),
            ("freeze", &["ctrl-b"], "the prefix of tmux"),
            ("freeze", &["ctrl-s"], "flow control"),
            ("freeze", &["alt-x"], "cannot be told from Esc"),
            ("cancel", &["x"], "letters are typed on"),
            ("interrupt", &["x"], "keeps its key"),
            ("accept", &["f5"], "keeps its key"),
        ] {
            let said = refused(name, keys);
            assert!(said.contains(words) && said.contains("; "), "{name}: {said}");
        }
    }
}

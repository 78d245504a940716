//! Reads a flag's value from JSON that people and other programs write too.

use crate::admission::{FlagDef, FlagValue};
use crate::flag::wire::WireValue;

/// Longest text that is shown of a value that does not fit.
const SHOWN_CHARS_MAX: usize = 64;

/// The value that stands in `text`. One that the flag does not take comes back as the word that stands
/// there: it is shown, can be planned away from, and is never taken for the base.
pub(super) fn read(def: &FlagDef, text: &str) -> FlagValue {
    let text = text.trim();
    let shown = || text.chars().take(SHOWN_CHARS_MAX).collect::<String>();
    let Ok(wire) = serde_json::from_str::<WireValue>(text) else {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let what = if is_json { "no value" } else { "not JSON" };
        return FlagValue::Word(format!("{} ({what})", shown()));
    };
    let value = FlagValue::from(wire);
    let plain = value.to_string();
    match def.check(value) {
        Ok(value) => value,
        // `"true"` in quotes is not the switch position `true`, and must not look like it.
        Err(_) if def.parse(&plain).is_ok() => FlagValue::Word(shown()),
        Err(_) => FlagValue::Word(plain.chars().take(SHOWN_CHARS_MAX).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::flag;

    #[test]
    fn only_the_flags_own_values_are_taken_as_such() {
        let word = |text: &str| FlagValue::Word(text.to_owned());
        for (key, text, expected) in [
            ("retry.max_attempts", "2", FlagValue::Number(2.0)),
            ("retry.max_attempts", " 2.0\n", FlagValue::Number(2.0)),
            ("retry.max_attempts", "9", word("9")),
            ("retry.max_attempts", "\"2\"", word("\"2\"")),
            ("retry.max_attempts", "null", word("null (no value)")),
            ("retry.max_attempts", "[2]", word("[2] (no value)")),
            ("retry.max_attempts", "", word(" (not JSON)")),
            ("admission.mode", "\"shadow\"", word("shadow")),
            ("admission.mode", "\"sideways\"", word("sideways")),
            ("admission.mode", "shadow", word("shadow (not JSON)")),
            ("cache.enabled", "true", FlagValue::Bool(true)),
            ("cache.enabled", "\"true\"", word("\"true\"")),
        ] {
            let def = flag(key).expect("a test names real flags");
            assert_eq!(read(def, text), expected, "{key} {text}");
        }
    }

    #[test]
    fn a_long_value_is_shown_in_part() {
        let def = flag("admission.mode").expect("known");
        let FlagValue::Word(shown) = read(def, &format!("\"{}\"", "x".repeat(9_000))) else {
            panic!("a word")
        };
        assert_eq!(shown.len(), SHOWN_CHARS_MAX);
    }
}

//! Where a timer leads a flag: only ever toward its safe end. Knows the order of a flag's values, and
//! neither stores nor clocks.

use crate::admission::{Direction, FlagDef, FlagValue};

/// Where a timer leads a flag that was changed.
#[derive(Clone, Debug, PartialEq)]
pub enum WayBack {
    /// It drops the override: the base value is the safer one.
    ToBase,
    /// It sets the override again that was there before: that is safer, and the base is not.
    ToBefore(FlagValue),
    /// Nowhere is safer than where the flag is: the timer reminds.
    Nowhere,
}

impl WayBack {
    /// The way back from `to`, over `base`, where the override `before` was in place (`None`: none).
    #[must_use]
    pub fn of(def: &FlagDef, base: &FlagValue, before: Option<&FlagValue>, to: &FlagValue) -> Self {
        let is_safer = |back: &FlagValue| def.direction(base, to, back) == Direction::Safer;
        if is_safer(base) {
            return Self::ToBase;
        }
        match before.filter(|before| is_safer(before)) {
            Some(before) => Self::ToBefore(before.clone()),
            None => Self::Nowhere,
        }
    }

    /// Whether a timer may go it.
    #[must_use]
    pub fn leads_back(&self) -> bool {
        *self != Self::Nowhere
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::value;
    use super::*;
    use crate::admission::flag;

    const KEY: &str = "admission.mode";

    fn way(base: &str, before: Option<&str>, to: &str) -> WayBack {
        let def = flag(KEY).expect("a flag");
        let before = before.map(|before| value(KEY, before));
        WayBack::of(def, &value(KEY, base), before.as_ref(), &value(KEY, to))
    }

    #[test]
    fn it_leads_to_the_base_where_that_is_safer_else_to_what_was_before_if_that_is() {
        let before = WayBack::ToBefore(value(KEY, "enforce"));
        assert_eq!(way("enforce", None, "shadow"), WayBack::ToBase);
        assert_eq!(way("enforce", Some("off"), "shadow"), WayBack::ToBase);
        assert_eq!(way("off", Some("enforce"), "shadow"), before);
        assert_eq!(way("off", None, "enforce"), WayBack::Nowhere);
        assert_eq!(way("off", Some("off"), "shadow"), WayBack::Nowhere);
        assert_eq!(way("shadow", Some("enforce"), "shadow"), before);
    }
}

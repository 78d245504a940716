//! Where an action works: a set of contexts. Knows neither keys nor actions.

use crate::tui::app::mode::Context;

/// A set of contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places(u32);

impl Places {
    /// Every context.
    pub const ALL: Self = Self::on(&Context::ALL);

    /// These.
    #[must_use]
    pub const fn on(contexts: &[Context]) -> Self {
        Self(0).and(contexts)
    }

    /// These as well.
    #[must_use]
    pub const fn and(self, contexts: &[Context]) -> Self {
        let (mut set, mut at) = (self.0, 0);
        while at < contexts.len() {
            set |= bit(contexts[at]);
            at += 1;
        }
        Self(set)
    }

    /// Without these.
    #[must_use]
    pub const fn but(self, contexts: &[Context]) -> Self {
        Self(self.0 & !Self::on(contexts).0)
    }

    /// Those of both.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether this is one.
    #[must_use]
    pub const fn contains(self, context: Context) -> bool {
        self.0 & bit(context) != 0
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// One by one.
    pub fn iter(self) -> impl Iterator<Item = Context> {
        Context::ALL.into_iter().filter(move |context| self.contains(*context))
    }
}

const fn bit(context: Context) -> u32 {
    1 << context as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_put_together_and_taken_apart() {
        let some = Places::on(&[Context::Overview, Context::Flags]);
        assert_eq!(some.iter().collect::<Vec<_>>(), [Context::Overview, Context::Flags]);
        assert_eq!(some.but(&[Context::Flags]), Places::on(&[Context::Overview]));
        assert_eq!(some.both(Places::on(&[Context::Flags, Context::Help])).iter().count(), 1);
        assert!(some.but(&[Context::Flags, Context::Overview]).is_empty());
        assert_eq!(Places::ALL.iter().count(), Context::ALL.len());
    }
}

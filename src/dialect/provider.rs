//! Whose dialect an answer is read in, by the name that a person writes.

/// A provider that weir knows the dialect of, or the generic one for strangers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provider(&'static str);

/// Every name.
const NAMES: &[&str] = &["generic", "openai", "azure-openai", "anthropic", "gemini"];

impl Provider {
    /// The rules that hold for everybody, with the dialect recognised from the answer's own shape.
    pub const GENERIC: Self = Self("generic");

    /// The provider of this name or alias.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|known| **known == name).copied().map(Self)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// The names of all.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().copied()
    }
}

//! One thing that was looked at, how it stands, and what to do next.

/// How a thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// As it should be.
    Good,
    /// Works, with less than there could be.
    Note,
    /// Does not work.
    Wrong,
}

impl Standing {
    /// The word that a person and a program read.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Wrong => "wrong",
        }
    }
}

/// What was looked at and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, in a word.
    pub what: &'static str,
    /// How it stands.
    pub standing: Standing,
    /// What was seen.
    pub said: String,
    /// What to do next, if anything, and unless `said` says so itself.
    pub next: Option<String>,
}

impl Finding {
    /// A thing that is as it should be.
    pub fn good(what: &'static str, said: impl Into<String>) -> Self {
        Self { what, standing: Standing::Good, said: said.into(), next: None }
    }

    /// A thing that could be better, and how.
    pub fn note(what: &'static str, said: impl Into<String>, next: impl Into<String>) -> Self {
        let next = Some(next.into());
        Self { what, standing: Standing::Note, said: said.into(), next }
    }

    /// A thing that does not work, by an error that says what to do.
    pub fn error(what: &'static str, error: impl std::fmt::Display) -> Self {
        Self { standing: Standing::Wrong, ..Self::good(what, error.to_string()) }
    }

    /// A thing that does not work, and what to do.
    pub fn wrong(what: &'static str, said: impl Into<String>, next: impl Into<String>) -> Self {
        Self { standing: Standing::Wrong, ..Self::note(what, said, next) }
    }
}

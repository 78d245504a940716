//! The two lanes of work.

/// Priority class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// A person waits for it.
    Interactive,
    /// Nobody does.
    Batch,
}

impl Lane {
    /// Both lanes, first served first.
    pub const ALL: [Self; 2] = [Self::Interactive, Self::Batch];

    /// The lane's word in headers, labels and on screen.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Batch => "batch",
        }
    }
}

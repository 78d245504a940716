//! Bugs that are planted into what the model tests, each to be found: a model that cannot fail proves
//! nothing.

/// One bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The store takes a change whatever revision it names.
    IgnoresIfMatch,
    /// The store takes every storm for calm.
    SkipsInterlock,
    /// A timer that should only remind drops what it was set for.
    TimerLeavesSafe,
    /// The journal says that an intent is on disk, and it is not.
    JournalSkipsLine,
    /// Whatever got no answer is sent once more.
    SendsAgain,
    /// A flip that ends as unknown is forgotten.
    DropsUnknown,
    /// What two equal reads do not show is said not to be stored.
    DeniesByValues,
    /// The newest entry of the history is missing.
    HistoryIsCut,
}

/// Every bug, and what the model says when it finds it.
pub const PLANTS: [(Plant, &[&str]); 8] = [
    (Plant::IgnoresIfMatch, &["a lost update"]),
    (Plant::SkipsInterlock, &["went down in a storm"]),
    (Plant::TimerLeavesSafe, &["a timer moved"]),
    (Plant::JournalSkipsLine, &["no journal has the intent"]),
    (Plant::SendsAgain, &["was sent twice"]),
    (Plant::DropsUnknown, &["nobody knows what became of it"]),
    (Plant::DeniesByValues, &["lands, and was said never to"]),
    (
        Plant::HistoryIsCut,
        &["is stored, and is said not to be", "was looked up wrongly", "nobody is told"],
    ),
];

//! What the lane keeps: requests, the callers' tickets to them, and what became of them. Knows no store
//! and no protocol.

use std::time::Duration;

use bytes::Bytes;

/// Milliseconds of Unix time: what is kept outlives the process and its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixMs(pub i64);

impl UnixMs {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self(chrono::Utc::now().timestamp_millis())
    }

    /// This much later.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Time since `earlier`; zero where the calendar was put back.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A digest that stands for what must not be compared or kept whole.
pub type Print = [u8; 32];

/// The request itself, as it will be sent: never a key of anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The quota scope, by name.
    pub scope: String,
    /// Whose it is, for shares of the scope.
    pub tenant: String,
    /// Batch work that gives way to other batch work.
    pub backfill: bool,
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The headers that are kept.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// The idempotency key that every attempt carries.
    pub idempotency_key: String,
    /// Requests with the same print may be sent as one, see `coalesce`.
    pub together: Option<Print>,
}

/// A request that comes to the lane.
#[derive(Clone, Debug)]
pub struct NewItem {
    /// The ticket that its caller gets, unless it has one already.
    pub ticket: String,
    /// Who may ask for the result.
    pub owner: Print,
    /// The same print is the same work: it is done once.
    pub work_print: Print,
    /// Whether work that is done already is good for this one too.
    pub takes_done: bool,
    /// The caller's idempotency key, as a print with its owner.
    pub repeat_print: Option<Print>,
    /// What is to be done.
    pub work: Work,
    /// Not before.
    pub not_before: UnixMs,
}

/// What came of storing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// It will be done.
    Stored {
        /// The caller's ticket.
        ticket: String,
        /// Another request brought the same work.
        is_merged: bool,
    },
    /// The same idempotency key came with another request before.
    Mismatch,
}

/// Which item of which store; what it means is the store's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemRef {
    /// The item.
    pub item: String,
    /// The store's receipt for this claim.
    pub receipt: String,
}

/// An item that was claimed.
#[derive(Clone, Debug)]
pub struct Item {
    /// Which.
    pub key: ItemRef,
    /// What is to be done.
    pub work: Work,
    /// Attempts at the provider so far.
    pub attempts: u32,
    /// It was in somebody's hand when that instance went away: it may run a second time.
    pub is_second: bool,
}

/// The provider's answer, or the gate's last word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The headers that matter.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// The code of an error, for operators, who are not shown the body.
    pub code: Option<String>,
}

/// How a claim ends.
#[derive(Clone, Debug)]
pub enum End {
    /// Answered well.
    Done(Answer),
    /// It can never succeed.
    Dead(Answer),
    /// Back into the line.
    Back {
        /// Not before.
        not_before: UnixMs,
        /// Attempts at the provider so far.
        attempts: u32,
    },
}

/// Where an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It waits.
    Queued,
    /// Somebody has it in hand.
    Running,
    /// There is an answer.
    Done,
    /// It is a dead letter.
    Dead,
}

impl State {
    /// Every state, as they are counted.
    pub const ALL: [Self; 4] = [Self::Queued, Self::Running, Self::Done, Self::Dead];

    /// The word of the status page, the metrics and the store.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }

    /// The state of this word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// What the holder of a ticket sees.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Where it stands.
    pub state: State,
    /// When it came.
    pub stored: UnixMs,
    /// Items of its scope that came before it and wait.
    pub before: u64,
    /// Attempts at the provider so far.
    pub attempts: u32,
    /// Not before.
    pub not_before: UnixMs,
    /// When the result is forgotten.
    pub expires: Option<UnixMs>,
    /// The answer of one that is done or dead.
    pub answer: Option<Answer>,
}

/// A dead letter, as operators see it: nothing of what was asked.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The item.
    pub item: String,
    /// Its quota scope.
    pub scope: String,
    /// Whose it was.
    pub tenant: String,
    /// Where it was sent, without the query.
    pub path: String,
    /// The last status.
    pub status: u16,
    /// The last error's code.
    pub code: Option<String>,
    /// Attempts at the provider.
    pub attempts: u32,
    /// When it came.
    pub stored: UnixMs,
    /// When it died.
    pub died: UnixMs,
}

/// How many of one scope are in each state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The scope.
    pub scope: String,
    /// In the order of [`State::ALL`].
    pub items: [u64; 4],
    /// When the oldest came that is not done.
    pub oldest: Option<UnixMs>,
}

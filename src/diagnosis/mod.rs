//! Decides which cause fits the evidence, and how sure that is. Does no I/O and reads no clock.

mod balance;
mod change;
mod codes;
mod derive;
mod engine;
mod evaluate;
mod explain;
mod expr;
mod fetch;
mod history;
mod leave;
mod onset;
mod openings;
mod owners;
mod predicate;
mod rank;
mod reach;
mod ring;
mod role;
mod sentence;
mod settling;
mod severity;
mod tree;
mod trend;
mod verdict;
mod ways;
mod wire;

pub use change::{CHANGES_MAX, Change, ChangeWatch, InstanceCount, Level, What};
pub use codes::{CodePatterns, GATE_PREFIX};
pub use derive::{Completed, complete, derivation, is_share, is_signed};
pub use engine::{Diagnoser, Facts, HEALTHY, INSUFFICIENT, diagnose_once, judge_once};
pub use evaluate::{Hold, Watch, evaluate};
pub use explain::{Explanation, Ground, Kind, Lever, Tipping, Way, explain};
pub use expr::{Expr, ExprError};
pub use fetch::fetch;
pub use history::{Course, Gap, Read, Readings, STALE_AFTER_S, Sequence, Single};
pub use leave::{TRIAGE_STEPS_MAX, Taken, Weighed, first_step, ranking, taken, triaged};
pub use onset::{ONSETS_MAX, Onset};
pub use owners::Owners;
pub use predicate::{
    Bound, Heading, MAX_PREDICATE_BYTES, Moved, Op, Operand, Predicate, PredicateError, Test,
    Window,
};
pub use rank::{Score, Seen, score};
pub use reach::{Reach, Within, reach};
pub use ring::Ring;
pub use severity::{Severity, worst_first};
pub use tree::{
    Action, Book, Branch, Cause, Goto, Grounds, Hypothesis, Library, LibraryError, Node, Outcome,
    Refusal, Step, TRIAGE, UNDO, Undo, evidence_names,
};
pub use verdict::{
    Evidence, FirstStep, Missing, PathStep, Ranked, Role, Standing, Toll, Truth, Verdict,
};
pub use ways::{causes_behind, leading_to};
pub use wire::{explanation_to_json, snapshot_from_json, verdict_to_json};

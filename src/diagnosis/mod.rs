//! Decides which cause fits the evidence, and how sure that is. Does no I/O and reads no clock.

mod change;
mod codes;
mod derive;
mod engine;
mod evaluate;
mod expr;
mod history;
mod predicate;
mod rank;
mod reach;
mod tree;
mod verdict;
mod wire;

pub use change::{CHANGES_MAX, Change, ChangeWatch, InstanceCount, Level, What};
pub use codes::{CodePatterns, GATE_PREFIX};
pub use derive::{Completed, complete};
pub use engine::{Chosen, best, chosen};
pub use engine::{
    Diagnoser, Facts, HEALTHY, INSUFFICIENT, choose, decision, diagnose_once, ranking,
};
pub use evaluate::{Hold, Watch, evaluate};
pub use expr::{Expr, ExprError};
pub use history::{Gap, Read, Readings, Ring, STALE_AFTER_S, Single};
pub use predicate::{
    Bound, MAX_PREDICATE_BYTES, Op, Operand, Predicate, PredicateError, Test, Window,
};
pub use rank::{Score, Seen, score};
pub use reach::{Reach, Within, reach};
pub use tree::{
    Action, Book, Branch, Cause, Goto, Grounds, Hypothesis, Library, LibraryError, Node, Outcome,
    Step, TRIAGE, UNDO, Undo, evidence_names,
};
pub use verdict::{Evidence, Missing, PathStep, Ranked, Standing, Truth, Verdict};
pub use wire::{snapshot_from_json, verdict_to_json};

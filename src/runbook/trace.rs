//! Follows a runbook as a test drives it: the evidence decides where it can, the test answers for the
//! person and says how flips went. Keeps the way out of every node that was left.
//!
//! A flip's guard is not asked for here: it held when the flip was made, which is before the moment at
//! which its outcome is known.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::diagnosis::{Action, Book, Facts, Goto, Library, Node, Step, TRIAGE, taken, triaged};

use super::suite::Outcome;

/// Most steps of one path; a runbook that is longer goes round in circles.
const MAX_STEPS: usize = 64;

/// One way out of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The branch at this place.
    Branch(usize),
    /// No branch.
    Otherwise,
    /// It cannot be told.
    Unknown,
    /// A hypothesis of the node's own.
    Hypothesis(String),
    /// A cause of its list.
    Among(String),
    /// No hypothesis and no cause.
    None,
    /// A person's answer.
    Answer(String),
    /// The flip worked.
    Verified,
    /// The flip did not help.
    Failed,
    /// The flip was taken back.
    Undo,
    /// The guard or an interlock keeps the flip from being made.
    Refused,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Branch(place) => write!(f, "branch {}", place + 1),
            Self::Otherwise => f.write_str("otherwise"),
            Self::Unknown => f.write_str("unknown"),
            Self::Hypothesis(id) => write!(f, "hypothesis {id}"),
            Self::Among(id) => write!(f, "among {id}"),
            Self::None => f.write_str("none"),
            Self::Answer(words) => write!(f, "answer \"{words}\""),
            Self::Verified => f.write_str("verified"),
            Self::Failed => f.write_str("failed"),
            Self::Undo => f.write_str("undo"),
            Self::Refused => f.write_str("guard refuses"),
        }
    }
}

/// What a test does in the place of a person.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hand<'a> {
    pub(super) answers: &'a BTreeMap<String, String>,
    pub(super) acted: &'a BTreeMap<String, Outcome>,
}

/// Where it led.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trace {
    /// Nodes entered, and `runbook:ID` where it left the file.
    pub(super) path: Vec<String>,
    /// Nodes left, each by its way.
    pub(super) left: Vec<(String, Way)>,
    /// `id=standing` of every ranking on the way.
    pub(super) ranking: Vec<String>,
    /// Why it cannot go on as the test says.
    pub(super) stuck: Option<String>,
}

/// Follows `book` from the node `from`.
pub(super) fn trace(
    library: &Library,
    book: &Book,
    from: &str,
    hand: Hand<'_>,
    facts: &Facts,
) -> Trace {
    let mut trace = Trace::default();
    let mut used = BTreeSet::new();
    let mut at = from;
    for _ in 0..MAX_STEPS {
        let Some(node) = book.node(at) else {
            trace.stuck = Some(format!("there is no node `{at}`"));
            break;
        };
        trace.path.push(node.id.clone());
        // Answers and outcomes count once, so that a runbook may lead back to its question.
        let by_person = matches!(node.step, Step::Human { .. } | Step::Action(_));
        if by_person && !used.insert(node.id.as_str()) {
            break;
        }
        let Some((way, goto)) = leave(library, book, node, hand, facts, &mut trace) else { break };
        trace.left.push((node.id.clone(), way));
        let target = match goto {
            Goto::Node(id) => id,
            Goto::Runbook(id) => {
                trace.path.push(format!("runbook:{id}"));
                break;
            }
        };
        let Some(next) = book.node(&target) else {
            trace.stuck = Some(format!("`{at}` leads to no node"));
            break;
        };
        at = &next.id;
    }
    trace
}

fn leave(
    library: &Library,
    book: &Book,
    node: &Node,
    hand: Hand<'_>,
    facts: &Facts,
    trace: &mut Trace,
) -> Option<(Way, Goto)> {
    if let Some(taken) = taken(library, book, node, facts) {
        let told = taken.ranked.iter().map(|(id, standing, _)| format!("{id}={standing}"));
        trace.ranking.extend(told);
        return Some((way_at(node, taken.place), taken.goto));
    }
    Some(match &node.step {
        Step::Human { answers, .. } => {
            let words = hand.answers.get(&node.id)?;
            let Some((_, goto)) = answers.iter().find(|(known, _)| known == words) else {
                let known: Vec<&str> = answers.iter().map(|(known, _)| known.as_str()).collect();
                let there = known.join("`, `");
                trace.stuck =
                    Some(format!("`{}` has no answer `{words}`; it has `{there}`", node.id));
                return None;
            };
            (Way::Answer(words.clone()), goto.clone())
        }
        Step::Action(action) => {
            let outcome = *hand.acted.get(&node.id)?;
            let exit = exit_of(action, outcome);
            if exit.is_none() {
                trace.stuck = Some(format!("`{}` has no undo", node.id));
            }
            exit?
        }
        Step::Decide { .. } | Step::Rank { .. } | Step::End { .. } => return None,
    })
}

/// What the way at this place is called, by the order of [`crate::diagnosis::Taken`].
fn way_at(node: &Node, place: usize) -> Way {
    match &node.step {
        Step::Decide { branches, .. } if place < branches.len() => Way::Branch(place),
        Step::Decide { branches, .. } if place == branches.len() => Way::Otherwise,
        Step::Rank { hypotheses, among, .. } => {
            let own = hypotheses.iter().map(|one| Way::Hypothesis(one.id.clone()));
            let causes = among.iter().map(|id| Way::Among(id.clone()));
            let mut ways = own.chain(causes).chain([Way::None]);
            ways.nth(place).unwrap_or(Way::Unknown)
        }
        _ => Way::Unknown,
    }
}

fn exit_of(action: &Action, outcome: Outcome) -> Option<(Way, Goto)> {
    Some(match outcome {
        Outcome::Verified => (Way::Verified, action.resolve(&action.verified).clone()),
        Outcome::Failed => (Way::Failed, action.resolve(&action.failed).clone()),
        Outcome::Unknown => (Way::Unknown, action.resolve(&action.unknown).clone()),
        Outcome::Undo => (Way::Undo, action.undo.as_ref()?.goto.clone()),
    })
}

/// The cause that the whole triage names, and the ways that it took.
pub(super) fn verdict(library: &Library, facts: &Facts) -> (String, Vec<(String, Way)>) {
    let (cause, steps) = triaged(library, facts);
    let way = |(node, taken): (&Node, crate::diagnosis::Taken)| {
        (node.id.clone(), way_at(node, taken.place))
    };
    (cause, steps.into_iter().map(way).collect())
}

/// Whether this is the runbook that verdicts are walked in.
pub(super) fn is_triage(book: &str) -> bool {
    book == TRIAGE
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::diagnosis::Diagnoser;
    use crate::runbook::{Walk, embedded};
    use crate::signal::{Mono, Snapshot, Value};

    const NAMES: [&str; 8] = [
        "provider_429_share",
        "gate_refused_share",
        "amplification",
        "max_attempts_configured",
        "tpm_headroom",
        "rpm_headroom",
        "served_share",
        "queue_oldest_age_s",
    ];

    fn facts(values: &[Option<f64>]) -> Facts {
        let mut snapshot = Snapshot::new("test", 10.0);
        for (name, value) in NAMES.iter().zip(values) {
            if let Some(value) = value {
                snapshot.set(name, Value::Number(*value), &Arc::from("test"));
            }
        }
        let mut diagnoser = Diagnoser::new(embedded());
        for second in [0.0, 10.0, 20.0] {
            diagnoser.see(&snapshot, None, Mono::from_secs_f64(second));
        }
        diagnoser.facts().clone()
    }

    /// What the guided walk passes in one runbook before a person is needed.
    fn walked(book: &str, facts: &Facts) -> Vec<String> {
        let mut walk = Walk::start_in(embedded(), book).expect("shipped");
        let mut path = vec![walk.position().1.to_owned()];
        while walk.advance(facts, Mono::START).is_ok() && path.len() < MAX_STEPS {
            let (now, node) = walk.position();
            if now != book {
                path.push(format!("runbook:{now}"));
                break;
            }
            path.push(node.to_owned());
        }
        path
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn it_goes_where_the_walk_goes(
            values in prop::collection::vec(prop::option::of(0.0..4.0_f64), NAMES.len()),
        ) {
            let facts = facts(&values);
            let library = embedded();
            let nobody = (BTreeMap::new(), BTreeMap::new());
            for book in library.books() {
                let hand = Hand { answers: &nobody.0, acted: &nobody.1 };
                let found = trace(&library, book, &book.entry, hand, &facts);
                prop_assert_eq!(&found.path, &walked(&book.id, &facts), "{}", book.id);
                prop_assert_eq!(&found.stuck, &None);
                let steps = found.path.iter().filter(|step| !step.starts_with("runbook:")).count();
                prop_assert!(steps - found.left.len() <= 1, "{:?}", found);
            }
        }
    }
}

//! Lints the ways out of steps: a flip that did not help leads on, a person may say that they cannot
//! tell, and what is not known never leads to a flip away from the safe end. Knows no flag.

use crate::diagnosis::{Action, Book, Goto, Node, Step};

use super::problem::Findings;

/// What an answer has to hold for somebody who cannot answer.
const CANNOT_TELL: [&str; 6] =
    ["cannot tell", "cannot be told", "can't tell", "not known", "not sure", "unknown"];

/// Whether an answer is the one of somebody who cannot tell.
#[must_use]
pub fn is_open_answer(words: &str) -> bool {
    let words = words.to_lowercase();
    CANNOT_TELL.iter().any(|open| words.contains(open))
}

/// Judges every way out of every node.
pub(super) fn exits(book: &Book, findings: &mut Findings<'_>) {
    for node in &book.nodes {
        match &node.step {
            Step::Action(action) => goes_on(node, action, findings),
            Step::Human { answers, .. } => may_not_know(node, answers, findings),
            Step::Decide { otherwise, unknown, .. } => {
                stays_safe(book, node, ("otherwise", otherwise), findings);
                stays_safe(book, node, ("unknown", unknown), findings);
            }
            Step::Rank { none, unknown, .. } => {
                stays_safe(book, node, ("none", none), findings);
                stays_safe(book, node, ("unknown", unknown), findings);
            }
            Step::End { .. } => {}
        }
    }
}

fn goes_on(node: &Node, action: &Action, findings: &mut Findings<'_>) {
    for (way, goto) in [("failed", &action.failed), ("unknown", &action.unknown)] {
        if *action.resolve(goto) == Goto::Node(node.id.clone()) {
            let what = format!("`{way}` leads back to the same flip");
            let remedy = "lead it to what is to be done when the flip did not help";
            findings.error("WRB024", node.line, &node.id, what, remedy);
        }
    }
}

fn may_not_know(node: &Node, answers: &[(String, Goto)], findings: &mut Findings<'_>) {
    if !answers.iter().any(|(words, _)| is_open_answer(words)) {
        let what = "no answer is for somebody who cannot tell";
        let remedy = "add one, such as \"cannot tell\" = \"NODE\"";
        findings.warning("WRB025", node.line, &node.id, what, remedy);
    }
}

fn stays_safe(book: &Book, node: &Node, (way, goto): (&str, &Goto), findings: &mut Findings<'_>) {
    let Goto::Node(target) = goto else { return };
    if let Some(Step::Action(action)) = book.node(target).map(|node| &node.step)
        && !action.safe
    {
        let what = format!("`{way}` leads to `{target}`, a flip away from the safe end");
        let remedy = "lead it to a question or a safe flip; name the unsafe one in a branch";
        findings.error("WRB026", node.line, &node.id, what, remedy);
    }
}

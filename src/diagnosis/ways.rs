//! Which steps of a runbook can still lead to which cause. Looks at the tree only, at no evidence.

use std::collections::BTreeSet;

use super::tree::{Book, Goto, Node, Step};

/// The nodes of `book` from which `cause` can still be reached.
#[must_use]
pub fn leading_to<'a>(book: &'a Book, cause: &str) -> BTreeSet<&'a str> {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    // Each round finds at least one node more, or is the last.
    for _ in 0..=book.nodes.len() {
        let before = found.len();
        for node in &book.nodes {
            if names(node, cause)
                || node.step.targets().iter().any(|goto| leads(goto, cause, &found))
            {
                found.insert(&node.id);
            }
        }
        if found.len() == before {
            break;
        }
    }
    found
}

/// Whether a way out leads to `cause`, given the nodes from which it can be reached.
pub(super) fn leads(goto: &Goto, cause: &str, leading: &BTreeSet<&str>) -> bool {
    match goto {
        Goto::Node(id) => leading.contains(id.as_str()),
        Goto::Runbook(id) => id == cause,
    }
}

fn names(node: &Node, cause: &str) -> bool {
    match &node.step {
        Step::Rank { among, .. } => among.iter().any(|id| id == cause),
        Step::End { cause: Some(named), .. } => named == cause,
        _ => false,
    }
}

/// The causes and runbooks that lie behind a way out, nearest first.
#[must_use]
pub fn causes_behind(book: &Book, goto: &Goto) -> Vec<String> {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut causes: Vec<String> = Vec::new();
    let mut open = std::collections::VecDeque::from([goto.clone()]);
    while let Some(goto) = open.pop_front() {
        let mut add = |id: &str| {
            if !causes.iter().any(|known| known == id) {
                causes.push(id.to_owned());
            }
        };
        match goto {
            Goto::Runbook(id) => add(&id),
            Goto::Node(id) => {
                let Some(node) = book.node(&id).filter(|_| seen.insert(id.clone())) else {
                    continue;
                };
                match &node.step {
                    Step::Rank { among, .. } => among.iter().for_each(|id| add(id)),
                    Step::End { cause: Some(cause), .. } => add(cause),
                    _ => {}
                }
                open.extend(node.step.targets().into_iter().cloned());
            }
        }
    }
    causes
}

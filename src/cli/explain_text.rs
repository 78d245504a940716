//! Why a cause is named, or why not, as a person reads it in a terminal.

use std::fmt::Write as _;

use super::diagnose_text::{evidence_line, mark, number};
use crate::diagnosis::{
    Evidence, Explanation, Kind, Lever, Role, Standing, Tipping, Truth, Verdict, Way, fetch,
};
use crate::signal::Quality;

/// The explanation of one cause beside the verdict.
pub(super) fn in_words(explanation: &Explanation, verdict: &Verdict) -> String {
    let Explanation { cause, standing, role, .. } = explanation;
    let (why, role) = match role {
        None => ("why", String::new()),
        Some(Role::Contributing) => ("why not alone", "  contributing".to_owned()),
        Some(Role::Consequence) => ("why not", format!("  consequence of {}", verdict.cause)),
        Some(Role::Other) => ("why not", String::new()),
    };
    let counts = format!(
        "{} for, {} against, {} unknown",
        explanation.evidence_for, explanation.evidence_against, explanation.evidence_unknown
    );
    let mut lines = vec![format!("{why} {cause}: {standing}  {counts}{role}")];
    if explanation.is_settling {
        lines.push("  proven, and confirmed once it has been so for a window".to_owned());
    }
    lines.extend(way(&explanation.way));
    let kinds = [Kind::Requires, Kind::Supports, Kind::Refutes, Kind::Unless, Kind::Tentative];
    for kind in kinds {
        let grounds: Vec<_> =
            explanation.grounds.iter().filter(|ground| ground.kind == kind).collect();
        if grounds.is_empty() {
            continue;
        }
        lines.push(format!("  {} ({})", kind.word(), meaning(kind)));
        for ground in grounds {
            lines.push(format!("    {} {}", mark(ground.state), ground.text));
            lines.extend(ground.evidence.iter().map(|one| format!("      {}", read(one))));
        }
    }
    if !explanation.turns.is_empty() {
        let standing = if explanation.is_settling { Standing::Confirmed } else { *standing };
        lines.push(format!("  {}", heading(standing)));
        for turn in &explanation.turns {
            lines.extend(turned(turn));
        }
    }
    lines.push(String::new());
    lines.join("\n") + "\n"
}

const fn meaning(kind: Kind) -> &'static str {
    match kind {
        Kind::Requires => "all must be T",
        Kind::Supports => "T counts for it",
        Kind::Refutes => "T contradicts, ? leaves it at likely",
        Kind::Unless => "T contradicts: another cause explains it",
        Kind::Tentative => "T or ? leaves it at likely",
    }
}

const fn heading(standing: Standing) -> &'static str {
    match standing {
        Standing::Confirmed => "it would no longer be confirmed if any of these turned",
        _ => "it would be confirmed if these turned",
    }
}

fn way(way: &Way) -> Vec<String> {
    match way {
        Way::Named => vec!["  the triage names it".to_owned()],
        Way::Nowhere => vec!["  no question on this path leads to it".to_owned()],
        Way::Weighed { node, title, answer } => {
            vec![format!("  asked at {node} ({title}): {answer}")]
        }
        Way::Left { node, title, answer, wanted } => {
            let mut lines =
                vec![format!("  the triage went elsewhere at {node} ({title}): {answer}")];
            for one in wanted {
                let state = mark(one.state);
                lines.push(format!("    the way to it: {} ({state} {})", one.say, one.when));
            }
            lines
        }
    }
}

/// A piece of evidence with bound, source and age.
fn read(evidence: &Evidence) -> String {
    let mut text = evidence_line(evidence);
    if let Some(threshold) = evidence.threshold {
        let _ = write!(text, "  bound {}", number(threshold));
    }
    if let Some(source) = &evidence.source {
        let age = evidence.age_s.map_or_else(|| "?".to_owned(), |age| format!("{age:.0} s"));
        let quality = evidence.quality.map_or("?", Quality::word);
        let _ = write!(text, "  {source}, {age} old, {quality}");
    }
    text
}

fn turned(turn: &Tipping) -> Vec<String> {
    let (state, kind) = (mark(turn.state), turn.kind.word());
    let mut lines = vec![format!("    {kind} {state} {}, wants {}", turn.text, mark(turn.wanted))];
    let several = turn.levers.len() > 1;
    lines.extend(turn.levers.iter().map(|lever| format!("      {}", needed(lever, several))));
    lines
}

fn needed(lever: &Lever, several: bool) -> String {
    let Lever { evidence, wanted, alone } = lever;
    let enough = if several && *alone { "; this alone would do" } else { "" };
    let predicate = &evidence.predicate;
    let wanted = match (wanted, evidence.state) {
        (Truth::True, _) => "would have to hold",
        (_, Truth::True) => "would have to stop holding",
        _ => "would have to be false",
    };
    if evidence.pending {
        let why = evidence.reason.as_deref().unwrap_or("not long enough");
        return format!("{predicate}: {why}, {wanted}{enough}");
    }
    match (evidence.value, evidence.state) {
        (_, Truth::Unknown) => {
            let why = evidence.reason.as_deref().unwrap_or("no-data");
            format!("{predicate}: unknown ({why}), {wanted}{enough}; {}", fetch(&evidence.signal))
        }
        (Some(value), _) => {
            let bound = evidence.threshold.map(|bound| format!(" against {}", number(bound)));
            let (value, bound) = (number(value), bound.unwrap_or_default());
            format!("{predicate}: is {value}{bound}, {wanted}{enough}")
        }
        (None, _) => format!("{predicate}: {wanted}{enough}"),
    }
}

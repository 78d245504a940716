//! A verdict as a person reads it in a terminal: what it is, how it was found, on what, and what to do.

use crate::diagnosis::{
    Evidence, HEALTHY, INSUFFICIENT, Library, Missing, Onset, Owners, Ranked, Role, Standing, Step,
    Truth, Verdict,
};

/// Missing signals that are named in the sentence; the rest is counted there and listed below.
const NAMED_MAX: usize = 8;
/// Lines on where to fetch what is missing.
const FETCH_MAX: usize = 24;

/// The verdict for a person.
pub(super) fn in_words(verdict: &Verdict, library: &Library, owners: &Owners) -> String {
    let mut lines = vec![format!(
        "{}  {}  {} of {} signals{}",
        verdict.cause,
        verdict.standing,
        verdict.used,
        verdict.of,
        if verdict.scope.is_empty() { String::new() } else { format!("  {}", verdict.scope) },
    )];
    if !verdict.say.is_empty() {
        lines.push(format!("  {}", verdict.say));
    }
    lines.push("path".to_owned());
    for (number, step) in (1..).zip(&verdict.path) {
        lines.push(format!("  {number} {}  {}", step.title, step.branch));
    }
    lines.push("evidence".to_owned());
    lines.extend(verdict.evidence.iter().map(|one| format!("  {}", evidence_line(one))));
    if !verdict.onsets.is_empty() {
        lines.push("first movers".to_owned());
        let line = |one: &Onset| format!("  {:>4.0} s ago  {one}", one.ago_s);
        lines.extend(verdict.onsets.iter().map(line));
    }
    let standing = verdict.also.iter().filter(|one| one.standing >= Standing::Contradicted);
    let also: Vec<String> = standing.map(|one| also(one, &verdict.cause)).collect();
    if !also.is_empty() {
        lines.push("also".to_owned());
        lines.extend(also);
    }
    lines.push(completeness(verdict));
    lines.extend(fetching(&verdict.missing));
    lines.extend(verdict.notes.iter().map(|note| format!("note: {note}")));
    if verdict.pages_owner {
        lines.push(format!("first: {}", owners.page(&verdict.scope)));
    }
    lines.push(format!("next: {}", next_step(verdict, library)));
    lines.push(String::new());
    lines.join("\n") + "\n"
}

/// A cause beside the one that was named.
pub(super) fn also(ranked: &Ranked, named: &str) -> String {
    let Ranked { cause, standing, evidence_for, evidence_against, evidence_unknown, role } = ranked;
    let counts =
        format!("{evidence_for} for, {evidence_against} against, {evidence_unknown} unknown");
    let role = match role {
        Role::Contributing => "  contributing".to_owned(),
        Role::Consequence => format!("  consequence of {named}"),
        Role::Other => String::new(),
    };
    format!("  {cause}  {standing}  {counts}{role}")
}

/// What was looked at and what was not there, in one sentence.
fn completeness(verdict: &Verdict) -> String {
    let used = format!("used {} of {} signals", verdict.used, verdict.of);
    if verdict.missing.is_empty() {
        return format!("{used}; missing: none");
    }
    let named: Vec<String> = verdict
        .missing
        .iter()
        .take(NAMED_MAX)
        .map(|missing| format!("{} ({})", missing.signal, missing.reason))
        .collect();
    let more = match verdict.missing.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{used}; missing: {}{more}", named.join(", "))
}

/// Where to fetch what is missing; signals that come from one place share a line.
pub(super) fn fetching(missing: &[Missing]) -> Vec<String> {
    let mut places: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in missing {
        match places.iter_mut().find(|(place, _)| *place == one.fetch) {
            Some((_, signals)) => signals.push(&one.signal),
            None => places.push((one.fetch, vec![&one.signal])),
        }
    }
    let hidden = places.len().saturating_sub(FETCH_MAX);
    let line = |(place, signals): &(&str, Vec<&str>)| format!("  {}: {place}", signals.join(", "));
    let mut lines: Vec<String> = places.iter().take(FETCH_MAX).map(line).collect();
    if hidden > 0 {
        lines.push(format!("  and {hidden} more places; --json names them all"));
    }
    lines
}

/// `T predicate  value  (reason)`.
pub(super) fn evidence_line(evidence: &Evidence) -> String {
    let value = evidence.value.map_or_else(|| "?".to_owned(), number);
    let reason = evidence.reason.as_deref().map(|why| format!("  ({why})")).unwrap_or_default();
    format!("{} {}  {value}{reason}", mark(evidence.state), evidence.predicate)
}

/// The letter of a truth.
pub(super) const fn mark(state: Truth) -> char {
    match state {
        Truth::True => 'T',
        Truth::False => 'F',
        Truth::Unknown => '?',
    }
}

/// At most four decimals, without zeros at the end.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What to do first. Evidence that contradicts itself offers no action at all.
pub(super) fn next_step(verdict: &Verdict, library: &Library) -> String {
    if verdict.standing == Standing::Contradicted {
        let cause = &verdict.cause;
        return format!(
            "no action: the evidence contradicts itself; weir diagnose --explain {cause} says how"
        );
    }
    if let Some(plan) = &verdict.plan {
        return format!("plan {plan} (weir flag plan {plan})");
    }
    let begin = |id: &String| library.book(id).map(|book| (book, &book.entry));
    let named = verdict.first.as_ref().map(|first| (library.book(&first.runbook), &first.node));
    let first = match named {
        Some((book, node)) => book.map(|book| (book, node)),
        // What is not likely has no first step; its runbook begins with a question all the same.
        None => verdict.runbook.as_ref().and_then(begin),
    };
    let first = first.and_then(|(book, node)| Some((book, book.node(node)?)));
    let calm = verdict.cause == HEALTHY || verdict.cause == INSUFFICIENT;
    match first {
        Some((book, node)) => match &node.step {
            Step::End { say, .. } => say.clone(),
            // What could only be told by what is missing is read, not acted upon.
            Step::Action(_) if verdict.standing < Standing::Likely && !calm => {
                format!("fetch what is missing, then runbook {}", book.id)
            }
            _ => format!("runbook {}: {}", book.id, node.title),
        },
        None => "there is no runbook for it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::diagnose_once;
    use crate::runbook;
    use crate::signal::Snapshot;

    #[test]
    fn no_action_is_offered_on_evidence_that_contradicts_itself() {
        let library = runbook::embedded();
        let open = diagnose_once(&library, &Snapshot::new("scope", 60.0));
        for book in library.books().filter(|book| book.cause.is_some()) {
            let (cause, runbook) = (book.id.clone(), Some(book.id.clone()));
            let plan = Some("contain".to_owned());
            let standing = Standing::Contradicted;
            let verdict = Verdict { cause, standing, runbook, plan, ..open.clone() };
            let next = next_step(&verdict, &library);
            assert!(next.starts_with("no action: "), "{}: {next}", book.id);
        }
    }

    #[test]
    fn places_are_listed_once_and_boundedly() {
        let missing = |signal: &str, fetch| Missing {
            signal: signal.to_owned(),
            reason: "no-data".to_owned(),
            fetch,
        };
        let lines = fetching(&[missing("a", "here"), missing("b", "there"), missing("c", "here")]);
        assert_eq!(lines, ["  a, c: here", "  b: there"]);
        let many: Vec<Missing> = (0..FETCH_MAX + 2)
            .map(|index| missing("s", Box::leak(index.to_string().into_boxed_str())))
            .collect();
        assert_eq!(fetching(&many[..FETCH_MAX]).len(), FETCH_MAX);
        let lines = fetching(&many);
        assert_eq!(lines.len(), FETCH_MAX + 1);
        assert_eq!(lines[FETCH_MAX], "  and 2 more places; --json names them all");
    }
}

//! Judges one expectation of a test on the evidence of its moment: path, evidence, standings, offers.
//! Takes the runbooks and the evidence as arguments, so that changed ones can be judged as well.

use std::collections::BTreeMap;

use crate::admission::FlagValue;
use crate::diagnosis::{Evidence, Facts, Library, Step, Truth};

use super::check::Failure;
use super::read::flag_value;
use super::suite::{Case, Expect};
use super::trace::{Hand, Way, is_triage, trace, verdict};

/// One expectation and the evidence at its moment.
pub(super) struct Moment<'a> {
    pub(super) case: &'a Case,
    pub(super) expect: &'a Expect,
    pub(super) place: String,
    pub(super) facts: Facts,
}

/// What an expectation finds.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// What is wrong, in words.
    pub(super) wrong: Vec<String>,
    /// The ways out of the tested runbook that it walked.
    pub(super) left: Vec<(String, Way)>,
}

impl Moment<'_> {
    pub(super) fn failure(&self, what: String) -> Failure {
        Failure { place: self.place.clone(), case: self.case.name.clone(), what }
    }

    /// What the expectation finds wrong on these facts, which may be other ones than its own.
    pub(super) fn judge(&self, library: &Library, book: &str, facts: &Facts) -> Judged {
        let expect = self.expect;
        let Some(tested) = library.book(book) else {
            return Judged {
                wrong: vec![format!("the runbook `{book}` is not loaded")],
                left: Vec::new(),
            };
        };
        let mut judged = Judged::default();
        let Judged { wrong, left } = &mut judged;
        let walks = expect.path.is_some() || expect.offer.is_some() || !expect.rank.is_empty();
        if walks {
            let from = expect.from.as_deref().unwrap_or(&tested.entry);
            let hand = Hand { answers: &expect.answers, acted: &expect.acted };
            let mut trace = trace(library, tested, from, hand, facts);
            wrong.extend(trace.stuck.take());
            if let Some(wanted) = &expect.path {
                if *wanted != trace.path {
                    wrong.push(format!("path is {:?}, expected {wanted:?}", trace.path));
                }
                left.append(&mut trace.left);
            }
            for wanted in expect.rank.iter().filter(|wanted| !trace.ranking.contains(wanted)) {
                wrong.push(format!("rank has {:?}, expected {wanted}", trace.ranking));
            }
            let last = trace.path.last();
            if let Some(wanted) = expect.offer.as_ref().filter(|wanted| last != Some(*wanted)) {
                wrong.push(format!("offered is {last:?}, expected {wanted}"));
            }
        }
        if let Some(wanted) = &expect.verdict {
            let (named, mut walked) = verdict(library, facts);
            if named != *wanted {
                let path: Vec<String> =
                    walked.iter().map(|(node, way)| format!("{node}: {way}")).collect();
                wrong.push(format!("verdict is {named} by {path:?}, expected {wanted}"));
            }
            if is_triage(book) {
                left.append(&mut walked);
            }
        }
        for (name, wanted) in &expect.evidence {
            wrong.extend(evidence(facts.get(book, name), name, wanted));
        }
        self.causes(library, book, facts, wrong);
        for (node, wanted) in &expect.verify {
            let found = match tested.node(node).map(|node| &node.step) {
                Some(Step::Action(action)) => facts.truth(book, &action.verify).word(),
                _ => "not there: it is no action",
            };
            if found != wanted.word() {
                wrong.push(format!("verify of `{node}` is {found}, expected {}", wanted.word()));
            }
        }
        self.flips(library, book, facts, &mut judged);
        judged
    }

    /// How causes stand: this runbook's own, and others by id.
    fn causes(&self, library: &Library, book: &str, facts: &Facts, wrong: &mut Vec<String>) {
        let own = self.expect.standing.iter().map(|wanted| (book, wanted));
        let others = self.expect.causes.iter().map(|(id, wanted)| (id.as_str(), wanted));
        for (id, wanted) in own.chain(others) {
            let Some(cause) = library.cause(id) else {
                wrong.push(format!("`{id}` is no cause"));
                continue;
            };
            let found = facts.score(id, &cause.grounds).standing;
            if found != wanted.standing() {
                wrong.push(format!("cause {id} is {found}, expected {}", wanted.standing()));
            }
        }
    }

    /// Flips that must be offered or refused.
    fn flips(&self, library: &Library, book: &str, facts: &Facts, judged: &mut Judged) {
        let mut set: BTreeMap<&str, &toml::Value> = BTreeMap::new();
        let flags = self.case.flags.iter().chain(&self.expect.flags);
        set.extend(flags.map(|(key, value)| (key.as_str(), value)));
        for (wanted, node) in [(true, &self.expect.allow), (false, &self.expect.refuse)] {
            let Some(node) = node else { continue };
            match allowed(library, book, node, &set, facts) {
                None => judged.wrong.push(format!("`{node}` is no action")),
                Some(found) if found != wanted => {
                    let word = if wanted { "refused" } else { "allowed" };
                    judged.wrong.push(format!("`{node}` is {word}"));
                }
                Some(true) => {}
                Some(false) => judged.left.push((node.clone(), Way::Refused)),
            }
        }
    }
}

/// What is wrong with a piece of evidence; `unknown` alone accepts any reason.
fn evidence(found: Option<Evidence>, name: &str, wanted: &str) -> Option<String> {
    let (found, right) = match found {
        None => ("not defined".to_owned(), false),
        Some(Evidence { state: Truth::Unknown, pending, reason, .. }) => {
            let reason = reason.unwrap_or_default();
            let right = match wanted.split_once(':') {
                None => wanted == "unknown" || (pending && wanted == "pending"),
                Some((word, class)) => {
                    let rest = reason.strip_prefix(class.trim());
                    word == "unknown"
                        && !class.trim().is_empty()
                        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
                }
            };
            (format!("{}:{reason}", if pending { "pending" } else { "unknown" }), right)
        }
        Some(known) => (known.state.word().to_owned(), known.state.word() == wanted),
    };
    (!right).then(|| format!("evidence `{name}` is {found}, expected {wanted}"))
}

/// Whether an action's guard lets it and its interlocks are met; `None` when it is no action.
fn allowed(
    library: &Library,
    book: &str,
    node: &str,
    flags: &BTreeMap<&str, &toml::Value>,
    facts: &Facts,
) -> Option<bool> {
    let Step::Action(action) = &library.book(book)?.node(node)?.step else { return None };
    let has = |key: &str, value: &FlagValue| {
        flags.get(key).and_then(|set| flag_value(set)).is_some_and(|set| set == *value)
    };
    Some(action.refusal(facts.truth(book, &action.guard), has).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_compared_by_state_and_by_reason() {
        let found = |state, pending, reason: Option<&str>| {
            let reason = reason.map(str::to_owned);
            Evidence { pending, reason, ..Evidence::empty(state) }
        };
        let check = |evidence_found: Evidence, wanted: &str, right: bool| {
            let wrong = evidence(Some(evidence_found), "e", wanted);
            assert_eq!(wrong.is_none(), right, "{wanted}: {wrong:?}");
        };
        check(found(Truth::True, false, Some("is open")), "true", true);
        check(found(Truth::False, false, None), "true", false);
        let missing = || found(Truth::Unknown, false, Some("no-data: needs tpm_limit"));
        check(missing(), "unknown", true);
        check(missing(), "unknown:no-data", true);
        check(missing(), "unknown:no-data: needs tpm_limit", true);
        check(missing(), "unknown:no", false);
        check(missing(), "unknown:", false);
        check(missing(), "pending", false);
        check(missing(), "false", false);
        let waiting = || found(Truth::Unknown, true, Some("held 1 s of 3 s"));
        check(waiting(), "pending", true);
        check(waiting(), "unknown", true);
        check(waiting(), "true", false);
        assert!(evidence(None, "e", "unknown").is_some(), "what is not defined is not unknown");
    }
}

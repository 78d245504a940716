//! Why a step is asked, and how the walk came to where it stands: the two questions that a reader
//! puts to a guide. Says what is there and judges nothing.

use chrono::{DateTime, Utc};

use super::{Frozen, HandOver, Walk};
use crate::diagnosis::{
    Book, Facts, Goto, Missing, Standing, Step, Truth, Verdict, causes_behind, ranking,
};

/// Causes that are named behind one way out; the rest is counted.
const NAMED_MAX: usize = 4;

/// One way out of a step, or one hypothesis that it weighs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The answer, or the title of the hypothesis.
    pub say: String,
    /// What it takes, over names of evidence; empty where a person answers.
    pub when: String,
    /// How that stands now: `true`, `false`, `unknown`, or a standing.
    pub state: Option<&'static str>,
    /// The causes and runbooks behind it, nearest first.
    pub leads: Vec<String>,
    /// Where it leads.
    pub goto: Goto,
}

/// Why the current step is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// `runbook/node`.
    pub place: String,
    /// The question.
    pub title: String,
    /// The prose of the runbook, which says why.
    pub prose: String,
    /// What it tells apart.
    pub forks: Vec<Fork>,
    /// The evidence that decides: name, predicate, and what it is now.
    pub evidence: Vec<(String, String, Option<Truth>)>,
}

/// How the walk came here.
#[derive(Clone, Debug, PartialEq)]
pub struct How {
    /// The verdict beside it: cause, standing, signals used, signals wanted.
    pub verdict: Option<(String, Standing, usize, usize)>,
    /// The steps with their evidence at the time.
    pub passed: Vec<Frozen>,
    /// What was missing.
    pub missing: Vec<Missing>,
    /// The hand-overs.
    pub hand_overs: Vec<HandOver>,
}

impl Walk {
    /// Why the current step is asked. `None` only when the library has lost it.
    #[must_use]
    pub fn why(&self, facts: &Facts) -> Option<Why> {
        let book = self.library.book(&self.book)?;
        let node = book.node(&self.node)?;
        let mut evidence: Vec<(String, String, Option<Truth>)> = Vec::new();
        let named = node.step.expressions().flat_map(crate::diagnosis::Expr::names);
        for name in node.show.iter().map(String::as_str).chain(named) {
            if let Some(predicate) = self.library.predicate(book, name)
                && !evidence.iter().any(|(known, _, _)| known == name)
            {
                let state = facts.get(&self.book, name).map(|one| one.state);
                evidence.push((name.to_owned(), predicate.text.clone(), state));
            }
        }
        Some(Why {
            place: format!("{}/{}", self.book, self.node),
            title: node.title.clone(),
            prose: node.prose.clone(),
            forks: self.forks(book, node, facts),
            evidence,
        })
    }

    fn forks(&self, book: &Book, node: &crate::diagnosis::Node, facts: &Facts) -> Vec<Fork> {
        let way = |say: &str, goto: &Goto| Fork {
            say: say.to_owned(),
            when: String::new(),
            state: None,
            leads: causes_behind(book, goto),
            goto: goto.clone(),
        };
        match &node.step {
            Step::Decide { branches, otherwise, unknown } => {
                let taken = branches.iter().map(|branch| Fork {
                    when: branch.when.to_string(),
                    state: Some(facts.truth(&self.book, &branch.when).word()),
                    ..way(&branch.say, &branch.goto)
                });
                let rest = [way("none of these", otherwise), way("cannot be told", unknown)];
                taken.chain(rest).collect()
            }
            Step::Rank { hypotheses, none, unknown, .. } => {
                let title = |id: &str| {
                    let own = hypotheses.iter().find(|one| one.id == id).map(|one| &one.title);
                    own.cloned().unwrap_or_else(|| id.to_owned())
                };
                let ranked = ranking(&self.library, book, node, facts);
                let weighed = ranked.iter().map(|(id, standing, goto)| Fork {
                    state: Some(facts.told(id, *standing).word()),
                    ..way(&title(id), goto)
                });
                let rest = [way("none of these", none), way("cannot be told", unknown)];
                weighed.chain(rest).collect()
            }
            Step::Human { answers, .. } => {
                answers.iter().map(|(words, goto)| way(words, goto)).collect()
            }
            Step::Action(action) => {
                let named = |say: &str, goto: &Goto| way(say, action.resolve(goto));
                let verified = Fork {
                    when: action.verify.to_string(),
                    state: Some(facts.truth(&self.book, &action.verify).word()),
                    ..named("it worked", &action.verified)
                };
                let failed = named("it did not help", &action.failed);
                vec![verified, failed, named("cannot be told", &action.unknown)]
            }
            Step::End { .. } => Vec::new(),
        }
    }

    /// How the walk came here, beside the verdict of now.
    #[must_use]
    pub fn how(&self, verdict: Option<&Verdict>) -> How {
        How {
            verdict: verdict.map(|one| (one.cause.clone(), one.standing, one.used, one.of)),
            passed: self.trail.clone(),
            missing: verdict.map_or_else(Vec::new, |verdict| verdict.missing.clone()),
            hand_overs: self.hand_overs.clone(),
        }
    }
}

impl Why {
    /// The same in lines for a screen or a terminal, unwrapped.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}  {}", self.place, self.title)];
        lines.extend(paragraphs(&self.prose));
        if !self.forks.is_empty() {
            lines.push("it tells apart:".to_owned());
            lines.extend(self.forks.iter().map(Fork::line));
        }
        if !self.evidence.is_empty() {
            lines.push("on this evidence:".to_owned());
            lines.extend(self.evidence.iter().map(|(name, predicate, state)| {
                format!("  {} {name}  {predicate}", state.map_or(" ", Truth::letter))
            }));
        }
        lines
    }
}

impl Fork {
    fn line(&self) -> String {
        let state = self.state.map(|state| format!(" [{state}]")).unwrap_or_default();
        let when = if self.when.is_empty() { String::new() } else { format!(": {}", self.when) };
        let named: Vec<&str> = self.leads.iter().take(NAMED_MAX).map(String::as_str).collect();
        let more = match self.leads.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let leads = if named.is_empty() {
            String::new()
        } else {
            format!(" -> {}{more}", named.join(", "))
        };
        format!("  {}{state}{when}{leads}", self.say)
    }
}

impl How {
    /// The same in lines, unwrapped; `clock` writes an instant.
    #[must_use]
    pub fn lines(&self, clock: &dyn Fn(DateTime<Utc>) -> String) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some((cause, standing, used, of)) = &self.verdict {
            lines.push(format!("{cause} is {standing}, on {used} of {of} signals"));
        }
        if self.passed.is_empty() {
            lines.push("no step was passed yet".to_owned());
        }
        for (number, step) in (1..).zip(&self.passed) {
            let by = step.by.as_ref().map(|by| format!(", said by {by}")).unwrap_or_default();
            let skipped = if step.skipped { "skipped: " } else { "" };
            let changed = step.changed_at.map_or_else(String::new, |at| {
                format!("; its evidence says otherwise since {}", clock(at))
            });
            let (at, answer) = (clock(step.at), &step.answer);
            let colon = if step.title.ends_with('?') { "" } else { ":" };
            lines.push(format!(
                "{number} {at} {}/{} {}{colon} {skipped}{answer}{by}{changed}",
                step.book, step.node, step.title
            ));
            for one in &step.evidence {
                let value = one.value.map_or_else(|| "?".to_owned(), short);
                let why = one.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
                let state = one.state.letter();
                lines.push(format!("    {state} {}  was {value}{why}", one.predicate));
            }
            lines.extend(step.notes.iter().map(|note| format!("    note by {note}")));
        }
        let said: Vec<&Frozen> = self.passed.iter().filter(|step| step.by.is_some()).collect();
        lines.push(format!("said by people and not by signals: {} steps", said.len()));
        if !self.missing.is_empty() {
            lines.push("missing:".to_owned());
            lines.extend(self.missing.iter().map(|missing| {
                format!("  {} ({}): {}", missing.signal, missing.reason, missing.fetch)
            }));
        }
        for HandOver { from, to, at, text } in &self.hand_overs {
            lines.push(format!("handed over by {from} to {to} at {}: {text}", clock(*at)));
        }
        lines
    }
}

/// At most four decimals, without zeros at the end.
/// A line for each paragraph and for each point of a list: where an author's line ended says nothing.
fn paragraphs(prose: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in prose.lines().map(str::trim_end) {
        let words = line.trim_start();
        let is_point = words.starts_with("- ") || words.starts_with("* ");
        match all.last_mut().filter(|_| is_open && !is_point) {
            Some(last) if !words.is_empty() => {
                last.push(' ');
                last.push_str(words);
            }
            _ if !words.is_empty() => all.push(line.to_owned()),
            _ => {}
        }
        is_open = !words.is_empty();
    }
    all
}

fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_told_by_paragraphs_and_points() {
        let prose = "One line\nand its end.\n\nAnother:\n\n- a point\n  of two lines\n- the next\n";
        let told = ["One line and its end.", "Another:", "- a point of two lines", "- the next"];
        assert_eq!(paragraphs(prose), told);
        assert!(paragraphs("\n\n").is_empty());
    }
}

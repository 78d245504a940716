//! A runbook for reading in a terminal: headings, wrapped prose, evidence as a list, and for every step
//! its kind and where it leads. Prints nothing and asks no terminal; the width is an argument.

use std::time::Duration;

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::columns::wrap;
use crate::diagnosis::{Action, Cause, Expr, Goto, Grounds, Node, Outcome, Step};
use crate::runbook::Sheet;

/// Least width that text is wrapped to.
const WIDTH_MIN: usize = 30;
/// Widest column of names before what they stand for.
const NAMES_MAX: usize = 24;

/// The runbook of a sheet in lines of at most `width` characters, as far as its words allow.
pub fn page(sheet: &Sheet, width: usize) -> String {
    let mut page = Page { out: String::new(), width: width.max(WIDTH_MIN) };
    let book = &sheet.book;
    page.heading(&book.title, '=');
    let reviewed = sheet.reviewed().map_or_else(String::new, |date| format!(", reviewed {date}"));
    page.text(&format!("{}, owned by {}{reviewed}, starts at {}", book.id, book.owner, book.entry));
    page.gap();
    page.prose(&sheet.intro);
    if !book.evidence.is_empty() {
        page.heading("Evidence", '-');
        let names: Vec<&str> = book.evidence.keys().map(String::as_str).collect();
        let column = column(&names);
        for (name, predicate) in &book.evidence {
            page.entry(name, column, &predicate.text);
        }
        page.gap();
    }
    if let Some(cause) = &book.cause {
        page.cause(cause);
    }
    for node in &book.nodes {
        page.node(node);
    }
    page.out.truncate(page.out.trim_end().len());
    page.out.push('\n');
    page.out
}

/// Room for the longest name, within reason.
fn column(names: &[&str]) -> usize {
    names.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(NAMES_MAX)
}

struct Page {
    out: String,
    width: usize,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    /// One empty line, however many are asked for.
    fn gap(&mut self) {
        if !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    fn heading(&mut self, words: &str, under: char) {
        let rows = wrap(words, self.width);
        let longest = rows.iter().map(|row| row.chars().count()).max().unwrap_or(0);
        for row in rows {
            self.line(&row);
        }
        self.line(&under.to_string().repeat(longest));
    }

    fn text(&mut self, words: &str) {
        self.hanging("", "", words);
    }

    /// Text with one thing before its first row and another before the rest.
    fn hanging(&mut self, first: &str, rest: &str, words: &str) {
        let room = self.width.saturating_sub(rest.chars().count().max(first.chars().count()));
        for (place, row) in wrap(words, room.max(WIDTH_MIN / 2)).iter().enumerate() {
            self.line(&format!("{}{row}", if place == 0 { first } else { rest }));
        }
    }

    /// A name and what it stands for, under one another where the name is long.
    fn entry(&mut self, name: &str, column: usize, words: &str) {
        let rest = " ".repeat(column + 4);
        if name.chars().count() > column {
            self.line(&format!("  {name}"));
            self.hanging(&rest, &rest, words);
        } else {
            self.hanging(&format!("  {name:column$}  "), &rest, words);
        }
    }

    /// Markdown as plain text: paragraphs, lists, and code as it is.
    fn prose(&mut self, markdown: &str) {
        let mut words = String::new();
        let mut items: Vec<Option<u64>> = Vec::new();
        let mut in_code = false;
        for event in Parser::new(markdown) {
            match event {
                Event::Text(text) if in_code => {
                    for line in text.lines() {
                        self.line(&format!("    {line}"));
                    }
                }
                Event::Text(text) | Event::Code(text) => words.push_str(&text),
                Event::SoftBreak | Event::HardBreak => words.push(' '),
                Event::Start(Tag::List(first)) => {
                    self.paragraph(&mut words, &mut items);
                    items.push(first);
                }
                Event::Start(Tag::CodeBlock(_)) => {
                    self.paragraph(&mut words, &mut items);
                    in_code = true;
                }
                Event::End(TagEnd::CodeBlock) => {
                    in_code = false;
                    self.gap();
                }
                Event::End(TagEnd::List(_)) => {
                    self.paragraph(&mut words, &mut items);
                    items.pop();
                    self.gap();
                }
                Event::End(TagEnd::Item) => self.paragraph(&mut words, &mut items),
                Event::End(TagEnd::Paragraph | TagEnd::Heading(_)) => {
                    self.paragraph(&mut words, &mut items);
                    if items.is_empty() {
                        self.gap();
                    }
                }
                _ => {}
            }
        }
        self.paragraph(&mut words, &mut items);
        if !self.out.is_empty() {
            self.gap();
        }
    }

    /// The words so far as one paragraph, or as the next item of the innermost list.
    fn paragraph(&mut self, words: &mut String, items: &mut [Option<u64>]) {
        if words.trim().is_empty() {
            return;
        }
        let indent = "  ".repeat(items.len());
        match items.last_mut() {
            None => self.text(words),
            Some(None) => self.hanging(&format!("{indent}- "), &format!("{indent}  "), words),
            Some(Some(number)) => {
                let first = format!("{indent}{number}. ");
                *number += 1;
                self.hanging(&first, &" ".repeat(first.chars().count()), words);
            }
        }
        words.clear();
    }

    fn cause(&mut self, cause: &Cause) {
        self.heading("Cause", '-');
        self.text(&cause.say);
        self.gap();
        self.grounds(&cause.grounds);
        if let Some(plan) = &cause.plan {
            self.entry("plan", NAME_COLUMN, plan);
        }
        self.gap();
    }

    fn grounds(&mut self, grounds: &Grounds) {
        let Grounds { requires, supports, refutes, unless, tentative } = grounds;
        for (name, list) in [
            ("requires", requires),
            ("supports", supports),
            ("refutes", refutes),
            ("unless", unless),
            ("tentative", tentative),
        ] {
            for (place, expr) in list.iter().enumerate() {
                self.entry(if place == 0 { name } else { "" }, NAME_COLUMN, &expr.to_string());
            }
        }
    }

    fn node(&mut self, node: &Node) {
        self.heading(&format!("{} - {} [{}]", node.id, node.title, kind(&node.step)), '-');
        self.prose(&node.prose);
        if !node.show.is_empty() {
            self.entry("look at", NAME_COLUMN, &node.show.join(", "));
        }
        match &node.step {
            Step::Decide { branches, otherwise, unknown } => {
                for branch in branches {
                    self.entry("when", NAME_COLUMN, &branch.when.to_string());
                    self.entry("", NAME_COLUMN, &format!("{} {}", branch.say, arrow(&branch.goto)));
                }
                self.entry("otherwise", NAME_COLUMN, &arrow(otherwise));
                self.entry("unknown", NAME_COLUMN, &arrow(unknown));
            }
            Step::Rank { hypotheses, among, none, unknown } => {
                for hypothesis in hypotheses {
                    let words = format!("{} {}", hypothesis.title, arrow(&hypothesis.goto));
                    self.entry(&hypothesis.id, NAME_COLUMN, &words);
                    self.grounds(&hypothesis.grounds);
                }
                if !among.is_empty() {
                    let words = format!("{} -> the runbook of the best", among.join(", "));
                    self.entry("best of", NAME_COLUMN, &words);
                }
                self.entry("none", NAME_COLUMN, &arrow(none));
                self.entry("unknown", NAME_COLUMN, &arrow(unknown));
            }
            Step::Human { ask, answers } => {
                self.entry("ask", NAME_COLUMN, ask);
                for (words, goto) in answers {
                    self.entry("", NAME_COLUMN, &format!("\"{words}\" {}", arrow(goto)));
                }
            }
            Step::Action(action) => self.action(action),
            Step::End { outcome, say, cause } => {
                let cause = cause.as_ref().map_or_else(String::new, |id| format!(", cause {id}"));
                self.entry("ends", NAME_COLUMN, &format!("{}{cause}", outcome_word(*outcome)));
                self.entry("", NAME_COLUMN, say);
            }
        }
        self.gap();
    }

    fn action(&mut self, action: &Action) {
        let safe = if action.safe { "toward the safe end" } else { "AWAY FROM THE SAFE END" };
        let then = if action.reverts { "is taken back" } else { "reminds" };
        let words = format!(
            "{} = {}, {safe}; after {} it {then}",
            action.flag,
            action.set,
            span(action.ttl)
        );
        self.entry("set", NAME_COLUMN, &words);
        for (flag, value) in &action.needs {
            self.entry("needs", NAME_COLUMN, &format!("{flag} = {value}"));
        }
        let confirm = if action.typed { "type the flag's name" } else { "enter" };
        let second = action.second_person.as_ref();
        let second = second.map_or_else(String::new, |who| format!(", second person: {who}"));
        self.entry("confirm", NAME_COLUMN, &format!("{confirm}{second}"));
        let expr = |expr: &Expr| expr.to_string();
        self.entry("guard", NAME_COLUMN, &expr(&action.guard));
        let within = format!("{} within {}", expr(&action.verify), span(action.verify_within));
        self.entry("verify", NAME_COLUMN, &within);
        for (name, goto) in [
            ("verified", &action.verified),
            ("failed", &action.failed),
            ("unknown", &action.unknown),
        ] {
            self.entry(name, NAME_COLUMN, &arrow(goto));
        }
        if let Some(undo) = &action.undo {
            let words = format!("{} = {} {}", action.flag, undo.set, arrow(&undo.goto));
            self.entry("undo", NAME_COLUMN, &words);
        }
    }
}

/// Room for the names of what a step has.
const NAME_COLUMN: usize = 9;

const fn kind(step: &Step) -> &'static str {
    match step {
        Step::Decide { .. } => "decide",
        Step::Rank { .. } => "rank",
        Step::Human { .. } => "human",
        Step::Action(_) => "action",
        Step::End { .. } => "end",
    }
}

const fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Resolved => "resolved",
        Outcome::NotApplicable => "not applicable",
        Outcome::Inconclusive => "inconclusive",
        Outcome::Unresolved => "unresolved",
    }
}

fn arrow(goto: &Goto) -> String {
    match goto {
        Goto::Node(id) => format!("-> {id}"),
        Goto::Runbook(id) => format!("-> runbook {id}"),
    }
}

/// A span in its largest whole unit.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    if seconds == 0 {
        format!("{} ms", span.as_millis())
    } else if seconds.is_multiple_of(3_600) {
        format!("{} h", seconds / 3_600)
    } else if seconds.is_multiple_of(60) {
        format!("{} min", seconds / 60)
    } else {
        format!("{seconds} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runbook::{SHIPPED, read};

    fn shown(file: &str, width: usize) -> String {
        let text = SHIPPED.iter().find(|(name, _)| *name == file).expect(file).1;
        page(&read(file, text).0.expect("a sheet"), width)
    }

    #[test]
    fn every_shipped_runbook_is_readable() {
        for (file, _) in SHIPPED {
            let page = shown(file, 80);
            assert!(!page.contains("```"), "{file} shows a fence:\n{page}");
            assert!(page.contains(" -> ") || page.contains("ends"), "{file}");
            for line in page.lines() {
                let long = line.chars().count() > 80;
                let one_word = line.split_whitespace().count() <= 2;
                assert!(!long || one_word, "{file}: {line}");
            }
        }
    }

    #[test]
    fn steps_say_their_kind_and_where_they_lead() {
        let page = shown("tpm-exhausted.runbook.md", 80);
        for wanted in [
            "retries - ",
            "[decide]",
            "  otherwise  -> ",
            "[action]",
            "  failed     -> ",
            "  requires   provider_429",
            "[end]",
        ] {
            assert!(page.contains(wanted), "{wanted}\n{page}");
        }
    }

    #[test]
    fn markdown_becomes_plain_text() {
        let mut page = Page { out: String::new(), width: 40 };
        page.prose("Look at `it`,\nthen:\n\n1. one\n2. two *and* more words than fit in a row\n\n- a\n\n```sh\nls -l\n```\n");
        let wanted = "Look at it, then:\n\n  1. one\n  2. two and more words than fit in a\n     \
                      row\n\n  - a\n\n    ls -l\n\n";
        assert_eq!(page.out, wanted);
    }

    #[test]
    fn spans_are_in_their_largest_whole_unit() {
        let check = |seconds, words: &str| assert_eq!(span(Duration::from_secs(seconds)), words);
        check(7_200, "2 h");
        check(90, "90 s");
        check(1_800, "30 min");
    }
}

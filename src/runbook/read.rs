//! Reads one runbook file into diagnosis' tree, and keeps the lines for the linter. Reports every
//! problem that it meets, not only the first.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::NaiveDate;
use serde::de::DeserializeOwned;
use toml::Spanned;

use crate::admission::FlagValue;
use crate::diagnosis::{
    Action, Book, Branch, Cause, Expr, Goto, Grounds, Hypothesis, Node, Outcome, Predicate, Step,
    Undo,
};
use crate::signal::parse_duration;

use super::blocks::{Block, Section, cut, line_of};
use super::format::{
    ActionBlock, CauseBlock, ConfirmWord, DecideBlock, DirectionWord, EndBlock, ExpireWord, Head,
    HumanBlock, KindOnly, OutcomeWord, RankBlock,
};
use super::problem::{Findings, Problem};
use super::sheet::Sheet;

/// Largest runbook file in bytes.
pub const MAX_FILE_BYTES: usize = 512 * 1024;
/// Most nodes of one runbook.
const MAX_NODES: usize = 200;
/// The format that this weir reads.
const FORMAT: u32 = 1;

/// Reads a file's text. The sheet is there as soon as the head block can be used; it is sound only
/// when none of the problems is an error.
#[must_use]
pub fn read(file: &str, text: &str) -> (Option<Sheet>, Vec<Problem>) {
    let mut findings = Findings::new(file);
    if text.len() > MAX_FILE_BYTES {
        findings.error("WRB001", 1, file, "the file is too large", "keep it within 512 KiB");
        return (None, findings.found);
    }
    let sections = cut(text);
    let [head_block] = sections.heads.as_slice() else {
        let what = format!("{} `toml weir.runbook` blocks", sections.heads.len());
        findings.error(
            "WRB001",
            1,
            "toml weir.runbook",
            what,
            "write exactly one, above the steps",
        );
        return (None, findings.found);
    };
    let mut reader =
        Reader { findings, block: head_block, targets: vec![], exprs: vec![], previews: vec![] };
    let Some(head) = reader.toml::<Head>("WRB001") else { return (None, reader.findings.found) };
    if head.format != FORMAT {
        let what = format!("format {} is not known", head.format);
        reader.findings.error(
            "WRB001",
            head_block.line,
            "format",
            what,
            "this weir reads format 1",
        );
    }
    let mut sheet = reader.sheet(file, &head, sections.title);
    sheet.book.digest = blake3::hash(text.as_bytes()).to_hex().to_string();
    if sections.nodes.len() > MAX_NODES {
        let line = sections.nodes[MAX_NODES].line;
        reader.findings.error("WRB001", line, "nodes", "too many nodes", "keep it within 200");
    }
    for section in sections.nodes.iter().take(MAX_NODES) {
        if let Some(node) = reader.node(section) {
            if sheet.book.node(&node.id).is_some() {
                let remedy = "give one of them another id";
                reader.findings.error(
                    "WRB020",
                    node.line,
                    &node.id,
                    "the node is there twice",
                    remedy,
                );
            }
            sheet.book.nodes.push(node);
        }
    }
    sheet.intro = sections.intro;
    sheet.targets = reader.targets;
    sheet.exprs = reader.exprs;
    sheet.previews = reader.previews;
    (Some(sheet), reader.findings.found)
}

/// The value of a flag as TOML writes it; `None` for a kind that no flag has.
pub(super) fn flag_value(value: &toml::Value) -> Option<FlagValue> {
    Some(match value {
        toml::Value::Boolean(on) => FlagValue::Bool(*on),
        #[expect(clippy::cast_precision_loss, reason = "flag bounds stay far below 2^53")]
        toml::Value::Integer(number) => FlagValue::Number(*number as f64),
        toml::Value::Float(number) if number.is_finite() => FlagValue::Number(*number),
        toml::Value::String(word) => FlagValue::Word(word.clone()),
        _ => return None,
    })
}

/// Reads one block at a time; lines are those of `block`.
struct Reader<'a> {
    findings: Findings<'a>,
    block: &'a Block,
    targets: Vec<(String, usize)>,
    exprs: Vec<(Expr, usize)>,
    previews: Vec<(String, usize)>,
}

impl<'a> Reader<'a> {
    fn line<T>(&self, spanned: &Spanned<T>) -> usize {
        self.line_at(spanned.span().start)
    }

    fn line_at(&self, offset: usize) -> usize {
        self.block.line + line_of(&self.block.text, offset) - 1
    }

    /// The block as `T`; the error is reported under `missing` when a key is not there.
    fn toml<T: DeserializeOwned>(&mut self, missing: &'static str) -> Option<T> {
        match toml::from_str(&self.block.text) {
            Ok(found) => Some(found),
            Err(error) => {
                let line = self.line_at(error.span().map_or(0, |span| span.start));
                let message = error.message();
                let key = message.split('`').nth(1).unwrap_or("toml").to_owned();
                let (code, remedy) = if message.starts_with("unknown field") {
                    let remedy = "remove it; mind that a key written after `[[branch]]` belongs to \
                                  the branch";
                    ("WRB002", remedy.to_owned())
                } else if message.starts_with("missing field") {
                    // The key may only be misspelt.
                    let block: toml::Table = toml::from_str(&self.block.text).unwrap_or_default();
                    let keys: Vec<&str> = block.keys().map(String::as_str).collect();
                    (missing, format!("add the key; the block has: {}", keys.join(", ")))
                } else {
                    (missing, "correct the TOML".to_owned())
                };
                self.findings.error(code, line, &key, message, remedy);
                None
            }
        }
    }

    fn sheet(&mut self, file: &str, head: &Head, title: String) -> Sheet {
        let mut evidence = BTreeMap::new();
        let mut evidence_lines = BTreeMap::new();
        for (name, text) in &head.evidence {
            let line = self.line(text);
            evidence_lines.insert(name.clone(), line);
            match Predicate::parse(text.get_ref()) {
                Ok(predicate) => {
                    evidence.insert(name.clone(), predicate);
                }
                Err(error) => {
                    let what = format!("column {}: {}", error.column, error.problem);
                    self.findings.error("WRB010", line, name, what, error.remedy);
                }
            }
        }
        let cause = head.cause.as_ref().map(|block| self.cause(&head.id, block));
        let reviewed = head.reviewed.get_ref().date.and_then(|date| {
            NaiveDate::from_ymd_opt(date.year.into(), date.month.into(), date.day.into())
        });
        let reviewed_line = self.line(&head.reviewed);
        if reviewed.is_none() {
            let remedy = "write a date such as 2026-11-01";
            self.findings.error("WRB001", reviewed_line, "reviewed", "no date", remedy);
        }
        let book = Book {
            id: head.id.clone(),
            title,
            owner: head.owner.clone(),
            entry: head.entry.get_ref().clone(),
            evidence,
            cause,
            nodes: Vec::new(),
            digest: String::new(),
        };
        let plan = head.cause.as_ref().and_then(|cause| cause.plan.as_ref());
        let fed = head.cause.iter().flat_map(|cause| &cause.feeds);
        let asked = head.cause.iter().flat_map(|cause| &cause.asked_at);
        let placed = |word: &Spanned<String>| (word.get_ref().clone(), self.line(word));
        let (feeds, asked_at) = (fed.map(placed).collect(), asked.map(placed).collect());
        Sheet {
            file: file.to_owned(),
            book,
            intro: String::new(),
            scope: head.scope.clone(),
            opens_on: head.opens_on.clone(),
            signals: head
                .signals
                .iter()
                .map(|(name, unit)| (name.get_ref().clone(), unit.clone(), self.line(name)))
                .collect(),
            evidence_lines,
            entry_line: self.line(&head.entry),
            targets: Vec::new(),
            exprs: Vec::new(),
            previews: Vec::new(),
            flags: head.flags.clone(),
            reviewed,
            review_every: self.duration(&head.review_every, "review_every"),
            reviewed_line,
            plan_line: plan.map_or(self.block.line, |plan| self.line(plan)),
            feeds,
            asked_at,
        }
    }

    fn cause(&mut self, id: &str, block: &CauseBlock) -> Cause {
        Cause {
            id: id.to_owned(),
            say: block.say.clone(),
            grounds: Grounds {
                requires: self.exprs(&block.requires),
                supports: self.exprs(&block.supports),
                refutes: self.exprs(&block.refutes),
                unless: self.exprs(&block.unless),
                tentative: self.exprs(&block.tentative),
            },
            plan: block.plan.as_ref().map(|plan| plan.get_ref().clone()),
            feeds: block.feeds.iter().map(|id| id.get_ref().clone()).collect(),
            asked_at: block.asked_at.iter().map(|node| node.get_ref().clone()).collect(),
            pages_owner: block.pages_owner,
            lasting: block.lasting.clone(),
            price: block.price.clone(),
        }
    }

    fn exprs(&mut self, list: &[Spanned<String>]) -> Vec<Expr> {
        list.iter().filter_map(|text| self.expr(text)).collect()
    }

    fn expr(&mut self, text: &Spanned<String>) -> Option<Expr> {
        match Expr::parse(text.get_ref()) {
            Ok(expr) => {
                self.exprs.push((expr.clone(), self.line(text)));
                Some(expr)
            }
            Err(error) => {
                let what = format!("column {}: {}", error.column, error.problem);
                let remedy = "combine names of [evidence] with and, or, not and ( )";
                self.findings.error("WRB010", self.line(text), text.get_ref(), what, remedy);
                None
            }
        }
    }

    fn duration(&mut self, text: &Spanned<String>, key: &str) -> Duration {
        parse_duration(text.get_ref()).unwrap_or_else(|| {
            let what = format!("`{}` is no duration", text.get_ref());
            self.findings.error("WRB001", self.line(text), key, what, "write `30s`, `5m` or `90d`");
            Duration::ZERO
        })
    }

    fn goto(&mut self, text: &Spanned<String>) -> Goto {
        self.targets.push((text.get_ref().clone(), self.line(text)));
        Goto::parse(text.get_ref())
    }

    /// A way out that a node must have.
    fn exit(
        &mut self,
        text: Option<&Spanned<String>>,
        code: &'static str,
        key: &str,
    ) -> Option<Goto> {
        let Some(text) = text else {
            let line = self.block.line;
            self.findings.error(code, line, key, "there is no such way out", "say where it leads");
            return None;
        };
        Some(self.goto(text))
    }

    fn node(&mut self, section: &'a Section) -> Option<Node> {
        let [block] = section.blocks.as_slice() else {
            let what = format!("{} `toml weir.node` blocks", section.blocks.len());
            let remedy = "write one per `##` section";
            self.findings.error("WRB001", section.line, &section.id, what, remedy);
            return None;
        };
        self.block = block;
        let kind = self.toml::<KindOnly>("WRB001")?.kind;
        let (show, step) = match kind.get_ref().as_str() {
            "decide" => self.decide(),
            "rank" => self.rank(),
            "human" => self.human(),
            "action" => self.action(),
            "end" => self.end(),
            other => {
                let what = format!("`{other}` is no kind of node");
                let remedy = "write decide, rank, human, action or end";
                self.findings.error("WRB001", self.line(&kind), "kind", what, remedy);
                None
            }
        }?;
        Some(Node {
            id: section.id.clone(),
            title: section.title.clone(),
            prose: section.prose.clone(),
            show,
            step,
            line: section.line,
        })
    }

    fn decide(&mut self) -> Option<(Vec<String>, Step)> {
        let block = self.toml::<DecideBlock>("WRB001")?;
        let mut branches = Vec::new();
        for branch in &block.branch {
            let goto = self.goto(&branch.goto);
            if let Some(when) = self.expr(&branch.when) {
                branches.push(Branch { when, say: branch.say.clone(), goto });
            }
        }
        let otherwise = self.exit(block.otherwise.as_ref(), "WRB022", "otherwise");
        let unknown = self.exit(block.unknown.as_ref(), "WRB021", "unknown");
        let step = Step::Decide { branches, otherwise: otherwise?, unknown: unknown? };
        Some((block.show, step))
    }

    fn rank(&mut self) -> Option<(Vec<String>, Step)> {
        let block = self.toml::<RankBlock>("WRB001")?;
        let mut hypotheses = Vec::new();
        for entry in &block.hypothesis {
            hypotheses.push(Hypothesis {
                id: entry.id.clone(),
                title: entry.title.clone(),
                grounds: Grounds {
                    requires: self.exprs(&entry.requires),
                    supports: self.exprs(&entry.supports),
                    refutes: self.exprs(&entry.refutes),
                    unless: self.exprs(&entry.unless),
                    tentative: self.exprs(&entry.tentative),
                },
                goto: self.goto(&entry.goto),
            });
        }
        for id in &block.among {
            self.targets.push((format!("runbook:{}", id.get_ref()), self.line(id)));
        }
        let none = self.exit(block.none.as_ref(), "WRB022", "none");
        let unknown = self.exit(block.unknown.as_ref(), "WRB021", "unknown");
        let among = block.among.into_iter().map(Spanned::into_inner).collect();
        Some((block.show, Step::Rank { hypotheses, among, none: none?, unknown: unknown? }))
    }

    fn human(&mut self) -> Option<(Vec<String>, Step)> {
        let block = self.toml::<HumanBlock>("WRB001")?;
        let mut answers: Vec<_> = block.answers.into_iter().collect();
        answers.sort_by_key(|(_, goto)| goto.span().start);
        let answers = answers.into_iter().map(|(words, goto)| (words, self.goto(&goto))).collect();
        Some((block.show, Step::Human { ask: block.ask, answers }))
    }

    fn end(&mut self) -> Option<(Vec<String>, Step)> {
        let block = self.toml::<EndBlock>("WRB001")?;
        let outcome = match block.outcome {
            OutcomeWord::Resolved => Outcome::Resolved,
            OutcomeWord::NotApplicable => Outcome::NotApplicable,
            OutcomeWord::Inconclusive => Outcome::Inconclusive,
            OutcomeWord::Unresolved => Outcome::Unresolved,
        };
        if let Some(cause) = &block.cause {
            self.targets.push((format!("runbook:{}", cause.get_ref()), self.line(cause)));
        }
        let cause = block.cause.map(Spanned::into_inner);
        Some((block.show, Step::End { outcome, say: block.say, cause }))
    }

    fn action(&mut self) -> Option<(Vec<String>, Step)> {
        let block = self.toml::<ActionBlock>("WRB030")?;
        let ttl = self.duration(&block.ttl, "ttl");
        let verify_within = self.duration(&block.verify_within, "verify_within");
        let set = self.value(&block.set, "set");
        let mut needs = BTreeMap::new();
        for (flag, value) in &block.needs {
            if let Some(value) = flag_value(value) {
                needs.insert(flag.clone(), value);
            } else {
                let remedy = "write true, false, a number or a word";
                self.findings.error("WRB032", self.block.line, flag, "no value of a flag", remedy);
            }
        }
        for signal in &block.preview {
            self.previews.push((signal.get_ref().clone(), self.line(signal)));
        }
        let undo = match &block.undo {
            Some(undo) => {
                Some(Undo { set: self.value(&undo.set, "undo.set")?, goto: self.goto(&undo.goto) })
            }
            None => None,
        };
        let guard = self.expr(&block.guard);
        let verify = self.expr(&block.verify);
        let action = Action {
            flag: block.flag.get_ref().clone(),
            set: set?,
            safe: *block.direction.get_ref() == DirectionWord::Safe,
            needs,
            guard: guard?,
            preview: block.preview.into_iter().map(Spanned::into_inner).collect(),
            typed: block.confirm == ConfirmWord::Type,
            second_person: block.second_person,
            ttl,
            reverts: *block.on_expire.get_ref() == ExpireWord::Revert,
            verify: verify?,
            verify_within,
            verified: self.goto(&block.verified),
            failed: self.goto(&block.failed),
            unknown: self.goto(&block.unknown),
            undo,
        };
        Some((block.show, Step::Action(Box::new(action))))
    }

    fn value(&mut self, value: &Spanned<toml::Value>, key: &str) -> Option<FlagValue> {
        let found = flag_value(value.get_ref());
        if found.is_none() {
            let remedy = "write true, false, a number or a word";
            self.findings.error("WRB032", self.line(value), key, "no value of a flag", remedy);
        }
        found
    }
}

//! What can be changed in a runbook so that its tests should notice: every mutant of one file, as data.
//! Runs nothing. What can be shown from the structure alone to change nothing is left out.
//!
//! `supports` is left out: it is counted beside a standing and changes none.

use std::time::Duration;

use crate::diagnosis::{
    Action, Book, Bound, Expr, Goto, Grounds, Op, Predicate, Step, Test, Truth,
};
use crate::signal::{Unit, definition};

use super::read::Sheet;

/// How far a threshold is moved, as a share of it.
const SHIFT: f64 = 0.25;
/// How far a threshold of zero is moved: a share, and anything else.
const STEP_OF_SHARE: f64 = 0.05;
const STEP: f64 = 1.0;
/// Most names of which two expressions are compared by all their values.
const NAMES_MAX: usize = 6;

/// One change.
#[derive(Clone, Debug)]
pub(super) struct Mutant {
    /// The line of what is changed.
    pub(super) line: usize,
    /// What is changed and how, in words.
    pub(super) what: String,
    /// How a test would notice.
    pub(super) remedy: &'static str,
    pub(super) change: Change,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Another predicate under the same name.
    Predicate {
        /// The evidence.
        name: String,
        /// Whether the threshold is moved, or something else.
        threshold: bool,
        predicate: Box<Predicate>,
    },
    /// Another runbook under the same id.
    Book(Box<Book>),
}

/// Every mutant of a file, evidence first.
pub(super) fn mutants(sheet: &Sheet) -> Vec<Mutant> {
    let mut found = predicates(sheet);
    let book = &sheet.book;
    for (slot, expr) in slots(book) {
        let line = sheet.expr_line(&expr, slot.from_line(book));
        let place = slot.place(book);
        for (how, changed) in variants(&expr) {
            if same(&expr, &changed) {
                continue;
            }
            let mut other = book.clone();
            if let Some(expr) = slot.of(&mut other) {
                *expr = changed;
            }
            found.push(mutant(line, format!("{place} `{expr}`: {how}"), slot.remedy(), other));
        }
        let mut other = book.clone();
        if let Some(how) = slot.take_out(&mut other) {
            found.push(mutant(line, format!("{place} `{expr}`: {how}"), slot.remedy(), other));
        }
    }
    found.extend(swaps(book));
    found
}

fn mutant(line: usize, what: String, remedy: &'static str, book: Book) -> Mutant {
    Mutant { line, what, remedy, change: Change::Book(Box::new(book)) }
}

fn predicates(sheet: &Sheet) -> Vec<Mutant> {
    let mut found = Vec::new();
    for (name, predicate) in &sheet.book.evidence {
        let line = sheet.evidence_lines.get(name).copied().unwrap_or(1);
        for (how, threshold, changed) in changed(predicate) {
            let what = format!("evidence {name} `{}`: {how}", predicate.text);
            // The text is what one predicate is told from another by.
            let text = format!("{} ({how})", predicate.text);
            let predicate = Box::new(Predicate { text, ..changed });
            let name = name.clone();
            let remedy = if threshold {
                "write a [[pin]] with `holds` and `fails` closer to it"
            } else {
                "write a [[pin]] with `after`, or `stays` and `clears`"
            };
            let change = Change::Predicate { name, threshold, predicate };
            found.push(Mutant { line, what, remedy, change });
        }
    }
    found
}

/// A predicate changed in one respect: how, whether that is its threshold, and to what.
fn changed(predicate: &Predicate) -> Vec<(String, bool, Predicate)> {
    let mut found = Vec::new();
    let with = |test: Test| Predicate { test, ..predicate.clone() };
    // Forms that have no threshold here are changed in `for` and `clear` alone.
    if let Test::Compare { left, op, bound } = &predicate.test {
        let (number, what) = match bound {
            Bound::Fixed(number) => (*number, "threshold"),
            Bound::Scaled { times, .. } => (*times, "factor"),
        };
        for moved in moved(number, step_of(&left.signal)) {
            let bound = match bound {
                Bound::Fixed(_) => Bound::Fixed(moved),
                Bound::Scaled { operand, .. } => {
                    Bound::Scaled { operand: operand.clone(), times: moved }
                }
            };
            let test = Test::Compare { left: left.clone(), op: *op, bound };
            found.push((format!("{what} {number} -> {moved}"), true, with(test)));
        }
        let test = Test::Compare { left: left.clone(), op: turned(*op), bound: bound.clone() };
        found.push(("comparison turned round".to_owned(), true, with(test)));
    }
    if let Test::Codes { patterns, op, share } = &predicate.test {
        for moved in moved(*share, STEP_OF_SHARE) {
            let test = Test::Codes { patterns: patterns.clone(), op: *op, share: moved };
            found.push((format!("share {share} -> {moved}"), true, with(test)));
        }
        let (patterns, op) = (patterns.clone(), turned(*op));
        let test = Test::Codes { patterns, op, share: *share };
        found.push(("comparison turned round".to_owned(), true, with(test)));
    }
    if let Test::Is { path, word, negated } = &predicate.test {
        let test = Test::Is { path: path.clone(), word: word.clone(), negated: !negated };
        found.push(("`is` turned round".to_owned(), true, with(test)));
    }
    if !predicate.hold.is_zero() {
        let hold = |hold| Predicate { hold, ..predicate.clone() };
        found.push(("`for` dropped".to_owned(), false, hold(Duration::ZERO)));
        found.push(("`for` doubled".to_owned(), false, hold(predicate.hold * 2)));
    }
    let threshold = match &predicate.test {
        Test::Compare { bound: Bound::Fixed(number), .. } => Some(*number),
        Test::Codes { share, .. } => Some(*share),
        _ => None,
    };
    if let Some(clear) = predicate.clear
        && threshold.is_none_or(|number| (number - clear).abs() > f64::EPSILON)
    {
        let changed = Predicate { clear: None, ..predicate.clone() };
        found.push(("`clear` dropped".to_owned(), false, changed));
    }
    found
}

fn moved(number: f64, step: f64) -> [f64; 2] {
    if number.abs() < f64::EPSILON {
        [-step, step]
    } else {
        // Rounded, so that reports do not show the noise of the last digit.
        [1.0 - SHIFT, 1.0 + SHIFT].map(|factor| (number * factor * 1e9).round() / 1e9)
    }
}

fn step_of(path: &str) -> f64 {
    let root = path.split('.').next().unwrap_or(path);
    let share =
        path.ends_with("_share") || definition(root).is_some_and(|known| known.unit == Unit::Ratio);
    if share { STEP_OF_SHARE } else { STEP }
}

const fn turned(op: Op) -> Op {
    match op {
        Op::Below => Op::Above,
        Op::Above => Op::Below,
    }
}

/// A list of a cause or hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Requires,
    Refutes,
    Unless,
    Tentative,
}

impl List {
    const ALL: [Self; 4] = [Self::Requires, Self::Refutes, Self::Unless, Self::Tentative];

    const fn word(self) -> &'static str {
        match self {
            Self::Requires => "requires",
            Self::Refutes => "refutes",
            Self::Unless => "unless",
            Self::Tentative => "tentative",
        }
    }

    const fn of(self, grounds: &mut Grounds) -> &mut Vec<Expr> {
        match self {
            Self::Requires => &mut grounds.requires,
            Self::Refutes => &mut grounds.refutes,
            Self::Unless => &mut grounds.unless,
            Self::Tentative => &mut grounds.tentative,
        }
    }
}

/// Where an expression stands.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Cause(List, usize),
    Branch { node: usize, branch: usize },
    Hypothesis { node: usize, hypothesis: usize, list: List, place: usize },
    Guard { node: usize },
    Verify { node: usize },
}

/// Every expression that decides something.
fn slots(book: &Book) -> Vec<(Slot, Expr)> {
    let mut found = Vec::new();
    let grounds = |grounds: &Grounds, slot: &dyn Fn(List, usize) -> Slot| {
        let mut grounds = grounds.clone();
        let lists = List::ALL.into_iter().flat_map(|list| {
            let exprs = std::mem::take(list.of(&mut grounds));
            exprs.into_iter().enumerate().map(move |(place, expr)| (list, place, expr))
        });
        lists.map(|(list, place, expr)| (slot(list, place), expr)).collect::<Vec<_>>()
    };
    if let Some(cause) = &book.cause {
        found.extend(grounds(&cause.grounds, &Slot::Cause));
    }
    for (node, step) in book.nodes.iter().map(|node| &node.step).enumerate() {
        match step {
            // Where every way leads to one place, no answer changes anything.
            Step::Decide { .. } if step.targets().windows(2).all(|pair| pair[0] == pair[1]) => {}
            Step::Decide { branches, .. } => {
                found.extend(
                    branches
                        .iter()
                        .enumerate()
                        .map(|(branch, taken)| (Slot::Branch { node, branch }, taken.when.clone())),
                );
            }
            Step::Rank { hypotheses, .. } => {
                for (hypothesis, own) in hypotheses.iter().enumerate() {
                    found.extend(grounds(&own.grounds, &|list, place| Slot::Hypothesis {
                        node,
                        hypothesis,
                        list,
                        place,
                    }));
                }
            }
            Step::Action(action) => {
                found.push((Slot::Guard { node }, action.guard.clone()));
                found.push((Slot::Verify { node }, action.verify.clone()));
            }
            Step::Human { .. } | Step::End { .. } => {}
        }
    }
    found
}

impl Slot {
    const fn node(self) -> Option<usize> {
        match self {
            Self::Cause(..) => None,
            Self::Branch { node, .. }
            | Self::Hypothesis { node, .. }
            | Self::Guard { node }
            | Self::Verify { node } => Some(node),
        }
    }

    fn from_line(self, book: &Book) -> usize {
        self.node().and_then(|node| book.nodes.get(node)).map_or(1, |node| node.line)
    }

    fn place(self, book: &Book) -> String {
        let id = self.node().and_then(|node| book.nodes.get(node)).map_or("", |node| &node.id);
        match self {
            Self::Cause(list, _) => format!("cause, {}", list.word()),
            Self::Branch { branch, .. } => format!("{id}, branch {}", branch + 1),
            Self::Hypothesis { hypothesis, list, .. } => {
                format!("{id}, hypothesis {}, {}", hypothesis + 1, list.word())
            }
            Self::Guard { .. } => format!("{id}, guard"),
            Self::Verify { .. } => format!("{id}, verify"),
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Cause(..) => "expect its `standing` where this alone makes the difference",
            Self::Branch { .. } => "expect the `path` where this alone makes the difference",
            Self::Hypothesis { .. } => "expect its `rank` where this alone makes the difference",
            Self::Guard { .. } => "expect `allow` and `refuse` where this makes the difference",
            Self::Verify { .. } => "expect `verify = { NODE = \"false\" }`, and \"true\" elsewhere",
        }
    }

    fn action(self, book: &mut Book) -> Option<&mut Action> {
        match &mut book.nodes.get_mut(self.node()?)?.step {
            Step::Action(action) => Some(action),
            _ => None,
        }
    }

    fn list(self, book: &mut Book) -> Option<(&mut Vec<Expr>, usize)> {
        match self {
            Self::Cause(list, place) => Some((list.of(&mut book.cause.as_mut()?.grounds), place)),
            Self::Hypothesis { node, hypothesis, list, place } => {
                let Step::Rank { hypotheses, .. } = &mut book.nodes.get_mut(node)?.step else {
                    return None;
                };
                Some((list.of(&mut hypotheses.get_mut(hypothesis)?.grounds), place))
            }
            Self::Branch { .. } | Self::Guard { .. } | Self::Verify { .. } => None,
        }
    }

    /// The expression that stands there.
    fn of(self, book: &mut Book) -> Option<&mut Expr> {
        match self {
            Self::Cause(..) | Self::Hypothesis { .. } => {
                let (list, place) = self.list(book)?;
                list.get_mut(place)
            }
            Self::Branch { node, branch } => {
                let Step::Decide { branches, .. } = &mut book.nodes.get_mut(node)?.step else {
                    return None;
                };
                branches.get_mut(branch).map(|branch| &mut branch.when)
            }
            Self::Guard { .. } => self.action(book).map(|action| &mut action.guard),
            Self::Verify { .. } => self.action(book).map(|action| &mut action.verify),
        }
    }

    /// Takes it out as a whole and says so; `None` where that would change nothing.
    fn take_out(self, book: &mut Book) -> Option<&'static str> {
        match self {
            Self::Cause(..) | Self::Hypothesis { .. } => {
                let (list, place) = self.list(book)?;
                (place < list.len()).then(|| list.remove(place))?;
                Some("removed")
            }
            Self::Branch { node, branch } => {
                let Step::Decide { branches, otherwise, unknown } =
                    &mut book.nodes.get_mut(node)?.step
                else {
                    return None;
                };
                let taken = branches.get(branch)?;
                let idle = branch + 1 == branches.len()
                    && taken.goto == *otherwise
                    && taken.goto == *unknown;
                (!idle).then(|| branches.remove(branch))?;
                Some("branch removed")
            }
            Self::Guard { .. } | Self::Verify { .. } => {
                *self.of(book)? = Expr::All(Vec::new());
                Some("replaced by true")
            }
        }
    }
}

/// An expression changed in one place, and how.
fn variants(expr: &Expr) -> Vec<(String, Expr)> {
    match expr {
        Expr::Name(_) => Vec::new(),
        Expr::Not(inner) => {
            let mut found = vec![(format!("`not` before `{inner}` dropped"), (**inner).clone())];
            let deeper = variants(inner).into_iter();
            found.extend(deeper.map(|(how, inner)| (how, Expr::Not(Box::new(inner)))));
            found
        }
        Expr::All(parts) => {
            let how = format!("`and` in `{expr}` turned into `or`");
            among(parts, how, Expr::Any(parts.clone()), Expr::All)
        }
        Expr::Any(parts) => {
            let how = format!("`or` in `{expr}` turned into `and`");
            among(parts, how, Expr::All(parts.clone()), Expr::Any)
        }
    }
}

fn among(
    parts: &[Expr],
    how: String,
    turned: Expr,
    make: impl Fn(Vec<Expr>) -> Expr,
) -> Vec<(String, Expr)> {
    let mut found = Vec::new();
    if parts.len() > 1 {
        found.push((how, turned));
        for place in 0..parts.len() {
            let mut rest = parts.to_vec();
            let dropped = rest.remove(place);
            let rest = if rest.len() == 1 { rest.remove(0) } else { make(rest) };
            found.push((format!("`{dropped}` dropped"), rest));
        }
    }
    for (place, part) in parts.iter().enumerate() {
        for (how, part) in variants(part) {
            let mut parts = parts.to_vec();
            parts[place] = part;
            found.push((how, make(parts)));
        }
    }
    found
}

/// Whether two expressions agree on every value of their names. False where there are too many.
fn same(left: &Expr, right: &Expr) -> bool {
    let mut names = left.names();
    names.extend(right.names());
    names.sort_unstable();
    names.dedup();
    if names.len() > NAMES_MAX {
        return false;
    }
    let count = 3_usize.pow(u32::try_from(names.len()).unwrap_or(u32::MAX));
    (0..count).all(|row| {
        let mut truth = |name: &str| {
            let place = names.iter().position(|known| *known == name).unwrap_or(0);
            let place = u32::try_from(place).unwrap_or(0);
            match row / 3_usize.pow(place) % 3 {
                0 => Truth::True,
                1 => Truth::False,
                _ => Truth::Unknown,
            }
        };
        left.eval(&mut truth) == right.eval(&mut truth)
    })
}

/// Actions whose `verified` and `failed` are exchanged.
fn swaps(book: &Book) -> Vec<Mutant> {
    let mut found = Vec::new();
    for (place, node) in book.nodes.iter().enumerate() {
        let Step::Action(action) = &node.step else { continue };
        if action.verified == action.failed {
            continue;
        }
        let mut other = book.clone();
        if let Some(Step::Action(action)) = other.nodes.get_mut(place).map(|node| &mut node.step) {
            let Action { verified, failed, .. } = &mut **action;
            std::mem::swap::<Goto>(verified, failed);
        }
        let what = format!("{}: `verified` and `failed` exchanged", node.id);
        let remedy = "expect a `path` with `acted = { NODE = \"verified\" }`";
        found.push(mutant(node.line, what, remedy, other));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn how(text: &str) -> Vec<String> {
        let predicate = Predicate::parse(text).expect(text);
        changed(&predicate).into_iter().map(|(how, ..)| how).collect()
    }

    #[test]
    fn a_predicate_is_changed_in_every_respect_that_it_has() {
        assert_eq!(
            how("tpm_headroom[1m] < 5% for 30s clear 15%"),
            [
                "threshold 0.05 -> 0.0375",
                "threshold 0.05 -> 0.0625",
                "comparison turned round",
                "`for` dropped",
                "`for` doubled",
                "`clear` dropped",
            ]
        );
        assert_eq!(
            how("originals_rps < originals_rps@15m * 0.8"),
            ["factor 0.8 -> 0.6", "factor 0.8 -> 1", "comparison turned round"]
        );
        assert_eq!(how("breaker.state is open"), ["`is` turned round"]);
        assert_eq!(
            how("error_codes matching /a/ > 50%"),
            ["share 0.5 -> 0.375", "share 0.5 -> 0.625", "comparison turned round"]
        );
        assert_eq!(how("queue_depth > 0")[..2], ["threshold 0 -> -1", "threshold 0 -> 1"]);
        assert_eq!(how("cache.wrong_share > 0")[1], "threshold 0 -> 0.05");
        assert!(!how("queue_depth > 5 clear 5").iter().any(|how| how.contains("clear")));
    }

    #[test]
    fn an_expression_is_changed_in_every_place() {
        let expr = Expr::parse("a and (b or not c)").expect("an expression");
        let found: Vec<String> = variants(&expr).iter().map(|(_, expr)| expr.to_string()).collect();
        assert_eq!(
            found,
            [
                "a or (b or not c)",
                "b or not c",
                "a",
                "a and (b and not c)",
                "a and not c",
                "a and b",
                "a and (b or c)",
            ]
        );
    }

    #[test]
    fn what_changes_nothing_is_recognised() {
        let check = |left: &str, right: &str, expected: bool| {
            let parse = |text: &str| Expr::parse(text).expect(text);
            assert_eq!(same(&parse(left), &parse(right)), expected, "{left} and {right}");
        };
        check("a or (a and b)", "a", true);
        check("a and b", "b and a", true);
        check("a or not a", "b or not b", false);
        check("a and b", "a or b", false);
    }

    fn expr() -> impl Strategy<Value = Expr> {
        let leaf =
            prop::sample::select(vec!["a", "b", "c"]).prop_map(|name| Expr::Name(name.into()));
        leaf.prop_recursive(4, 16, 3, |inner| {
            prop_oneof![
                inner.clone().prop_map(|inner| Expr::Not(Box::new(inner))),
                prop::collection::vec(inner.clone(), 1..4).prop_map(Expr::All),
                prop::collection::vec(inner, 1..4).prop_map(Expr::Any),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_variant_differs_in_text_and_uses_no_new_name(expr in expr()) {
            let names = expr.names();
            for (how, changed) in variants(&expr) {
                prop_assert_ne!(&changed, &expr, "{}", how);
                prop_assert!(changed.names().iter().all(|name| names.contains(name)));
            }
        }
    }
}

//! Says why a cause is named, or why it is not: what each of its grounds reads, where the triage left
//! the way to it, and what would change the answer. Judges nothing anew and words nothing.

use super::engine::{Facts, INSUFFICIENT};
use super::expr::Expr;
use super::leave::ranking;
use super::tree::{Branch, Cause, Goto, Library, Node, Step};
use super::verdict::{Evidence, Role, Standing, Truth, Verdict};
use super::ways::{leading_to, leads};

/// In which of a cause's lists an expression stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Must be true.
    Requires,
    /// Counts when true.
    Supports,
    /// True contradicts; unknown keeps it at likely.
    Refutes,
    /// True contradicts.
    Unless,
    /// True or unknown keeps it at likely.
    Tentative,
}

impl Kind {
    /// The key in the runbook.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Requires => "requires",
            Self::Supports => "supports",
            Self::Refutes => "refutes",
            Self::Unless => "unless",
            Self::Tentative => "tentative",
        }
    }
}

/// One expression that a cause rests on, and what it reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Ground {
    /// The list it stands in.
    pub kind: Kind,
    /// Its text.
    pub text: String,
    /// Its value.
    pub state: Truth,
    /// The evidence under it, in its order, each once.
    pub evidence: Vec<Evidence>,
}

/// A branch that would have led on.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The answer in words.
    pub say: String,
    /// When it is taken.
    pub when: String,
    /// Whether that holds.
    pub state: Truth,
}

/// Where the triage stands to a cause.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// It named the cause.
    Named,
    /// It weighed the cause there, and another stood higher or earlier.
    Weighed {
        /// The node.
        node: String,
        /// Its question.
        title: String,
        /// What was answered.
        answer: String,
    },
    /// It answered otherwise there, or found another cause that is asked about earlier, and from then
    /// on no step leads to the cause.
    Left {
        /// The node.
        node: String,
        /// Its question.
        title: String,
        /// What was answered.
        answer: String,
        /// The answers that would have led on.
        wanted: Vec<Wanted>,
    },
    /// No step of the triage leads to it.
    Nowhere,
}

/// A piece of evidence that would turn a ground.
#[derive(Clone, Debug, PartialEq)]
pub struct Lever {
    /// The evidence as it is.
    pub evidence: Evidence,
    /// What it would have to be.
    pub wanted: Truth,
    /// It would suffice by itself.
    pub alone: bool,
}

/// A ground that would change the standing if it turned.
#[derive(Clone, Debug, PartialEq)]
pub struct Tipping {
    /// The list it stands in.
    pub kind: Kind,
    /// Its text.
    pub text: String,
    /// What it is.
    pub state: Truth,
    /// What it would have to be.
    pub wanted: Truth,
    /// What would turn it.
    pub levers: Vec<Lever>,
}

/// Why a cause stands where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The cause's id.
    pub cause: String,
    /// How sure.
    pub standing: Standing,
    /// Its grounds are all proven, and have not been for as long as a window of its signals.
    pub is_settling: bool,
    /// How it relates to the cause that is named; `None` when it is the one.
    pub role: Option<Role>,
    /// Pieces of evidence for it.
    pub evidence_for: usize,
    /// Pieces of evidence against it.
    pub evidence_against: usize,
    /// Pieces of evidence that are unknown.
    pub evidence_unknown: usize,
    /// Where the triage stands to it.
    pub way: Way,
    /// What it rests on.
    pub grounds: Vec<Ground>,
    /// What would change its standing: take a confirmed cause down, or bring another up.
    pub turns: Vec<Tipping>,
}

/// Explains one cause beside the verdict that was made of the same facts. `None` when the library
/// has no such cause.
#[must_use]
pub fn explain(
    library: &Library,
    facts: &Facts,
    verdict: &Verdict,
    id: &str,
) -> Option<Explanation> {
    let cause = library.cause(id)?;
    let score = facts.score(id, &cause.grounds);
    let is_open = id == INSUFFICIENT;
    let ranked = verdict.also.iter().find(|ranked| ranked.cause == id);
    let role = ranked.map_or(Role::Other, |ranked| ranked.role);
    let standing = if is_open { Standing::CannotTell } else { score.standing };
    Some(Explanation {
        cause: id.to_owned(),
        standing: facts.told(id, standing),
        is_settling: facts.told(id, standing) != standing,
        role: (verdict.cause != id).then_some(role),
        evidence_for: score.evidence_for,
        evidence_against: score.evidence_against,
        evidence_unknown: score.evidence_unknown,
        way: way(library, facts, verdict, id),
        grounds: grounds(facts, cause),
        turns: turns(facts, cause, standing),
    })
}

fn lists(cause: &Cause) -> impl Iterator<Item = (Kind, &Expr)> {
    let grounds = &cause.grounds;
    let all = [
        (Kind::Requires, &grounds.requires),
        (Kind::Supports, &grounds.supports),
        (Kind::Refutes, &grounds.refutes),
        (Kind::Unless, &grounds.unless),
        (Kind::Tentative, &grounds.tentative),
    ];
    all.into_iter().flat_map(|(kind, list)| list.iter().map(move |expr| (kind, expr)))
}

fn grounds(facts: &Facts, cause: &Cause) -> Vec<Ground> {
    let ground = |(kind, expr): (Kind, &Expr)| Ground {
        kind,
        text: expr.to_string(),
        state: value(facts, cause, expr),
        evidence: unique(expr).into_iter().filter_map(|name| facts.get(&cause.id, name)).collect(),
    };
    lists(cause).map(ground).collect()
}

fn value(facts: &Facts, cause: &Cause, expr: &Expr) -> Truth {
    facts.truth(&cause.id, expr)
}

fn unique(expr: &Expr) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in expr.names() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The last step from which the cause could still be reached, and what was answered there.
fn way(library: &Library, facts: &Facts, verdict: &Verdict, id: &str) -> Way {
    if verdict.cause == id {
        return Way::Named;
    }
    let triage = library.triage();
    let leading = leading_to(triage, id);
    let last = verdict.path.iter().rev().find(|step| leading.contains(step.node.as_str()));
    let Some((step, node)) = last.and_then(|step| Some((step, triage.node(&step.node)?))) else {
        return Way::Nowhere;
    };
    let (node_id, title, answer) = (step.node.clone(), step.title.clone(), step.branch.clone());
    if weighs(node, id) {
        return Way::Weighed { node: node_id, title, answer };
    }
    let wanted = match &node.step {
        Step::Decide { branches, otherwise, .. } => {
            let on = |branch: &&Branch| leads(&branch.goto, id, &leading);
            let truth = |expr: &Expr| facts.truth(&triage.id, expr);
            let wanted = |branch: &Branch| Wanted {
                say: branch.say.clone(),
                when: branch.when.to_string(),
                state: truth(&branch.when),
            };
            let mut all: Vec<Wanted> = branches.iter().filter(on).map(wanted).collect();
            if leads(otherwise, id, &leading) {
                all.push(none_of(branches.iter().map(|branch| truth(&branch.when))));
            }
            all
        }
        _ => vec![none_of(ranking(library, triage, node, facts).iter().map(|one| match one.1 {
            Standing::Confirmed | Standing::Likely => Truth::True,
            Standing::CannotTell => Truth::Unknown,
            Standing::Contradicted | Standing::RuledOut => Truth::False,
        }))],
    };
    Way::Left { node: node_id, title, answer, wanted }
}

/// The way on that is taken when nothing asked for holds.
fn none_of(states: impl Iterator<Item = Truth>) -> Wanted {
    let state = states.fold(Truth::False, Truth::or).negate();
    Wanted {
        say: "none of these".to_owned(),
        when: "nothing asked for there holds".to_owned(),
        state,
    }
}

fn weighs(node: &Node, id: &str) -> bool {
    match &node.step {
        Step::Rank { hypotheses, among, .. } => {
            let to = Goto::Runbook(id.to_owned());
            among.iter().any(|known| known == id) || hypotheses.iter().any(|one| one.goto == to)
        }
        _ => false,
    }
}

/// What would take a confirmed cause down, or what stands between another and being confirmed: what
/// decides first.
fn turns(facts: &Facts, cause: &Cause, standing: Standing) -> Vec<Tipping> {
    let is_confirmed = standing == Standing::Confirmed;
    let turn = |(kind, expr): (Kind, &Expr)| {
        let state = value(facts, cause, expr);
        let good = if kind == Kind::Requires { Truth::True } else { Truth::False };
        let blocks = match kind {
            Kind::Supports => return None,
            Kind::Unless => state == Truth::True,
            Kind::Requires | Kind::Refutes | Kind::Tentative => state != good,
        };
        let wanted = if is_confirmed { good.negate() } else { good };
        let turned = |now: Truth| match (is_confirmed, kind) {
            (false, _) | (true, Kind::Unless) => now == wanted,
            // What cannot be told any more does not confirm either.
            (true, _) => now != good,
        };
        let levers = levers(facts, cause, expr, wanted, &turned);
        // What holds for several reasons falls only with all of them.
        let falls = kind == Kind::Requires || levers.iter().any(|lever| lever.alone);
        let takes = if is_confirmed { falls && !levers.is_empty() } else { blocks };
        takes.then(|| Tipping { kind, text: expr.to_string(), state, wanted, levers })
    };
    let mut all: Vec<Tipping> = lists(cause).filter_map(turn).collect();
    // A false requirement and a true refutation decide; what is unknown comes after.
    all.sort_by_key(|turn| (turn.kind != Kind::Requires, turn.state == Truth::Unknown));
    all
}

/// The evidence that would turn an expression toward `wanted`: each piece that suffices alone, else
/// all that stand in the way.
fn levers(
    facts: &Facts,
    cause: &Cause,
    expr: &Expr,
    wanted: Truth,
    turned: &impl Fn(Truth) -> bool,
) -> Vec<Lever> {
    let state = |name: &str| facts.seen(&cause.id, name).state;
    let mut found: Vec<(&str, Truth, bool)> = Vec::new();
    for name in unique(expr) {
        for other in [Truth::True, Truth::False] {
            let with = |asked: &str| if asked == name { other } else { state(asked) };
            if state(name) != other && turned(expr.eval(&mut |asked| with(asked))) {
                found.push((name, other, true));
                break;
            }
        }
    }
    if found.is_empty() {
        in_the_way(expr, wanted, &state, &mut found);
    }
    let lever = |(name, wanted, alone): (&str, Truth, bool)| {
        Some(Lever { evidence: facts.get(&cause.id, name)?, wanted, alone })
    };
    found.into_iter().filter_map(lever).collect()
}

fn in_the_way<'a>(
    expr: &'a Expr,
    wanted: Truth,
    state: &impl Fn(&str) -> Truth,
    found: &mut Vec<(&'a str, Truth, bool)>,
) {
    match expr {
        Expr::Name(name) => {
            let known = found.iter().any(|(other, _, _)| other == name);
            if state(name) != wanted && !known {
                found.push((name, wanted, false));
            }
        }
        Expr::Not(inner) => in_the_way(inner, wanted.negate(), state, found),
        Expr::All(parts) | Expr::Any(parts) => {
            for part in parts {
                in_the_way(part, wanted, state, found);
            }
        }
    }
}

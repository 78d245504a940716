//! Scores what a cause rests on. Counts evidence; never makes percentages of it.

use super::expr::Expr;
use super::tree::Grounds;
use super::verdict::{Standing, Truth};

/// A piece of evidence as the ranking sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What counts.
    pub state: Truth,
    /// The comparison holds, but not yet for long enough; the state is unknown then.
    pub pending: bool,
}

/// How a cause stands, and on how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// How sure.
    pub standing: Standing,
    /// Pieces for it.
    pub evidence_for: usize,
    /// Pieces against it.
    pub evidence_against: usize,
    /// Pieces that cannot be told.
    pub evidence_unknown: usize,
}

/// Scores `grounds` on the evidence that `seen` gives by name.
pub fn score(grounds: &Grounds, seen: &impl Fn(&str) -> Seen) -> Score {
    let strict = |expr: &Expr| expr.eval(&mut |name| seen(name).state);
    let states = |list: &[Expr]| list.iter().map(strict).collect::<Vec<_>>();
    let requires = states(&grounds.requires);
    let supports = states(&grounds.supports);
    let refutes = states(&grounds.refutes);
    let unless = states(&grounds.unless);
    let tentative = states(&grounds.tentative);
    let count = |lists: &[&Vec<Truth>], wanted: Truth| {
        lists.iter().copied().flatten().filter(|state| **state == wanted).count()
    };
    Score {
        standing: standing(grounds, seen, &requires, &refutes, &unless, &tentative),
        evidence_for: count(&[&requires, &supports], Truth::True),
        evidence_against: count(&[&refutes, &unless], Truth::True)
            + count(&[&requires], Truth::False),
        evidence_unknown: count(&[&requires, &refutes, &tentative], Truth::Unknown),
    }
}

fn standing(
    grounds: &Grounds,
    seen: &impl Fn(&str) -> Seen,
    requires: &[Truth],
    refutes: &[Truth],
    unless: &[Truth],
    tentative: &[Truth],
) -> Standing {
    // What asks for nothing is proven by nothing.
    if requires.is_empty() {
        return Standing::CannotTell;
    }
    // What is pending may still become true: a cause that only waits for that is likely.
    let soon = |expr: &Expr| {
        expr.eval(&mut |name| {
            let Seen { state, pending } = seen(name);
            if pending { Truth::True } else { state }
        })
    };
    if requires.contains(&Truth::False) {
        return Standing::RuledOut;
    }
    let waiting = requires.contains(&Truth::Unknown);
    if waiting && grounds.requires.iter().any(|expr| soon(expr) != Truth::True) {
        return Standing::CannotTell;
    }
    if refutes.contains(&Truth::True) || unless.contains(&Truth::True) {
        return Standing::Contradicted;
    }
    let open =
        refutes.contains(&Truth::Unknown) || tentative.iter().any(|state| *state != Truth::False);
    if waiting || open { Standing::Likely } else { Standing::Confirmed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grounds(lists: [&str; 5]) -> Grounds {
        let parse = |text: &str| {
            text.split(',')
                .filter(|part| !part.is_empty())
                .map(|part| Expr::parse(part).expect(part))
                .collect()
        };
        let [requires, supports, refutes, unless, tentative] = lists.map(parse);
        Grounds { requires, supports, refutes, unless, tentative }
    }

    #[test]
    fn standings_follow_the_evidence() {
        let seen = |name: &str| match name {
            "t" => Seen { state: Truth::True, pending: false },
            "f" => Seen { state: Truth::False, pending: false },
            "p" => Seen { state: Truth::Unknown, pending: true },
            _ => Seen { state: Truth::Unknown, pending: false },
        };
        let check = |lists: [&str; 5], expected: Standing| {
            assert_eq!(score(&grounds(lists), &seen).standing, expected, "{lists:?}");
        };
        check(["t", "", "f", "f", "f"], Standing::Confirmed);
        check(["", "t", "f", "f", ""], Standing::CannotTell);
        check(["t", "u", "f", "u", ""], Standing::Confirmed);
        check(["t", "", "u", "", ""], Standing::Likely);
        check(["t", "", "p", "", ""], Standing::Likely);
        check(["t", "", "", "", "t"], Standing::Likely);
        check(["t", "", "", "", "u"], Standing::Likely);
        check(["t,p", "", "", "", ""], Standing::Likely);
        check(["t", "", "t", "", ""], Standing::Contradicted);
        check(["t", "", "", "t", ""], Standing::Contradicted);
        check(["t,u", "", "", "", ""], Standing::CannotTell);
        check(["u or p", "", "", "", ""], Standing::Likely);
        check(["t,f,u", "", "", "", ""], Standing::RuledOut);
    }

    #[test]
    fn evidence_is_counted() {
        let seen = |name: &str| Seen {
            state: if name == "u" { Truth::Unknown } else { Truth::from(name == "t") },
            pending: false,
        };
        let score = score(&grounds(["t,t", "t,f,u", "t,u", "u", "u"]), &seen);
        let counts = (score.evidence_for, score.evidence_against, score.evidence_unknown);
        assert_eq!(counts, (3, 1, 2));
    }
}

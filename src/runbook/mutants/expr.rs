//! An expression changed in one place, and whether that changes any value of it. Knows no file.

use crate::diagnosis::{Expr, Truth};

/// Most names of which two expressions are compared by all their values.
const NAMES_MAX: usize = 6;

/// An expression changed in one place, and how.
pub(super) fn variants(expr: &Expr) -> Vec<(String, Expr)> {
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
pub(super) fn same(left: &Expr, right: &Expr) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

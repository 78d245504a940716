//! The series notation of runbook tests, which is promtool's: `a+bxn`, `a-bxn`, `axn`, `_`, `_xn`.

/// Most samples of one series: an hour at a second, ten times over.
const MAX_SAMPLES: usize = 36_000;

/// Expands a notation into samples; `None` stands for no sample.
///
/// `axn` is `a` and `n` repetitions of it, `a+bxn` is `a` and `n` steps of `b`, `_xn` is `n` gaps.
///
/// # Errors
/// The item that is not in the notation.
pub(super) fn expand(notation: &str) -> Result<Vec<Option<f64>>, String> {
    let mut samples = Vec::new();
    for item in notation.split_whitespace() {
        let more = expand_item(item).ok_or_else(|| item.to_owned())?;
        if samples.len() + more.len() > MAX_SAMPLES {
            return Err(format!("{item} (more than {MAX_SAMPLES} samples)"));
        }
        samples.extend(more);
    }
    Ok(samples)
}

fn expand_item(item: &str) -> Option<Vec<Option<f64>>> {
    let (body, count) = match item.split_once('x') {
        Some((body, count)) => (body, Some(count.parse::<usize>().ok()?)),
        None => (item, None),
    };
    if count.is_some_and(|count| count > MAX_SAMPLES) {
        return None;
    }
    if body == "_" {
        return Some(vec![None; count.unwrap_or(1)]);
    }
    let sign = body
        .char_indices()
        .skip(1)
        .find(|(at, c)| matches!(c, '+' | '-') && !body[..*at].ends_with(['e', 'E']));
    let (start, step) = match sign {
        Some((at, _)) => (body[..at].parse::<f64>().ok()?, body[at..].parse::<f64>().ok()?),
        None => (body.parse::<f64>().ok()?, 0.0),
    };
    let mut value = start;
    let mut samples = vec![Some(value)];
    for _ in 0..count.unwrap_or(0) {
        value += step;
        samples.push(Some(value));
    }
    Some(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn notations_expand_as_promtool_does() {
        let check = |notation: &str, expected: &[Option<f64>]| {
            assert_eq!(expand(notation).as_deref(), Ok(expected), "{notation}");
        };
        check("1 2", &[Some(1.0), Some(2.0)]);
        check("0.5x2", &[Some(0.5); 3]);
        check("1+2x2", &[Some(1.0), Some(3.0), Some(5.0)]);
        check("-2-1x1", &[Some(-2.0), Some(-3.0)]);
        check("_ _x2 4", &[None, None, None, Some(4.0)]);
        check("1e3", &[Some(1_000.0)]);
        assert_eq!(expand("1 nonsense"), Err("nonsense".to_owned()));
        assert!(expand("1x999999999").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9x+_. e-]{0,24}|\\PC{0,16}") {
            let _ = expand(&text);
        }
    }
}

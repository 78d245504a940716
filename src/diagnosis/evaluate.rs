//! Evaluates predicates against readings and keeps their `for` and `clear` state. Reads no clock:
//! the moment is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::signal::{Mono, Quality, Value};

use super::history::{Gap, Read, Readings};
use super::predicate::{Bound, Op, Operand, Predicate, Test, Window};
use super::verdict::{Evidence, Truth};

/// A comparison survives this long without data before it has to hold anew.
const FORGET_AFTER: Duration = Duration::from_secs(30);

/// What a predicate read, before `for` and `clear`.
struct Look {
    value: Option<f64>,
    threshold: Option<f64>,
    /// The comparison itself, and whether the `clear` bound is not yet crossed.
    outcome: Result<(bool, bool), Gap>,
    meta: Option<Read<()>>,
    remark: Option<String>,
}

/// The memory of one predicate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hold {
    since: Option<Mono>,
    active: bool,
    last_known: Option<Mono>,
}

impl Hold {
    /// Takes the comparison at `at` and says what counts: the truth, whether it is still pending,
    /// and for how long it has held. `still` is whether the `clear` bound is not yet crossed.
    fn step(
        &mut self,
        holds: bool,
        still: bool,
        span: Duration,
        at: Mono,
    ) -> (Truth, bool, Duration) {
        self.last_known = Some(at);
        let goes_on = holds || (self.active && still);
        if !goes_on {
            *self = Self { last_known: Some(at), ..Self::default() };
            return (Truth::False, false, Duration::ZERO);
        }
        let held = at.saturating_since(*self.since.get_or_insert(at));
        self.active |= held >= span;
        if self.active { (Truth::True, false, held) } else { (Truth::Unknown, true, held) }
    }

    /// No data at `at`: unknown, and forgotten when that lasts.
    fn gap(&mut self, at: Mono) {
        if self.last_known.is_none_or(|known| at.saturating_since(known) > FORGET_AFTER) {
            *self = Self::default();
        }
    }
}

/// Predicates with their state, each text once.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    predicates: Vec<Predicate>,
    holds: Vec<Hold>,
    by_text: BTreeMap<String, usize>,
}

impl Watch {
    /// Adds a predicate and returns its place; the same text has the same place.
    pub fn add(&mut self, predicate: &Predicate) -> usize {
        let next = self.predicates.len();
        let place = *self.by_text.entry(predicate.text.clone()).or_insert(next);
        if place == next {
            self.predicates.push(predicate.clone());
            self.holds.push(Hold::default());
        }
        place
    }

    /// The paths of every number that the predicates read.
    #[must_use]
    pub fn paths(&self) -> std::collections::BTreeSet<String> {
        let paths = |predicate: &Predicate| match &predicate.test {
            Test::Compare { left, bound: Bound::Scaled { operand, .. }, .. } => {
                vec![left.signal.clone(), operand.signal.clone()]
            }
            Test::Compare { left, .. } => vec![left.signal.clone()],
            Test::Is { .. } | Test::Codes { .. } => Vec::new(),
        };
        self.predicates.iter().flat_map(paths).collect()
    }

    /// Evaluates everything at `at`, in the order in which it was added. Names are left empty.
    pub fn step(&mut self, readings: &dyn Readings, at: Mono) -> Vec<Evidence> {
        self.predicates
            .iter()
            .zip(&mut self.holds)
            .map(|(predicate, hold)| evaluate(predicate, hold, readings, at))
            .collect()
    }
}

/// Evaluates one predicate at `at` and steps its memory.
pub fn evaluate(
    predicate: &Predicate,
    hold: &mut Hold,
    readings: &dyn Readings,
    at: Mono,
) -> Evidence {
    let look = look(predicate, readings);
    let mut reason = look.remark;
    let (state, pending, lasted) = match look.outcome {
        Ok((holds, _)) if readings.constant() => (Truth::from(holds), false, predicate.hold),
        Ok((holds, still)) => hold.step(holds, still, predicate.hold, at),
        Err(gap) => {
            hold.gap(at);
            reason = Some(gap.to_string());
            (Truth::Unknown, false, Duration::ZERO)
        }
    };
    if pending {
        let asked = predicate.hold.as_secs_f64();
        reason = Some(format!("held {:.0} s of {asked:.0} s", lasted.as_secs_f64()));
    }
    Evidence {
        name: String::new(),
        predicate: predicate.text.clone(),
        signal: predicate.signals().first().map_or_else(String::new, |name| (*name).to_owned()),
        value: look.value,
        threshold: look.threshold,
        state,
        pending,
        reason,
        held_s: lasted.as_secs_f64(),
        source: look.meta.as_ref().map(|meta| meta.source.to_string()),
        age_s: look.meta.as_ref().map(|meta| meta.age_s),
        quality: look.meta.as_ref().map(|meta| meta.quality.word()),
    }
}

fn look(predicate: &Predicate, readings: &dyn Readings) -> Look {
    match &predicate.test {
        Test::Compare { left, op, bound } => compare(left, *op, bound, predicate.clear, readings),
        Test::Is { path, word, negated } => {
            let read = readings.value(path).and_then(|read| {
                let word_read = word_of(&read.value).ok_or(Gap::WrongKind)?;
                Ok((word_read, bare(read)))
            });
            match read {
                Ok((found, meta)) => {
                    let holds = (found == *word) != *negated;
                    Look {
                        value: None,
                        threshold: None,
                        outcome: Ok((holds, holds)),
                        meta: Some(meta),
                        remark: Some(format!("is {found}")),
                    }
                }
                Err(gap) => unknown(gap, None, None),
            }
        }
        Test::Codes { patterns, op, share } => match readings.value("error_codes") {
            Ok(read) => {
                let Value::Map(codes) = &read.value else {
                    return unknown(Gap::WrongKind, None, Some(*share));
                };
                let found = patterns.share(codes);
                let clear = predicate.clear.unwrap_or(*share);
                Look {
                    value: Some(found),
                    threshold: Some(*share),
                    outcome: Ok((op.holds(found, *share), op.holds(found, clear))),
                    meta: Some(bare(read)),
                    remark: None,
                }
            }
            Err(gap) => unknown(gap, None, Some(*share)),
        },
    }
}

fn compare(
    left: &Operand,
    op: Op,
    bound: &Bound,
    clear: Option<f64>,
    readings: &dyn Readings,
) -> Look {
    let mut bound_is_floor = false;
    let threshold = match bound {
        Bound::Fixed(number) => Ok(*number),
        Bound::Scaled { operand, times } => {
            // `x[1m] > x@1h` compares like with like: the past is read over the left side's window.
            let window = match operand.window {
                Window::Fast => left.window,
                span @ Window::Span(_) => span,
            };
            read(&Operand { window, ..operand.clone() }, readings).map(|read| {
                bound_is_floor = read.quality == Quality::LowerBound;
                read.value * times
            })
        }
    };
    match (read(left, readings), threshold) {
        // The truth is this or more: it can prove that a bound is passed, never that it is not.
        (Ok(read), Ok(bound))
            if read.quality == Quality::LowerBound
                && op.holds(read.value, bound) == (op == Op::Below) =>
        {
            unknown(Gap::LowerBound, Some(read), Some(bound))
        }
        // The same the other way round: the bound may lie higher, so nothing is proven to be above it.
        (Ok(read), Ok(bound))
            if bound_is_floor && op.holds(read.value, bound) == (op != Op::Below) =>
        {
            unknown(Gap::LowerBound, Some(read), Some(bound))
        }
        (Ok(read), Ok(bound)) => Look {
            value: Some(read.value),
            threshold: Some(bound),
            outcome: Ok((
                op.holds(read.value, bound),
                op.holds(read.value, clear.unwrap_or(bound)),
            )),
            meta: Some(bare(read)),
            remark: None,
        },
        (Ok(read), Err(gap)) => unknown(gap, Some(read), None),
        (Err(gap), threshold) => unknown(gap, None, threshold.ok()),
    }
}

fn read(operand: &Operand, readings: &dyn Readings) -> Result<Read<f64>, Gap> {
    match operand.ago {
        None => readings.number(&operand.signal, operand.window),
        Some(ago) => readings.number_ago(&operand.signal, operand.window, ago),
    }
}

fn unknown(gap: Gap, value: Option<Read<f64>>, threshold: Option<f64>) -> Look {
    Look {
        value: value.as_ref().map(|read| read.value),
        threshold,
        outcome: Err(gap),
        meta: value.map(bare),
        remark: None,
    }
}

fn bare<T>(read: Read<T>) -> Read<()> {
    Read { value: (), source: read.source, age_s: read.age_s, quality: read.quality }
}

fn word_of(value: &Value) -> Option<String> {
    match value {
        Value::Text(word) => Some(word.clone()),
        Value::Bool(yes) => Some(yes.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::derive::complete;
    use crate::diagnosis::history::{Ring, Single};
    use crate::signal::Snapshot;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    fn once(text: &str, signals: &[(&str, Value)]) -> Evidence {
        let mut snapshot = Snapshot::new("scope", 60.0);
        for (name, value) in signals {
            snapshot.set(name, value.clone(), &Arc::from("test"));
        }
        let predicate = Predicate::parse(text).expect(text);
        let done = complete(&snapshot);
        evaluate(&predicate, &mut Hold::default(), &Single(&done), at(0.0))
    }

    #[test]
    fn predicates_are_true_false_or_unknown() {
        let number = Value::Number;
        let breaker = Value::Map(BTreeMap::from([("state".into(), Value::Text("open".into()))]));
        let codes = Value::Map(BTreeMap::from([("insufficient_quota".into(), number(9.0))]));
        let signals = [
            ("amplification", number(9.0)),
            ("max_attempts_configured", number(3.0)),
            ("originals_rps", number(4.0)),
            ("originals_rps_15m_ago", number(9.0)),
            ("breaker", breaker),
            ("error_codes", codes),
            ("failover_on_429", Value::Bool(false)),
        ];
        let check = |text: &str, expected: Truth| {
            assert_eq!(once(text, &signals).state, expected, "{text}");
        };
        check("amplification[1m] > 3 for 10m", Truth::True);
        check("amplification > max_attempts_configured * 1.1", Truth::True);
        check("amplification > max_attempts_configured * 3", Truth::False);
        check("amplification > reset_s", Truth::Unknown);
        check("originals_rps < originals_rps@15m * 0.7", Truth::True);
        check("originals_rps < originals_rps@1h * 0.7", Truth::Unknown);
        check("tpm_headroom < 5%", Truth::Unknown);
        check("breaker.state is open", Truth::True);
        check("breaker.state is not open", Truth::False);
        check("cooldown.state is open", Truth::Unknown);
        check("breaker.state < 3", Truth::Unknown);
        check("failover_on_429 is false", Truth::True);
        check("error_codes matching /insufficient_quota/ > 50%", Truth::True);
        check("error_codes matching /tokens/ > 1%", Truth::False);
    }

    #[test]
    fn the_text_value_and_reason_are_kept() {
        let evidence =
            once("tpm_headroom[1m] < 5% for 30s", &[("tpm_remaining", Value::Number(1.0))]);
        assert_eq!(evidence.predicate, "tpm_headroom[1m] < 5% for 30s");
        assert_eq!(evidence.threshold, Some(0.05));
        assert_eq!(evidence.reason.as_deref(), Some("no-data: needs tpm_limit"));
    }

    /// Steps one predicate through (second, value) and returns the states as `T`, `F`, `?`, `p`.
    fn play(text: &str, values: &[(f64, Option<f64>)]) -> String {
        let predicate = Predicate::parse(text).expect(text);
        let mut watch = Watch::default();
        watch.add(&predicate);
        let mut ring = Ring::new(watch.paths());
        let mut states = String::new();
        for (second, value) in values {
            let mut snapshot = Snapshot::new("scope", 10.0);
            if let Some(value) = value {
                snapshot.set("queue_depth", Value::Number(*value), &Arc::from("test"));
            }
            ring.push(Arc::new(complete(&snapshot)), at(*second));
            let evidence = watch.step(&ring, at(*second)).remove(0);
            states.push(match (evidence.state, evidence.pending) {
                (Truth::True, _) => 'T',
                (Truth::False, _) => 'F',
                (Truth::Unknown, true) => 'p',
                (Truth::Unknown, false) => '?',
            });
        }
        states
    }

    #[test]
    fn for_counts_at_the_exact_deadline() {
        let high = |second| (second, Some(9.0));
        let text = "queue_depth > 5 for 3s";
        assert_eq!(play(text, &[high(0.0), high(2.999), high(3.0), high(4.0)]), "ppTT");
        assert_eq!(play(text, &[high(0.0), (2.0, Some(5.0)), high(3.0), high(6.0)]), "pFpT");
    }

    #[test]
    fn clear_holds_on_until_its_bound() {
        let text = "queue_depth > 5 clear 2";
        let values = [9.0, 4.0, 2.5, 2.0, 4.0].map(Some);
        let steps: Vec<_> = [0.0, 1.0, 2.0, 3.0, 4.0].into_iter().zip(values).collect();
        assert_eq!(play(text, &steps), "TTTFF");
    }

    #[test]
    fn a_lost_scrape_is_unknown_and_does_not_start_over() {
        let text = "queue_depth > 5 for 3s";
        let high = |second| (second, Some(9.0));
        assert_eq!(play(text, &[high(0.0), (2.0, None), high(4.0)]), "p?T");
        assert_eq!(play(text, &[high(0.0), (20.0, None), (40.0, None), high(41.0)]), "p??p");
    }

    proptest! {
        #[test]
        fn no_value_panics(
            value in any::<f64>(),
            other in any::<f64>(),
            name in prop::sample::select(vec!["attempts_rps", "tpm_remaining", "amplification"]),
        ) {
            let signals = [
                (name, Value::Number(value)),
                ("originals_rps", Value::Number(other)),
                ("tpm_limit", Value::Number(other)),
            ];
            for text in ["amplification > 3", "tpm_headroom < 5%", "originals_rps > tpm_limit * -2"] {
                once(text, &signals);
            }
        }
    }
}

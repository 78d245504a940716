//! Evaluates predicates against readings and keeps their `for` and `clear` state. Reads no clock:
//! the moment is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::signal::{Mono, Quality, Value};

use super::history::{Course, Gap, Read, Readings, Sequence};
use super::onset::Short;
use super::predicate::{Bound, Heading, Moved, Op, Operand, Predicate, Test, Window};
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
    pub fn paths(&self) -> BTreeSet<String> {
        let of_numbers = |one: &&Predicate| !matches!(one.test, Test::Is { .. });
        let numbers = self.predicates.iter().filter(of_numbers);
        numbers.flat_map(Predicate::paths).map(str::to_owned).collect()
    }

    /// The paths of the signals whose order of onset is asked for.
    #[must_use]
    pub fn movers(&self) -> BTreeSet<String> {
        let of_orders = |one: &&Predicate| matches!(one.test, Test::Order { .. });
        let orders = self.predicates.iter().filter(of_orders);
        orders.flat_map(Predicate::paths).map(str::to_owned).collect()
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
        quality: look.meta.as_ref().map(|meta| meta.quality),
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
        Test::Known { path } => match readings.value(path) {
            Ok(read) => Look {
                value: read.value.as_number(),
                threshold: None,
                outcome: Ok((true, true)),
                meta: Some(bare(read)),
                remark: None,
            },
            Err(gap) => unknown(gap, None, None),
        },
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
        Test::Trend { signal, way, span } => trend(signal, *way, *span, readings),
        Test::Order { first, then } => order(first, then, readings),
    }
}

/// The level at the end against that at the beginning.
fn trend(signal: &str, way: Heading, span: Duration, readings: &dyn Readings) -> Look {
    match readings.trend(signal, way, span) {
        Ok(read) => {
            let Course { from, to, holds } = read.value;
            Look {
                value: Some(to),
                threshold: Some(from),
                outcome: Ok((holds, holds)),
                meta: Some(bare(read)),
                remark: Some(format!("from {} to {}", Short(from), Short(to))),
            }
        }
        Err(gap) => unknown(gap, None, None),
    }
}

fn order(first: &Moved, then: &Moved, readings: &dyn Readings) -> Look {
    match readings.sequence(first, then) {
        Ok(Sequence { holds, seen }) => Look {
            value: None,
            threshold: None,
            outcome: Ok((holds, holds)),
            meta: None,
            remark: Some(seen),
        },
        Err(gap) => unknown(gap, None, None),
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
mod tests;

//! Holds a threshold of `[evidence]` against the one that a test file writes down a second time.
//!
//! A pin plays the left signal at a value, long enough for the window to be filled, and asks what the
//! predicate says. The past that a predicate compares with comes from `given` by the catalogue's name
//! (`X_1h_ago`, `X_15m_ago`, `X_baseline`); where there is none, the pin plays a past of its own:
//! `given = { "X@10s" = 4 }`, or 1, so that `holds` and `fails` are multiples of it. Reads no clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::diagnosis::{
    Bound, Hold, Operand, Predicate, Ring, Test, Truth, Watch, Window, complete, evaluate,
};
use crate::signal::{Mono, Snapshot, Value, parse_duration};

use super::suite::{PinBlock, TestFile};
use super::values::put;

/// From sample to sample where the file says nothing.
const INTERVAL: Duration = Duration::from_secs(5);
/// Samples in which a window is filled.
const FILL: u32 = 20;
/// Farthest apart that samples of a past are, which is the farthest that two of one series may be.
const PAST_STEP_MAX: Duration = Duration::from_mins(1);
/// Past that a pin plays when nothing is given.
const PAST: f64 = 1.0;

/// One pin, ready to be held against a predicate.
#[derive(Clone, Debug)]
pub(super) struct Pin {
    pub(super) place: String,
    evidence: String,
    holds: Value,
    fails: Value,
    after: Option<Duration>,
    stays: Option<Value>,
    clears: Option<Value>,
    given: Vec<(String, Value)>,
    interval: Duration,
}

impl Pin {
    pub(super) fn read(tests: &TestFile, block: &PinBlock) -> Result<Self, String> {
        let value = |key: &str, value| tests.value(key, value);
        let mut given = Vec::new();
        for (name, constant) in &block.given {
            let signal = match past_key(name) {
                Some((signal, _)) => signal,
                None => name.as_str(),
            };
            tests.known(signal, constant)?;
            given.push((name.clone(), value(name, constant)?));
        }
        Ok(Self {
            place: tests.place(&block.evidence),
            evidence: block.evidence.get_ref().clone(),
            holds: value("holds", &block.holds)?,
            fails: value("fails", &block.fails)?,
            after: block.after.as_ref().map(|after| tests.span(after)).transpose()?,
            stays: block.stays.as_ref().map(|stays| value("stays", stays)).transpose()?,
            clears: block.clears.as_ref().map(|clears| value("clears", clears)).transpose()?,
            given,
            interval: tests.interval()?.unwrap_or(INTERVAL),
        })
    }

    /// The name of the evidence that it pins.
    pub(super) fn evidence(&self) -> &str {
        &self.evidence
    }

    /// What is wrong when `predicate` stands under the name.
    ///
    /// # Errors
    /// When no pin can be held against a predicate of this form, in a sentence with file and line.
    pub(super) fn check(&self, predicate: &Predicate) -> Result<Vec<String>, String> {
        let rig = Rig::of(self, predicate).map_err(|why| format!("{}: {why}", self.place))?;
        let mut wrong = Vec::new();
        let mut expect = |what: &str, value: &Value, found: Found, wanted: Truth| {
            if found.0 != wanted {
                let (found, wanted) = (found.words(), wanted.word());
                let text = &predicate.text;
                wrong.push(format!(
                    "at {what} = {}: {found}, expected {wanted}: {text}",
                    show(value)
                ));
            }
        };
        expect("fails", &self.fails, rig.play(&self.fails).settle(), Truth::False);
        let mut play = rig.play(&self.holds);
        let first = play.look(Duration::ZERO);
        match self.after {
            None => expect("holds", &self.holds, play.settle(), Truth::True),
            Some(after) => {
                let before = after.saturating_sub(self.interval);
                let early = if before.is_zero() { first } else { play.look(before) };
                if !after.is_zero() && early.0 == Truth::True {
                    let held = before.as_secs_f64();
                    wrong.push(format!("is true after {held} s already: {}", predicate.text));
                }
                let late = play.look(after);
                if late.0 != Truth::True {
                    let (held, found) = (after.as_secs_f64(), late.words());
                    wrong.push(format!("is {found} after {held} s: {}", predicate.text));
                }
            }
        }
        for (what, value, wanted) in
            [("stays", &self.stays, Truth::True), ("clears", &self.clears, Truth::False)]
        {
            let Some(value) = value else { continue };
            let mut play = rig.play(&self.holds);
            play.look(Duration::ZERO);
            if play.settle().0 != Truth::True {
                continue;
            }
            let found = play.change(value);
            if found.0 != wanted {
                let (found, wanted) = (found.words(), wanted.word());
                let value = show(value);
                let text = &predicate.text;
                wrong.push(format!("at {what} = {value}: {found}, expected {wanted}: {text}"));
            }
        }
        Ok(wrong)
    }
}

/// `X@10s` or `X_10s_ago` where the catalogue has no such name: the signal and how long ago.
fn past_key(name: &str) -> Option<(&str, Duration)> {
    let (signal, ago) = match name.split_once('@') {
        Some(parts) => parts,
        None => name.strip_suffix("_ago")?.rsplit_once('_')?,
    };
    parse_duration(ago).map(|ago| (signal, ago))
}

fn show(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Text(word) => word.clone(),
        Value::Bool(yes) => yes.to_string(),
        Value::Map(parts) => {
            let parts: Vec<_> =
                parts.iter().map(|(name, part)| format!("{name} = {}", show(part))).collect();
            format!("{{ {} }}", parts.join(", "))
        }
        Value::List(list) => {
            format!("[{}]", list.iter().map(show).collect::<Vec<_>>().join(", "))
        }
    }
}

/// What a predicate says, and why where it cannot tell.
struct Found(Truth, Option<String>);

impl Found {
    fn words(&self) -> String {
        match (self.0, &self.1) {
            (Truth::Unknown, Some(why)) => format!("unknown ({why})"),
            (state, _) => state.word().to_owned(),
        }
    }
}

/// A predicate with what surrounds its left signal.
struct Rig<'a> {
    predicate: &'a Predicate,
    paths: BTreeSet<String>,
    /// Path of the left signal.
    left: &'a str,
    given: Vec<(&'a str, &'a Value)>,
    past: Option<Past<'a>>,
    /// The longest window that is read.
    window: Duration,
    interval: Duration,
}

/// A past that is played, because no signal holds it by name.
struct Past<'a> {
    signal: &'a str,
    value: f64,
    ago: Duration,
}

impl<'a> Rig<'a> {
    fn of(pin: &'a Pin, predicate: &'a Predicate) -> Result<Self, String> {
        let mut watch = Watch::default();
        watch.add(predicate);
        let mut rig = Self {
            predicate,
            paths: watch.paths(),
            left: "error_codes",
            given: Vec::new(),
            past: None,
            window: Duration::ZERO,
            interval: pin.interval,
        };
        if let Test::Compare { left, bound, .. } = &predicate.test {
            rig.left = &left.signal;
            rig.window = span(left.window);
            if let Bound::Scaled { operand, .. } = bound {
                rig.window = rig.window.max(span(operand.window));
                rig.past = past_of(pin, operand);
            }
            if left.ago.is_some() {
                rig.past = past_of(pin, left);
            }
        } else if let Test::Is { path, .. } = &predicate.test {
            rig.left = path;
        } else if !matches!(predicate.test, Test::Codes { .. }) {
            return Err(format!(
                "`{}` has no threshold that a pin can hold; test it in a [[case]]",
                predicate.text
            ));
        }
        rig.given = pin
            .given
            .iter()
            .filter(|(name, _)| {
                let played = rig.past.as_ref();
                !played.is_some_and(|past| past_key(name) == Some((past.signal, past.ago)))
            })
            .map(|(name, value)| (name.as_str(), value))
            .collect();
        let read = rig.window + predicate.hold;
        if let Some(past) = &rig.past
            && past.signal == rig.left
            && read >= past.ago
        {
            let (read, ago) = (read.as_secs_f64(), past.ago.as_secs_f64());
            return Err(format!(
                "`{}` reads {read} s of now beside {ago} s ago; test it in a [[case]]",
                predicate.text
            ));
        }
        Ok(rig)
    }

    /// Fills the past and the window, and stands at the moment from which on `for` is counted.
    fn play(&self, value: &'a Value) -> Play<'_> {
        let mut play = Play {
            rig: self,
            value,
            ring: Ring::new(self.paths.clone()),
            hold: Hold::default(),
            now: Mono::START,
            from: Mono::START,
        };
        let mut at = Mono::START;
        if let Some(past) = &self.past {
            let step = past.step(self.window);
            let until = at + past.ago + self.window;
            let level = Value::Number(past.value);
            while at < until {
                let left = (past.signal == self.left).then_some(&level);
                play.push(left.unwrap_or(value), at);
                at = at + step;
            }
            // The turn from then to now: what is read as past must lie before it to the end.
            at = until;
            play.push((past.signal == self.left).then_some(&level).unwrap_or(value), at);
            at = at + self.step_after_turn(past);
        }
        if self.window.is_zero() {
            play.push(value, at);
        } else {
            let until = at + self.window;
            let step = self.window / FILL;
            while at <= until {
                play.push(value, at);
                at = at + step;
            }
        }
        play.from = play.now;
        play
    }

    /// As far as the interval, unless that would leave too little of the past.
    fn step_after_turn(&self, past: &Past<'_>) -> Duration {
        let spare = past.ago.saturating_sub(self.window + self.predicate.hold);
        self.interval.min(spare / 4).max(Duration::from_millis(1))
    }
}

impl Past<'_> {
    /// From sample to sample: sparse, for a mean of equal values needs few.
    fn step(&self, window: Duration) -> Duration {
        let least = if window.is_zero() { self.ago / 10 } else { window / 2 };
        PAST_STEP_MAX.min(least).max(Duration::from_millis(1))
    }
}

fn span(window: Window) -> Duration {
    match window {
        Window::Fast => Duration::ZERO,
        Window::Span(span) => span,
    }
}

/// The past to play; `None` when the operand has none, or a given signal holds it by name.
fn past_of<'a>(pin: &'a Pin, operand: &'a Operand) -> Option<Past<'a>> {
    let ago = operand.ago?;
    let signal = operand.signal.as_str();
    let hour = ago == Duration::from_hours(1);
    let named = |name: &str| {
        let Some(rest) = name.strip_prefix(signal) else { return false };
        match rest {
            "_15m_ago" => ago == Duration::from_mins(15),
            "_1h_ago" | "_baseline" => hour,
            _ => false,
        }
    };
    if pin.given.iter().any(|(name, _)| named(name)) {
        return None;
    }
    let given =
        pin.given.iter().find(|(name, _)| past_key(name) == Some((signal, ago)) || name == signal);
    let value = given.and_then(|(_, value)| value.as_number()).unwrap_or(PAST);
    Some(Past { signal, value, ago })
}

/// One run of a predicate at one value.
struct Play<'a> {
    rig: &'a Rig<'a>,
    value: &'a Value,
    ring: Ring,
    hold: Hold,
    now: Mono,
    from: Mono,
}

impl<'a> Play<'a> {
    fn push(&mut self, left: &Value, at: Mono) {
        let mut snapshot = Snapshot::new("pin", self.rig.interval.as_secs_f64());
        let source = Arc::from("pin");
        for (path, value) in &self.rig.given {
            put(&mut snapshot, path, (*value).clone(), &source);
        }
        if let Some(past) = &self.rig.past
            && past.signal != self.rig.left
        {
            put(&mut snapshot, past.signal, Value::Number(past.value), &source);
        }
        put(&mut snapshot, self.rig.left, left.clone(), &source);
        self.ring.push(Arc::new(complete(&snapshot)), at);
        self.now = at;
    }

    /// What the predicate says this long after the value was reached.
    fn look(&mut self, after: Duration) -> Found {
        self.fill(self.from + after);
        let evidence = evaluate(self.rig.predicate, &mut self.hold, &self.ring, self.now);
        Found(evidence.state, evidence.reason)
    }

    /// What it says once it has held for as long as it asks for itself.
    fn settle(&mut self) -> Found {
        let hold = self.rig.predicate.hold;
        let first = self.look(Duration::ZERO);
        if hold.is_zero() { first } else { self.look(hold) }
    }

    /// What it says once the window holds nothing but another value.
    fn change(&mut self, value: &'a Value) -> Found {
        self.value = value;
        let step =
            self.rig.past.as_ref().map_or(self.rig.interval, |past| self.rig.step_after_turn(past));
        self.fill(self.now + step + self.rig.window);
        let evidence = evaluate(self.rig.predicate, &mut self.hold, &self.ring, self.now);
        Found(evidence.state, evidence.reason)
    }

    /// Goes on with the value until `until`.
    fn fill(&mut self, until: Mono) {
        if until <= self.now {
            return;
        }
        let steps = if self.rig.window.is_zero() { 1 } else { FILL };
        let step = until.saturating_since(self.now) / steps;
        let value = self.value;
        for _ in 1..steps {
            let at = self.now + step;
            self.push(value, at);
        }
        self.push(value, until);
    }
}

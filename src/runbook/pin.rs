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
                let (at, text) = (show(&self.holds), &predicate.text);
                if !after.is_zero() && early.0 == Truth::True {
                    let held = before.as_secs_f64();
                    wrong.push(format!("at holds = {at}: true after {held} s already: {text}"));
                }
                let late = play.look(after);
                if late.0 != Truth::True {
                    let (held, found) = (after.as_secs_f64(), late.words());
                    wrong.push(format!(
                        "at holds = {at}: {found} after {held} s, expected true: {text}"
                    ));
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
                played.is_none_or(|past| past_key(name) != Some((past.signal, past.ago)))
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
            let then = if past.signal == self.left { &level } else { value };
            while at < until {
                play.push(then, at);
                at = at + step;
            }
            // The turn from then to now: what is read as past must lie before it to the end.
            at = until;
            play.push(then, at);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a pin finds wrong with a predicate; both as files write them.
    fn check(predicate: &str, pin: &str) -> Vec<String> {
        let text = format!("runbook = \"x\"\ninterval = \"5s\"\n[[pin]]\nevidence = \"e\"\n{pin}");
        let tests = TestFile::read("x.test.toml", &text).expect(&text);
        let pin = tests.pins().expect(&text).remove(0);
        pin.check(&Predicate::parse(predicate).expect(predicate)).expect(predicate)
    }

    fn holds(predicate: &str, pin: &str) {
        assert_eq!(check(predicate, pin), Vec::<String>::new(), "{predicate} and {pin}");
    }

    fn fails(predicate: &str, pin: &str, words: &str) {
        let wrong = check(predicate, pin);
        assert!(
            wrong.iter().any(|wrong| wrong.contains(words)),
            "{predicate} and {pin}: {wrong:?}"
        );
    }

    #[test]
    fn a_threshold_is_held_from_both_sides() {
        let pin = "holds = 0.045\nfails = 0.055";
        holds("tpm_headroom[1m] < 5% for 30s clear 15%", pin);
        fails("tpm_headroom[1m] < 4% for 30s", pin, "at holds = 0.045: false, expected true");
        fails("tpm_headroom[1m] < 6%", pin, "at fails = 0.055: true, expected false");
        fails("tpm_headroom[1m] > 5%", pin, "at holds");
    }

    #[test]
    fn for_is_held_to_the_sample() {
        for text in ["queue_depth > 5 for 30s", "queue_depth[1m] > 5 for 30s"] {
            holds(text, "holds = 6\nfails = 4\nafter = \"30s\"");
            fails(text, "holds = 6\nfails = 4\nafter = \"25s\"", "after 25 s");
            fails(text, "holds = 6\nfails = 4\nafter = \"60s\"", "true after 55 s already");
        }
        fails("queue_depth > 5", "holds = 6\nfails = 4\nafter = \"5s\"", "true after 0 s already");
    }

    #[test]
    fn clear_is_held_from_both_sides() {
        let pin = "holds = 0.01\nfails = 0.06\nstays = 0.14\nclears = 0.16";
        holds("tpm_headroom[fast] < 5% for 3s clear 15%", pin);
        holds("tpm_headroom[2m] < 5% for 1m clear 15%", pin);
        fails("tpm_headroom[fast] < 5% for 3s", pin, "at stays = 0.14: false");
        fails("tpm_headroom[fast] < 5% for 3s clear 20%", pin, "at clears = 0.16: true");
    }

    #[test]
    fn other_operands_are_given() {
        let pin = "holds = 3.4\nfails = 3.2\ngiven = { max_attempts_configured = 3 }";
        holds("amplification > max_attempts_configured * 1.1 for 3s", pin);
        fails("amplification > max_attempts_configured * 1.5", pin, "at holds");
        let missing = "holds = 3.4\nfails = 3.2";
        fails("amplification > max_attempts_configured", missing, "unknown (no-data");
    }

    #[test]
    fn the_past_is_given_by_name_or_played() {
        let text = "originals_rps[fast] < originals_rps@15m * 0.7";
        holds(text, "holds = 69\nfails = 71\ngiven = { originals_rps_15m_ago = 100 }");
        holds(text, "holds = 0.69\nfails = 0.71");
        let hour = "tokens_per_request[2m] > tokens_per_request@1h * 1.5 for 60s";
        holds(hour, "holds = 151\nfails = 149\ngiven = { tokens_per_request_baseline = 100 }");
        holds(hour, "holds = 151\nfails = 149\ngiven = { \"tokens_per_request@1h\" = 100 }");
        fails(hour, "holds = 1.45\nfails = 1.4", "at holds");
        let short = "amplification[fast] > amplification@10s * 1.1 for 3s";
        holds(short, "holds = 2.21\nfails = 2.19\ngiven = { amplification_10s_ago = 2 }");
        holds(short, "holds = 1.11\nfails = 1.09");
        holds(
            "queue_depth > inflight_gauge@1h * 2",
            "holds = 9\nfails = 7\ngiven = { inflight_gauge = 4 }",
        );
    }

    #[test]
    fn words_and_codes_are_pinned_too() {
        holds("breaker.state is open", "holds = \"open\"\nfails = \"half_open\"");
        fails(
            "breaker.state is not open",
            "holds = \"open\"\nfails = \"closed\"",
            "at holds = open",
        );
        holds("failover_on_429 is false", "holds = false\nfails = true");
        let codes =
            "holds = { \"x:tokens\" = 51, other = 49 }\nfails = { tokens = 49, other = 51 }";
        holds("error_codes matching /tokens/ > 50% for 3s", codes);
        fails(
            "error_codes matching /tokens/ > 60%",
            codes,
            "at holds = { other = 49, x:tokens = 51 }",
        );
    }

    #[test]
    fn what_cannot_be_pinned_says_so() {
        let text = "runbook = \"x\"\n[[pin]]\nevidence = \"e\"\nholds = 2\nfails = 1";
        let tests = TestFile::read("x.test.toml", text).expect(text);
        let pin = tests.pins().expect(text).remove(0);
        let long = Predicate::parse("queue_depth[1m] > queue_depth@10s").expect("a predicate");
        let error = pin.check(&long).expect_err("its windows overlap");
        assert!(error.starts_with("x.test.toml:3: `queue_depth[1m]"), "{error}");
        let typo = text.replace("fails = 1", "fails = 1\ngiven = { queue_deep = 1 }");
        let tests = TestFile::read("x.test.toml", &typo).expect(&typo);
        assert!(tests.pins().expect_err("no signal").contains("`queue_deep` is no signal"));
    }
}

//! Decides whether a flip had the effect that its plan promised, from what is read afterwards.
//!
//! A 200 from the store verifies nothing: what counts is that every instance uses the value and
//! that the signals follow. Where a store does not tell what the instances use, an effect that was not
//! there before is all that can be seen, and is said as that. Pure; fed with each snapshot and table, `now` last. The answer is
//! final once given: later trouble is a new incident, not a failed flip.

use std::sync::Arc;
use std::time::Duration;

use crate::admission::{Direction, FlagValue};
use crate::signal::{Mono, Snapshot};

use super::condition::{Condition, all};
use super::interlock::{AMPLIFICATION_CALM, is_admission_strength};
use super::types::{FlagTable, Plan, PlannedChange};

/// How long after the flip the effect may take to show.
pub const WITHIN: Duration = Duration::from_mins(2);
/// How long it must be seen without a break.
pub const HOLD: Duration = Duration::from_secs(10);
/// Longest gap between two looks that still counts as "without a break".
const GAP_MAX: Duration = Duration::from_secs(5);
/// What waited, or was on its way, before the flip is none of its harm.
const SETTLES: Duration = Duration::from_secs(10);
/// The gate drops what is too old at its next look, not at the very instant.
const QUEUE_AGE_SLACK_S: f64 = 0.5;

/// How a verification stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Not decided.
    Pending {
        /// Time until it must be.
        left: Duration,
    },
    /// The effect is there.
    Verified,
    /// The effect is there, and the store does not tell what the instances use.
    EffectSeen {
        /// What is known, part by part.
        known: String,
    },
    /// The effect is not there.
    Failed {
        /// Which condition, and what was seen.
        why: String,
    },
    /// It could not be seen. Hold, and ask a person.
    Unknown {
        /// What was missing.
        why: String,
    },
}

impl Progress {
    /// The word used on screen and in the journal.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "pending",
            Self::Verified => "verified",
            Self::EffectSeen { .. } => "effect-seen",
            Self::Failed { .. } => "failed",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// What a flip must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// A safer flip cures: the conditions become true and stay so for [`HOLD`].
    Reach,
    /// A riskier flip must not harm: the conditions are never false until the deadline.
    Keep,
}

/// The verification of one flip.
#[derive(Clone, Debug)]
pub struct Verify {
    goal: Goal,
    conditions: Vec<Condition>,
    stored: Vec<(String, FlagValue)>,
    effective: Option<bool>,
    /// Whether the store still has the values, as last read.
    is_stored: Option<bool>,
    /// The store was read, and tells of none of the flags what the instances use.
    is_untold: bool,
    /// The conditions were seen not to hold: only then is it an effect that they do.
    was_otherwise: bool,
    since: Mono,
    deadline: Mono,
    held_since: Option<Mono>,
    last_look: Mono,
    decided: Option<Progress>,
}

impl Verify {
    /// What `plan` must show, counted from the instant at which it was stored.
    #[must_use]
    pub fn of(plan: &Plan, since: Mono) -> Self {
        Self::of_changes(&plan.changes, since)
    }

    pub(super) fn of_changes(changes: &[PlannedChange], since: Mono) -> Self {
        let risky = changes.iter().any(|change| change.direction == Direction::Riskier);
        let mut conditions: Vec<Condition> = Vec::new();
        for condition in changes.iter().filter_map(condition) {
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
        Self {
            goal: if risky { Goal::Keep } else { Goal::Reach },
            conditions,
            stored: changes.iter().map(|change| (change.key.clone(), change.to.clone())).collect(),
            effective: None,
            is_stored: None,
            is_untold: false,
            was_otherwise: false,
            since,
            deadline: since + WITHIN,
            held_since: None,
            last_look: since,
            decided: None,
        }
    }

    /// What is checked, in words, before anything is done: what holds already proves nothing later.
    #[must_use]
    pub(super) fn planned(&self, scopes: &[Arc<Snapshot>]) -> String {
        let is_reached = self.goal == Goal::Reach && !self.conditions.is_empty();
        let holds = all(self.conditions.iter().map(|condition| condition.ask(scopes).holds));
        if is_reached && holds == Some(true) {
            return format!("{}; it holds already, so look at who is served", self.text());
        }
        self.text()
    }

    /// What is checked, in words.
    #[must_use]
    pub fn text(&self) -> String {
        let within = WITHIN.as_secs();
        if self.conditions.is_empty() {
            return format!("effective on every instance within {within} s");
        }
        let conditions =
            self.conditions.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        match self.goal {
            Goal::Reach => {
                let hold = HOLD.as_secs();
                format!("effective everywhere, {conditions} for {hold} s within {within} s")
            }
            Goal::Keep => {
                let settles = SETTLES.as_secs();
                format!("effective everywhere, {conditions} from {settles} s on, for {within} s")
            }
        }
    }

    /// When an answer is due.
    #[must_use]
    pub const fn deadline(&self) -> Mono {
        self.deadline
    }

    /// Looks at what was just read; `table` when the flags were read too. Call it at least every
    /// few seconds: a gap starts the holding time anew.
    pub fn step(
        &mut self,
        scopes: &[Arc<Snapshot>],
        table: Option<&FlagTable>,
        now: Mono,
    ) -> Progress {
        if let Some(decided) = &self.decided {
            return decided.clone();
        }
        if let Some(table) = table {
            self.effective = effective(&self.stored, table);
            self.is_stored = is_stored(&self.stored, table);
            self.is_untold = self
                .stored
                .iter()
                .all(|(key, _)| table.get(key).is_some_and(|flag| flag.effective.is_empty()));
        }
        if now.saturating_since(self.last_look) > GAP_MAX {
            self.held_since = None;
        }
        self.last_look = now;
        let progress = self.judge(scopes, now);
        if !matches!(progress, Progress::Pending { .. }) {
            self.decided = Some(progress.clone());
        }
        progress
    }

    fn judge(&mut self, scopes: &[Arc<Snapshot>], now: Mono) -> Progress {
        let findings: Vec<(String, Option<bool>)> = self
            .conditions
            .iter()
            .map(|condition| {
                let finding = condition.ask(scopes);
                // Where nothing is sent nothing is sent twice: the condition is met, not unknown.
                let is_idle = finding.holds.is_none()
                    && condition.signal == "amplification"
                    && Condition::at_most("attempts_rps", 0.0).ask(scopes).holds == Some(true);
                if is_idle {
                    return (format!("{condition}: no attempts are made"), Some(true));
                }
                (format!("{condition}: {}", finding.seen), finding.holds)
            })
            .collect();
        let signals = all(findings.iter().map(|(_, holds)| *holds));
        self.was_otherwise |= signals == Some(false);
        let has_effect = !self.conditions.is_empty();
        let everything = match self.is_untold {
            true if has_effect => all([signals, self.is_stored]),
            true => None,
            false => all([signals, self.effective]),
        };
        let late = now >= self.deadline;
        let pending = Progress::Pending { left: self.deadline.saturating_since(now) };
        let why = |wanted: Option<bool>| {
            let finding = findings.iter().find(|(_, holds)| *holds == wanted);
            let text = finding.map(|(text, _)| text.as_str());
            if self.is_untold {
                let seen = findings.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>();
                return known(self.is_stored, &seen.join(" and "));
            }
            text.map_or_else(|| effective_text(self.effective), str::to_owned)
        };
        let settled = now.saturating_since(self.since) >= SETTLES;
        if self.goal == Goal::Keep && signals == Some(false) && settled {
            return Progress::Failed { why: why(Some(false)) };
        }
        match everything {
            Some(true) => {
                let since = *self.held_since.get_or_insert(now);
                let long_enough = match self.goal {
                    Goal::Reach => now.saturating_since(since) >= HOLD,
                    Goal::Keep => late,
                };
                match (long_enough, self.is_untold) {
                    (false, _) => pending,
                    (true, false) => Progress::Verified,
                    // No harm is all that a riskier flip has to show, and that holds before it too.
                    (true, true) if self.was_otherwise || self.goal == Goal::Keep => {
                        Progress::EffectSeen { known: why(Some(true)) }
                    }
                    (true, true) => {
                        let known = why(Some(true));
                        Progress::Unknown { why: format!("{known}, as before the flip already") }
                    }
                }
            }
            Some(false) if late => Progress::Failed { why: why(Some(false)) },
            None if late => Progress::Unknown { why: why(None) },
            _ => {
                self.held_since = None;
                pending
            }
        }
    }
}

fn effective_text(effective: Option<bool>) -> String {
    match effective {
        Some(true) => "effective on every instance",
        Some(false) => "an instance still uses another value",
        None => "what the instances use is unknown",
    }
    .to_owned()
}

/// What is known of a flip whose store does not tell what the instances use.
fn known(is_stored: Option<bool>, seen: &str) -> String {
    let stored = match is_stored {
        Some(true) => "yes",
        Some(false) => "no longer",
        None => "not read",
    };
    let effect = if seen.is_empty() { "no signal shows this flag's" } else { seen };
    format!("stored: {stored}; effective: not told by this store; effect: {effect}")
}

/// Whether the store has every value.
fn is_stored(wanted: &[(String, FlagValue)], table: &FlagTable) -> Option<bool> {
    all(wanted.iter().map(|(key, value)| Some(table.get(key)?.stored() == value)))
}

/// Whether every instance uses every value. Unknown where the store does not tell.
fn effective(wanted: &[(String, FlagValue)], table: &FlagTable) -> Option<bool> {
    all(wanted.iter().map(|(key, value)| {
        let flag = table.get(key)?;
        if flag.effective.is_empty() {
            return None;
        }
        Some(flag.effective.values().all(|effective| effective == value))
    }))
}

/// What one change must show in the signals, if anything can be said.
fn condition(change: &PlannedChange) -> Option<Condition> {
    let key = change.key.as_str();
    if is_admission_strength(key) || key.starts_with("retry.") {
        return Some(Condition::below("amplification", AMPLIFICATION_CALM));
    }
    match (key, &change.to) {
        ("queue.max_age_s", FlagValue::Number(age_s)) => {
            Some(Condition::at_most("queue_oldest_age_s", age_s + QUEUE_AGE_SLACK_S))
        }
        ("queue.max_depth", FlagValue::Number(depth)) => {
            Some(Condition::at_most("queue_depth", *depth))
        }
        ("admission.max_in_flight", FlagValue::Number(permits)) => {
            Some(Condition::at_most("inflight_actual", *permits))
        }
        ("lane.batch.enabled", FlagValue::Bool(false)) => {
            Some(Condition::at_most("batch_queue_depth", 0.0))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{calm_but, scope, table};
    use super::super::plan::{Evidence, Terms, plan, wanted};
    use super::*;

    fn verify(words: &[&str], overrides: &[(&str, &str)]) -> Verify {
        let changes = wanted(words).expect("a test names real flags");
        let evidence = Evidence::default();
        let plan = plan("t", &table(overrides), &changes, &evidence, Terms::default());
        Verify::of(&plan.expect("a plan"), Mono::START)
    }

    /// Steps once a second with the amplification of that second, until it is decided.
    fn run(
        verify: &mut Verify,
        after: &FlagTable,
        seen: impl Fn(u64) -> Option<f64>,
    ) -> (u64, Progress) {
        for second in 0..=200 {
            let signals = seen(second).map(|value| ("amplification", value));
            let scopes = [scope(signals.as_slice())];
            let now = Mono::from_start(Duration::from_secs(second));
            let progress = verify.step(&scopes, Some(after), now);
            if !matches!(progress, Progress::Pending { .. }) {
                return (second, progress);
            }
        }
        panic!("never decided")
    }

    const OFF: &[(&str, &str)] = &[("admission.mode", "off")];

    #[test]
    fn a_check_that_holds_before_the_flip_says_so() {
        let off = table(&[("admission.mode", "off")]);
        let words = |number| {
            let scopes = [calm_but("amplification", number)];
            let evidence = Evidence { scopes: &scopes, ..Evidence::default() };
            let changes = wanted(&["admission.mode=enforce"]).expect("a flag");
            plan("t", &off, &changes, &evidence, Terms::default()).expect("a plan").verify
        };
        assert!(words(Some(1.0)).ends_with("it holds already, so look at who is served"));
        assert!(!words(Some(2.0)).contains("already"));
        assert!(!words(None).contains("already"), "unknown is not so");
    }

    #[test]
    fn a_cure_must_hold_without_a_break() {
        let mut flip = verify(&["admission.mode=enforce"], OFF);
        let seen = |second| Some(if second < 5 || second == 9 { 9.3 } else { 1.0 });
        assert_eq!(run(&mut flip, &table(&[]), seen), (20, Progress::Verified));
    }

    #[test]
    fn a_cure_that_does_not_come_has_failed_and_says_what_was_seen() {
        let mut flip = verify(&["admission.mode=enforce"], OFF);
        let (second, progress) = run(&mut flip, &table(&[]), |_| Some(9.3));
        assert_eq!(second, 120);
        let why = "amplification < 1.1: 9.30".to_owned();
        assert_eq!(progress, Progress::Failed { why });
    }

    /// A table of a store that does not tell what the instances use.
    fn untold(overrides: &[(&str, &str)]) -> FlagTable {
        let mut table = table(overrides);
        table.flags.iter_mut().for_each(|flag| flag.effective.clear());
        table
    }

    #[test]
    fn where_a_store_tells_no_instances_the_effect_is_said_for_what_it_is() {
        const UNTOLD: &str = "effective: not told by this store; effect: ";
        let ends = |after: &FlagTable, seen: fn(u64) -> Option<f64>| {
            let mut flip = verify(&["admission.mode=enforce"], OFF);
            let (second, progress) = run(&mut flip, after, seen);
            let said = match &progress {
                Progress::EffectSeen { known: said }
                | Progress::Failed { why: said }
                | Progress::Unknown { why: said } => said.clone(),
                other => panic!("{other:?}: nobody has told that it is in use"),
            };
            (second, progress.word(), said)
        };
        let said = |stored: &str, effect: &str| format!("stored: {stored}; {UNTOLD}{effect}");
        let cured = |second| Some(if second < 5 { 9.3 } else { 1.0 });
        let seen = said("yes", "amplification < 1.1: 1.00");
        assert_eq!(ends(&untold(&[]), cured), (15, "effect-seen", seen.clone()));
        let proves_nothing = format!("{seen}, as before the flip already");
        assert_eq!(ends(&untold(&[]), |_| Some(1.0)), (10, "unknown", proves_nothing));
        let no_effect = said("yes", "amplification < 1.1: 9.30");
        assert_eq!(ends(&untold(&[]), |_| Some(9.3)), (120, "failed", no_effect));
        let (second, word, unseen) = ends(&untold(&[]), |_| None);
        assert_eq!((second, word), (120, "unknown"));
        assert!(unseen.starts_with(&said("yes", "amplification < 1.1: ")), "{unseen}");
        let (second, word, gone) = ends(&untold(OFF), cured);
        assert_eq!((second, word), (120, "failed"));
        assert!(gone.starts_with("stored: no longer; "), "{gone}");
    }

    #[test]
    fn a_riskier_flip_that_nobody_tells_of_has_shown_no_harm_and_is_not_verified() {
        let mut up = verify(&["retry.max_attempts=3"], &[]);
        let after = untold(&[("retry.max_attempts", "3")]);
        let (second, progress) = run(&mut up, &after, |_| Some(1.0));
        assert_eq!((second, progress.word()), (120, "effect-seen"));
    }

    #[test]
    fn a_flag_that_neither_store_nor_signal_shows_says_both() {
        let mut cap = verify(&["tenant.cap_ratio=0.5"], &[]);
        let (second, progress) = run(&mut cap, &untold(&[("tenant.cap_ratio", "0.5")]), |_| None);
        let why =
            "stored: yes; effective: not told by this store; effect: no signal shows this flag's";
        assert_eq!((second, progress), (120, Progress::Unknown { why: why.to_owned() }));
    }

    #[test]
    fn no_signals_is_unknown_and_not_failed() {
        let mut flip = verify(&["admission.mode=enforce"], OFF);
        let (second, progress) = run(&mut flip, &table(&[]), |_| None);
        assert_eq!((second, progress.word()), (120, "unknown"));
    }

    #[test]
    fn a_lagging_instance_keeps_it_from_being_verified() {
        let mut flip = verify(&["admission.mode=enforce"], OFF);
        let (second, progress) = run(&mut flip, &table(OFF), |_| Some(1.0));
        let why = "an instance still uses another value".to_owned();
        assert_eq!((second, progress), (120, Progress::Failed { why }));
    }

    #[test]
    fn a_riskier_flip_fails_at_the_first_harm() {
        let up = &["retry.max_attempts=3"];
        let after = table(&[("retry.max_attempts", "3")]);
        let harmed = |second| Some(if second < 30 { 1.0 } else { 1.2 });
        let (second, progress) = run(&mut verify(up, &[]), &after, harmed);
        assert_eq!((second, progress.word()), (30, "failed"));
        let calm = run(&mut verify(up, &[]), &after, |_| Some(1.0));
        assert_eq!(calm, (120, Progress::Verified));
    }

    #[test]
    fn what_waited_before_a_riskier_flip_is_none_of_its_harm() {
        let up = &["retry.max_attempts=3"];
        let after = table(&[("retry.max_attempts", "3")]);
        let from_before = |second| Some(if second < 10 { 9.0 } else { 1.0 });
        assert_eq!(run(&mut verify(up, &[]), &after, from_before), (120, Progress::Verified));
        let lasting = |_| Some(9.0);
        let (second, progress) = run(&mut verify(up, &[]), &after, lasting);
        assert_eq!((second, progress.word()), (10, "failed"));
    }

    #[test]
    fn nothing_sent_is_nothing_sent_twice_and_unknown_stays_unknown() {
        let ends = |attempts: &[(&str, f64)]| {
            let mut flip = verify(&["admission.mode=enforce"], OFF);
            let end = (0..=200).find_map(|second| {
                let now = Mono::from_start(Duration::from_secs(second));
                let progress = flip.step(&[scope(attempts)], Some(&table(&[])), now);
                (!matches!(progress, Progress::Pending { .. })).then(|| progress.word())
            });
            end.expect("it is decided")
        };
        assert_eq!(ends(&[("attempts_rps", 0.0)]), "verified");
        assert_eq!(ends(&[("attempts_rps", 3.0)]), "unknown");
        assert_eq!(ends(&[]), "unknown");
    }

    #[test]
    fn a_gap_between_looks_starts_the_holding_time_anew() {
        let mut flip = verify(&["admission.mode=enforce"], OFF);
        let scopes = [scope(&[("amplification", 1.0)])];
        let mut look = |second| {
            flip.step(&scopes, Some(&table(&[])), Mono::from_start(Duration::from_secs(second)))
        };
        for second in [0, 5, 9, 15, 20] {
            assert_eq!(look(second).word(), "pending", "at {second} s");
        }
        assert_eq!(look(25), Progress::Verified);
    }

    #[test]
    fn other_flags_are_verified_by_what_they_bound() {
        let check = |word: &str, expected: &str| {
            assert!(verify(&[word], &[]).text().contains(expected), "{word}");
        };
        check("queue.max_age_s=2", "queue_oldest_age_s <= 2.5 for 10 s");
        check("queue.max_depth=100", "queue_depth <= 100");
        check("lane.batch.enabled=false", "batch_queue_depth <= 0");
        check("tenant.cap_ratio=0.5", "effective on every instance within 120 s");
    }
}

//! Which changes must wait for what: the rules that keep a rollback from bringing the storm back.
//!
//! Pure: table and signals in, guards out. The gate enforces the same rules; both ends use this.
//! Thresholds are those of the flag research, R14 (`research/runbooks.md`).

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::admission::{Direction, FlagValue};
use crate::diagnosis::{STALE_AFTER_S, Standing, complete};
use crate::signal::Snapshot;

use super::condition::{Condition, all};
use super::plan::Evidence;
use super::types::{FlagTable, Guard, PlannedChange};

/// Attempts per original above which something still retries what it should not.
pub const AMPLIFICATION_CALM: f64 = 1.1;
/// Offered requests per original above which the layers above still repeat.
pub const CLIENT_MULTIPLICATION_CALM: f64 = 1.3;
/// Seconds for which both must have been below: longer than the longest waits of measured retry
/// policies, which is when a storm that only paused comes back.
const CALM_FOR_S: f64 = 300.0;
/// Share of each meter that must be free before the gate lets more through.
const HEADROOM_FREE: f64 = 0.15;
/// A step down has to prove itself for so long before the next: as long as the calm before the first.
const BAKE_S: i64 = 300;
/// Enforced share below which a step may go to nothing.
const LAST_STEP: f64 = 0.25;
/// Share of the token meter that stands in for a demand that is not known.
const HALF_FREE: f64 = 0.5;
/// Tries per original that count as capped: one retry.
const CAPPED_ATTEMPTS_MAX: f64 = 2.0;
/// Tries that one flip may add.
const ATTEMPTS_STEP_MAX: f64 = 1.0;
/// Offered originals over the quota, of either meter: at 1 the provider would refuse without a gate.
const DEMAND_WHOLE: f64 = 1.0;
/// Causes in which our own gate refuses what the provider would take.
const GATE_IS_ILL: [&str; 3] = ["gate-refuses-wrongly", "leaked-permits", "limiter-store-fault"];

/// Whether a cause is one in which our own gate refuses what the provider would take.
#[must_use]
pub fn is_ill_gate(cause: &str) -> bool {
    GATE_IS_ILL.contains(&cause)
}

/// The cause, when our own gate is the confirmed refuser: then opening it is the cure.
pub(super) fn ill_gate<'a>(evidence: &Evidence<'a>) -> Option<&'a str> {
    let suspected = suspected_gate(evidence);
    suspected.filter(|(_, standing)| *standing == Standing::Confirmed).map(|(cause, _)| cause)
}

/// The cause and how sure it is, when our own gate may be the refuser.
fn suspected_gate<'a>(evidence: &Evidence<'a>) -> Option<(&'a str, Standing)> {
    let verdict = evidence.verdict.filter(|verdict| verdict.standing >= Standing::Likely)?;
    let cause = verdict.cause.as_str();
    GATE_IS_ILL.contains(&cause).then_some((cause, verdict.standing))
}

/// The interlocks that these changes meet. An empty list means that none applies.
#[must_use]
pub fn interlocks(
    changes: &[PlannedChange],
    table: &FlagTable,
    evidence: &Evidence<'_>,
) -> Vec<Guard> {
    let scopes: Vec<Arc<Snapshot>> =
        evidence.scopes.iter().map(|scope| Arc::new(complete(scope).snapshot)).collect();
    let scopes = scopes.as_slice();
    let after = After { changes, table };
    let riskier = |wanted: fn(&str) -> bool| {
        changes.iter().any(|change| change.direction == Direction::Riskier && wanted(&change.key))
    };
    let mut guards = Vec::new();
    if riskier(is_admission_strength) {
        guards.extend(match suspected_gate(evidence) {
            Some((cause, standing)) if only_to_shadow(changes) => {
                opening_an_ill_gate(&after, scopes, cause, standing)
            }
            _ => {
                let mut guards = lowering_admission(&after, scopes);
                guards.extend(one_step_at_a_time(&after, evidence.now));
                guards
            }
        });
    }
    if riskier(|key| key.starts_with("retry.")) {
        guards.extend(raising_retries(&after));
    }
    if changes.iter().any(|change| change.key == "admission.mode" && is_word("enforce", &change.to))
    {
        guards.push(quota_known(scopes));
    }
    guards
}

/// The flags that say how much of the traffic admission decides about.
pub(super) fn is_admission_strength(key: &str) -> bool {
    matches!(key, "admission.mode" | "admission.enforced_ratio")
}

/// Whether admission is only told to count and to refuse nobody.
fn only_to_shadow(changes: &[PlannedChange]) -> bool {
    let mut down = changes.iter().filter(|change| {
        change.direction == Direction::Riskier && is_admission_strength(&change.key)
    });
    down.all(|change| change.key == "admission.mode" && is_word("shadow", &change.to))
}

/// The gate refuses what the provider would take: callers who repeat its refusals are a reason to open
/// it, and none to wait. What must hold is that the provider is not overrun afterwards.
fn opening_an_ill_gate(
    after: &After,
    scopes: &[Arc<Snapshot>],
    cause: &str,
    standing: Standing,
) -> Vec<Guard> {
    let is_confirmed = standing == Standing::Confirmed;
    // Confirmation comes within seconds, or not at all.
    let wait = if is_confirmed { "" } else { ", wait until it is confirmed" };
    let mut guards = vec![Guard {
        text: format!("our own gate is the confirmed refuser: {cause} {standing}{wait}"),
        holds: Some(is_confirmed),
    }];
    guards.extend(retries_are_capped(after));
    guards.push(tokens_fit(scopes));
    guards.push(ask_of_last(&Condition::below("rpm_demand_ratio", DEMAND_WHOLE), scopes));
    guards
}

/// How large requests are is not known while a gate lets none through; a meter that was half free when
/// the provider last answered is then what there is. Since then it was filled up and not used, by us.
fn tokens_fit(scopes: &[Arc<Snapshot>]) -> Guard {
    let asked_for = ask(&Condition::below("tpm_demand_ratio", DEMAND_WHOLE), scopes);
    if asked_for.holds.is_some() {
        return asked_for;
    }
    let free = ask_of_last(&Condition::above("tpm_headroom", HALF_FREE), scopes);
    Guard { text: format!("{}, in place of {}", free.text, asked_for.text), holds: free.holds }
}

fn demand_is_below_quota(scopes: &[Arc<Snapshot>]) -> impl Iterator<Item = Guard> {
    ["tpm_demand_ratio", "rpm_demand_ratio"]
        .map(|signal| ask(&Condition::below(signal, DEMAND_WHOLE), scopes))
        .into_iter()
}

fn retries_are_capped(after: &After) -> [Guard; 2] {
    [
        Guard {
            text: format!(
                "retry.max_attempts is at most {CAPPED_ATTEMPTS_MAX}, stored and effective: {}",
                after.shown("retry.max_attempts")
            ),
            holds: after.everywhere(
                "retry.max_attempts",
                |value| matches!(value, FlagValue::Number(n) if *n <= CAPPED_ATTEMPTS_MAX),
            ),
        },
        Guard {
            text: format!(
                "the gateway owns the retries, stored and effective: {}",
                after.shown("retry.owner")
            ),
            holds: after.everywhere("retry.owner", |value| is_word("gateway", value)),
        },
    ]
}

fn lowering_admission(after: &After, scopes: &[Arc<Snapshot>]) -> Vec<Guard> {
    let mut guards = Vec::from(retries_are_capped(after));
    let conditions = [
        Condition::below("amplification", AMPLIFICATION_CALM),
        Condition::below("client_multiplication", CLIENT_MULTIPLICATION_CALM),
        Condition::at_least("calm_s", CALM_FOR_S),
        Condition::above("tpm_headroom", HEADROOM_FREE),
        Condition::above("rpm_headroom", HEADROOM_FREE),
    ];
    guards.extend(conditions.iter().map(|condition| ask(condition, scopes)));
    guards.extend(demand_is_below_quota(scopes));
    let half_age = after.number("queue.max_age_s").map(|age_s| age_s / 2.0);
    guards.push(match half_age {
        Some(bound) => ask(&Condition::at_most("queue_oldest_age_s", bound), scopes),
        None => Guard { text: "queue.max_age_s is not in the table".to_owned(), holds: None },
    });
    guards
}

/// A rollback freezes the adaptive rate, goes 1, 0.5, 0.25, 0, with time to see each step's effect, and
/// switches off last.
fn one_step_at_a_time(after: &After, now: Option<DateTime<Utc>>) -> Vec<Guard> {
    const RATIO: &str = "admission.enforced_ratio";
    let mut guards = Vec::new();
    for change in after.changes.iter().filter(|change| change.direction == Direction::Riskier) {
        match (change.key.as_str(), &change.from, &change.to) {
            (RATIO, FlagValue::Number(from), FlagValue::Number(to)) => guards.push(Guard {
                text: format!(
                    "{RATIO} goes down by half a step, to 0 from {LAST_STEP}: {from} to {to}"
                ),
                holds: Some(*to >= from / 2.0 || *from <= LAST_STEP),
            }),
            ("admission.mode", ..) => guards.push(Guard {
                text: format!(
                    "{RATIO} is at most {LAST_STEP}, stored and effective: {}",
                    after.shown(RATIO)
                ),
                holds: after.everywhere(
                    RATIO,
                    |value| matches!(value, FlagValue::Number(ratio) if *ratio <= LAST_STEP),
                ),
            }),
            _ => {}
        }
    }
    // A rate that adapts meanwhile hides what a step does.
    guards.push(Guard {
        text: format!(
            "adaptive.enabled is false, stored and effective: {}",
            after.shown("adaptive.enabled")
        ),
        holds: after
            .everywhere("adaptive.enabled", |value| matches!(value, FlagValue::Bool(false))),
    });
    let last = [RATIO, "admission.mode"]
        .into_iter()
        .filter_map(|key| after.table.get(key)?.at.map(|at| (key, at)))
        .max_by_key(|(_, at)| *at);
    guards.extend(last.map(|(key, at)| {
        let age = now.map(|now| (now - at).num_seconds().max(0));
        let seen = age.map_or_else(|| "unknown".to_owned(), |age_s| format!("{age_s} s ago"));
        Guard {
            text: format!("the last step is {BAKE_S} s old or more: {key}, {seen}"),
            holds: age.map(|age_s| age_s >= BAKE_S),
        }
    }));
    guards
}

fn raising_retries(after: &After) -> Vec<Guard> {
    let mut guards = vec![Guard {
        text: format!(
            "admission.mode is enforce, stored and effective: {}",
            after.shown("admission.mode")
        ),
        holds: after.everywhere("admission.mode", |value| is_word("enforce", value)),
    }];
    let step = after.changes.iter().find_map(|change| match (&change.from, &change.to) {
        (FlagValue::Number(from), FlagValue::Number(to)) if change.key == "retry.max_attempts" => {
            Some(to - from)
        }
        _ => None,
    });
    guards.extend(step.map(|step| Guard {
        text: format!("retry.max_attempts rises by at most {ATTEMPTS_STEP_MAX} a flip: {step:+}"),
        holds: Some(step <= ATTEMPTS_STEP_MAX),
    }));
    guards
}

/// Enforcing with an unknown quota works on configured limits alone; that deserves a warning and
/// no more, since it is the safe direction.
fn quota_known(scopes: &[Arc<Snapshot>]) -> Guard {
    let known = |signal: &str| {
        !scopes.is_empty() && scopes.iter().all(|scope| scope.number(signal).is_some())
    };
    let holds = (known("tpm_headroom") && known("rpm_headroom")).then_some(true);
    Guard { text: "the provider's token and request quota is known".to_owned(), holds }
}

fn ask(condition: &Condition, scopes: &[Arc<Snapshot>]) -> Guard {
    let finding = condition.ask(scopes);
    Guard { text: format!("{condition}: {}", finding.seen), holds: finding.holds }
}

/// A gate that lets nothing through hears nothing new of limits and meters.
fn ask_of_last(condition: &Condition, scopes: &[Arc<Snapshot>]) -> Guard {
    let finding = condition.ask_of_last(scopes, STALE_AFTER_S);
    Guard { text: format!("{condition}: {}", finding.seen), holds: finding.holds }
}

fn is_word(word: &str, value: &FlagValue) -> bool {
    matches!(value, FlagValue::Word(is) if is == word)
}

/// The table as it will be once the changes are stored.
struct After<'a> {
    changes: &'a [PlannedChange],
    table: &'a FlagTable,
}

impl After<'_> {
    fn planned(&self, key: &str) -> Option<&FlagValue> {
        self.changes.iter().find(|change| change.key == key).map(|change| &change.to)
    }

    fn value(&self, key: &str) -> Option<&FlagValue> {
        self.planned(key).or_else(|| self.table.get(key).map(super::FlagState::stored))
    }

    fn number(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            FlagValue::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn shown(&self, key: &str) -> String {
        self.value(key).map_or_else(|| "unknown".to_owned(), ToString::to_string)
    }

    /// Whether the value fits in the store and on every instance. What this very plan sets counts
    /// as it will be stored, because all or none of it is.
    fn everywhere(&self, key: &str, fits: impl Fn(&FlagValue) -> bool) -> Option<bool> {
        if let Some(value) = self.planned(key) {
            return Some(fits(value));
        }
        let flag = self.table.get(key)?;
        let told = !flag.effective.is_empty();
        let effective = told.then(|| flag.effective.values().all(&fits));
        all([Some(fits(flag.stored())), effective])
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{calm, calm_but, scope, table, value};
    use super::super::plan::{Terms, plan, wanted};
    use super::*;
    use crate::diagnosis::Verdict;
    use chrono::TimeDelta;

    fn refused(words: &[&str], table: &FlagTable, scopes: &[Arc<Snapshot>]) -> Option<String> {
        let changes = wanted(words).expect("a test names real flags");
        let evidence = Evidence { scopes, verdict: None, now: None };
        let plan = plan("t", table, &changes, &evidence, Terms::default()).expect("a plan");
        plan.refused().map(|guard| guard.text.clone())
    }

    #[test]
    fn admission_goes_down_only_when_every_guard_holds() {
        let check = |name: &'static str, number: Option<f64>, expected: Option<&str>| {
            for down in ["admission.mode=off", "admission.mode=shadow"] {
                let last =
                    table(&[("admission.enforced_ratio", "0.25"), ("adaptive.enabled", "false")]);
                let refused = refused(&[down], &last, &[calm_but(name, number)]);
                let matches = match (&refused, expected) {
                    (Some(text), Some(part)) => text.contains(part),
                    (None, None) => true,
                    _ => false,
                };
                assert!(matches, "{down} with {name} {number:?}: {refused:?}");
            }
        };
        check("amplification", Some(1.09), None);
        check("amplification", Some(1.1), Some("amplification < 1.1: 1.10"));
        check("amplification", None, Some("amplification < 1.1: unknown"));
        check("client_multiplication", Some(1.3), Some("client_multiplication"));
        check("tpm_headroom", Some(0.151), None);
        check("tpm_headroom", Some(0.15), Some("tpm_headroom > 0.15"));
        check("rpm_headroom", None, Some("rpm_headroom"));
        check("calm_s", Some(299.0), Some("calm_s >= 300"));
        check("calm_s", None, Some("calm_s >= 300: unknown"));
        check("tpm_demand_ratio", Some(1.2), Some("tpm_demand_ratio < 1"));
        check("rpm_demand_ratio", None, Some("rpm_demand_ratio < 1: unknown"));
        check("queue_oldest_age_s", Some(5.0), None);
        check("queue_oldest_age_s", Some(5.1), Some("queue_oldest_age_s <= 5"));
    }

    #[test]
    fn the_same_holds_for_a_smaller_enforced_share() {
        let storm = calm_but("amplification", Some(9.3));
        let down = ["admission.enforced_ratio=0.5"];
        assert!(refused(&down, &table(&[]), std::slice::from_ref(&storm)).is_some());
        let lowered = table(&[("admission.enforced_ratio", "0.5")]);
        assert_eq!(refused(&["admission.enforced_ratio=1"], &lowered, &[storm]), None);
    }

    #[test]
    fn without_signals_the_safe_direction_stays_open_and_the_other_shut() {
        assert!(refused(&["admission.mode=off"], &table(&[]), &[]).is_some());
        let off = table(&[("admission.mode", "off")]);
        assert_eq!(refused(&["admission.mode=enforce"], &off, &[]), None);
    }

    #[test]
    fn a_rollback_takes_half_steps_and_waits_after_each() {
        let minutes_ago =
            |minutes: i64| Some(DateTime::UNIX_EPOCH + TimeDelta::minutes(60 - minutes));
        let refused = |change: &str, ratio: &str, changed_at| {
            let mut table =
                table(&[("admission.enforced_ratio", ratio), ("adaptive.enabled", "false")]);
            let flag = table.flags.iter_mut().find(|flag| flag.key == "admission.enforced_ratio");
            flag.expect("in the table").at = changed_at;
            let scopes = [calm_but("amplification", Some(1.0))];
            let evidence = Evidence { scopes: &scopes, verdict: None, now: minutes_ago(0) };
            let changes = wanted(&[change]).expect("a flag");
            let plan = plan("t", &table, &changes, &evidence, Terms::default()).expect("a plan");
            plan.refused().map(|guard| guard.text.clone())
        };
        for (change, ratio) in [
            ("admission.enforced_ratio=0.5", "1"),
            ("admission.enforced_ratio=0.25", "0.5"),
            ("admission.enforced_ratio=0", "0.25"),
            ("admission.mode=off", "0"),
        ] {
            assert_eq!(refused(change, ratio, minutes_ago(6)), None, "{change} from {ratio}");
            let early = refused(change, ratio, minutes_ago(4)).expect("too early");
            assert!(early.contains("300 s old or more") && early.ends_with("240 s ago"), "{early}");
        }
        for (change, ratio) in [
            ("admission.enforced_ratio=0.25", "1"),
            ("admission.enforced_ratio=0", "0.5"),
            ("admission.mode=off", "1"),
            ("admission.mode=shadow", "0.5"),
        ] {
            let text = refused(change, ratio, minutes_ago(60)).expect("a leap");
            assert!(text.starts_with("admission.enforced_ratio "), "{change} from {ratio}: {text}");
        }
    }

    #[test]
    fn a_rollback_begins_with_a_frozen_rate() {
        let calm = [calm_but("amplification", Some(1.0))];
        let half = ["admission.enforced_ratio=0.5"];
        let text = refused(&half, &table(&[]), &calm).expect("it adapts");
        assert!(text.starts_with("adaptive.enabled is false"), "{text}");
        let frozen = table(&[("adaptive.enabled", "false")]);
        assert_eq!(refused(&half, &frozen, &calm), None);
        let both = ["adaptive.enabled=false", "admission.enforced_ratio=0.5"];
        assert_eq!(refused(&both, &table(&[]), &calm), None, "all of a plan is stored, or none");
    }

    #[test]
    fn an_ill_gate_is_opened_while_callers_repeat_and_never_above_the_quota() {
        let plan_of = |change: &str, cause: &str, standing, demand, overrides: &[(&str, &str)]| {
            let verdict = Verdict { cause: cause.to_owned(), standing, ..Verdict::empty() };
            let mut numbers = calm();
            numbers.extend([
                ("amplification", 3.0),
                ("client_multiplication", 4.0),
                ("calm_s", 0.0),
            ]);
            numbers.insert("tpm_demand_ratio", demand);
            let scopes = [scope(&numbers.into_iter().collect::<Vec<_>>())];
            let evidence = Evidence { scopes: &scopes, verdict: Some(&verdict), now: None };
            let changes = wanted(&[change]).expect("a flag");
            plan("t", &table(overrides), &changes, &evidence, Terms::default()).expect("a plan")
        };
        let refused = |change, cause, standing, demand, overrides: &[(&str, &str)]| {
            plan_of(change, cause, standing, demand, overrides).refused().is_some()
        };
        let shadow = "admission.mode=shadow";
        for cause in GATE_IS_ILL {
            assert!(!refused(shadow, cause, Standing::Confirmed, 0.4, &[]), "{cause}");
        }
        let cause = GATE_IS_ILL[1];
        let nothing_passes = |headroom: f64| {
            let scopes = [scope(&[("tpm_headroom", headroom), ("rpm_demand_ratio", 0.4)])];
            let verdict = Verdict {
                cause: cause.to_owned(),
                standing: Standing::Confirmed,
                ..Verdict::empty()
            };
            let evidence = Evidence { scopes: &scopes, verdict: Some(&verdict), now: None };
            let changes = wanted(&[shadow]).expect("a flag");
            let plan = plan("t", &table(&[]), &changes, &evidence, Terms::default());
            plan.expect("a plan").refused().map(|guard| guard.text.clone())
        };
        assert_eq!(nothing_passes(0.9), None, "sizes are not known, the meter is free");
        let of_old = |age_s: f64| {
            let mut last =
                Snapshot::clone(&scope(&[("tpm_headroom", 0.9), ("rpm_demand_ratio", 0.4)]));
            for reading in last.signals.values_mut() {
                reading.age_s = age_s;
            }
            opening_an_ill_gate(
                &After { changes: &[], table: &table(&[]) },
                &[Arc::new(last)],
                cause,
                Standing::Confirmed,
            )
        };
        assert!(of_old(250.0).iter().all(|guard| guard.holds == Some(true)), "{:?}", of_old(250.0));
        assert!(of_old(301.0).iter().any(|guard| guard.holds.is_none()), "too long ago");
        let text = nothing_passes(0.4).expect("half of it is in use");
        assert!(text.starts_with("tpm_headroom > 0.5: 0.40, in place of tpm_demand"), "{text}");
        assert!(refused(shadow, cause, Standing::Likely, 0.4, &[]), "not proven");
        assert!(refused(shadow, "nested-retries", Standing::Confirmed, 0.4, &[]), "a sound gate");
        assert!(refused(shadow, cause, Standing::Confirmed, 1.1, &[]), "more than the quota");
        assert!(refused("admission.mode=off", cause, Standing::Confirmed, 0.4, &[]), "not counted");
        let clients = [("retry.owner", "client")];
        assert!(refused(shadow, cause, Standing::Confirmed, 0.4, &clients), "a storm behind it");
    }

    #[test]
    fn retries_must_be_owned_and_capped_on_every_instance() {
        let calm = [calm_but("amplification", Some(1.0))];
        let many = table(&[("retry.max_attempts", "3")]);
        let text = refused(&["admission.mode=off"], &many, &calm).expect("three tries");
        assert!(text.starts_with("retry.max_attempts is at most 2"), "{text}");
        let clients = table(&[("retry.owner", "client")]);
        let text = refused(&["admission.mode=off"], &clients, &calm).expect("clients retry");
        assert!(text.starts_with("the gateway owns the retries"), "{text}");
        let mut lagging =
            table(&[("admission.enforced_ratio", "0.25"), ("adaptive.enabled", "false")]);
        assert_eq!(refused(&["admission.mode=off"], &lagging, &calm), None);
        let flag = lagging.flags.iter_mut().find(|flag| flag.key == "retry.max_attempts");
        let effective = &mut flag.expect("in the table").effective;
        effective.insert("gw-2".to_owned(), value("retry.max_attempts", "3"));
        assert!(refused(&["admission.mode=off"], &lagging, &calm).is_some());
    }

    #[test]
    fn retries_rise_one_by_one_and_only_while_admission_enforces() {
        let check = |words: &[&str], overrides: &[(&str, &str)], allowed: bool| {
            let calm = [calm_but("amplification", Some(1.0))];
            let refused = refused(words, &table(overrides), &calm);
            assert_eq!(refused.is_none(), allowed, "{words:?} from {overrides:?}: {refused:?}");
        };
        check(&["retry.max_attempts=3"], &[], true);
        check(&["retry.max_attempts=4"], &[], false);
        check(&["retry.max_attempts=3"], &[("admission.mode", "shadow")], false);
        check(&["retry.owner=client"], &[("admission.mode", "off")], false);
        check(&["retry.budget_ratio=0.5"], &[("admission.mode", "off")], false);
        check(&["retry.max_attempts=1"], &[("admission.mode", "off")], true);
        // One plan may do both, because all of it is stored or none.
        check(
            &["admission.mode=enforce", "retry.max_attempts=3"],
            &[("admission.mode", "off")],
            true,
        );
    }
}

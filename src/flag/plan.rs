//! Builds the plan that is shown before anything is flipped.
//!
//! Pure: table, wanted changes and evidence in, a plan or the reason why there is none out. The
//! request id comes from the caller. A plan never carries itself out; that is [`super::flip`].

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use thiserror::Error;

use crate::admission::{Direction, FlagDef, FlagError, FlagValue, NamedPlan, PLANS, flag};
use crate::diagnosis::Verdict;
use crate::signal::{Mono, Snapshot};

use super::history::UNDO_OF;
use super::interlock::{ill_gate, interlocks};
use super::store::FlagEvent;
use super::types::{Change, FlagState, FlagTable, OnExpire, Plan, PlannedChange};
use super::verify::Verify;
use super::way_back::WayBack;

/// Timer of a riskier flip: unless confirmed again, it goes back.
pub const TTL_RISKY_S: u64 = 15 * 60;
/// Timer of a safer flip: a reminder that it is still in place.
pub const TTL_SAFE_S: u64 = 30 * 60;
/// Longest timer. Whatever must last longer belongs into the configuration.
pub const TTL_S_MAX: u64 = 7 * 24 * 3600;

/// The word that stands for "drop the override" where a value is typed.
const BASE_WORD: &str = "base";

/// What is known while planning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence<'a> {
    /// The newest snapshots, one per quota scope; empty when nothing is known.
    pub scopes: &'a [Arc<Snapshot>],
    /// The verdict on top.
    pub verdict: Option<&'a Verdict>,
    /// The calendar's time, to tell how old the last change is.
    pub now: Option<DateTime<Utc>>,
}

/// What the person or the caller adds to a plan.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Why; `None` is filled in from the verdict, and may end up empty.
    pub reason: Option<String>,
    /// Seconds until the timer; `None` takes the usual one for the plan's direction.
    pub ttl_s: Option<u64>,
    /// A new id, which makes a repeat of the request harmless.
    pub request_id: String,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// No such flag, or not such a value.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// No such named plan.
    #[error("no plan `{name}`; plans are: {known}")]
    UnknownPlan {
        /// What was asked for.
        name: String,
        /// The plans there are.
        known: String,
    },
    /// The store does not have this flag.
    #[error("the store has no flag `{key}`; is the gateway older than this weir?")]
    NotInTable {
        /// The flag.
        key: String,
    },
    /// All of it is as wanted already.
    #[error("nothing to change for `{name}`: every value is as wanted already")]
    NothingToChange {
        /// The plan's name.
        name: String,
    },
    /// One flag twice in one plan.
    #[error("`{key}` is named twice in one plan; which value is meant?")]
    Repeated {
        /// The flag.
        key: String,
    },
    /// A change that cannot be read.
    #[error("`{text}` is no change; write KEY=VALUE, or KEY={BASE_WORD} to drop the override")]
    Shape {
        /// What was given.
        text: String,
    },
    /// A timer out of bounds.
    #[error("a timer runs for 1 to {TTL_S_MAX} seconds, not {ttl_s}")]
    Ttl {
        /// What was given.
        ttl_s: u64,
    },
    /// Somebody changed the flag after the event that is to be undone.
    #[error(
        "event {seq} cannot be undone: {by} has changed `{key}` to {now} since; undo that first"
    )]
    ChangedSince {
        /// The event.
        seq: u64,
        /// The flag.
        key: String,
        /// Who changed it last.
        by: String,
        /// Its stored value.
        now: String,
    },
}

/// How much a person must do before a plan is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// Move to the button and press Enter: every change leads toward safe.
    Enter,
    /// Type this name: a change leads away from safe.
    Type(String),
}

/// What confirming this plan takes.
#[must_use]
pub fn confirmation(plan: &Plan) -> Confirmation {
    let riskier = plan.changes.iter().find(|change| change.direction == Direction::Riskier);
    let named = riskier.map(|change| change.key.as_str());
    match &plan.glass {
        // Not the usual word: nobody passes an interlock out of habit.
        Some(_) => Confirmation::Type(format!("break-glass {}", named.unwrap_or(&plan.name))),
        None => named.map_or(Confirmation::Enter, |key| Confirmation::Type(key.to_owned())),
    }
}

/// Reads changes as typed: `KEY=VALUE`, or `KEY=base` to drop the override.
///
/// # Errors
/// [`PlanError::Shape`] and [`PlanError::Flag`] name the word that does not fit.
pub fn wanted<S: AsRef<str>>(words: &[S]) -> Result<Vec<Change>, PlanError> {
    let read = |word: &S| {
        let text = word.as_ref();
        let (key, value) =
            text.split_once('=').ok_or_else(|| PlanError::Shape { text: text.to_owned() })?;
        let def = flag(key.trim())?;
        let to = match value.trim() {
            BASE_WORD => None,
            value => Some(def.parse(value)?),
        };
        Ok(Change { key: def.key.to_owned(), to })
    };
    words.iter().map(read).collect()
}

/// Plans the wanted changes; those that are in place already are left out.
///
/// # Errors
/// [`PlanError`] when a change does not fit or nothing is left to do.
pub fn plan(
    name: &str,
    table: &FlagTable,
    wanted: &[Change],
    evidence: &Evidence,
    terms: Terms,
) -> Result<Plan, PlanError> {
    let mut seen = BTreeSet::new();
    let mut changes = Vec::new();
    let mut timer_is_safe = true;
    for change in wanted {
        if !seen.insert(&change.key) {
            return Err(PlanError::Repeated { key: change.key.clone() });
        }
        let def = flag(&change.key)?;
        let state = table
            .get(&change.key)
            .ok_or_else(|| PlanError::NotInTable { key: change.key.clone() })?;
        if let Some(planned) = planned(def, state, change)? {
            timer_is_safe &= planned.way_back.leads_back();
            changes.push(planned);
        }
    }
    if changes.is_empty() {
        return Err(PlanError::NothingToChange { name: name.to_owned() });
    }
    let mut plan = Plan {
        name: name.to_owned(),
        revision: table.revision,
        guards: interlocks(&changes, table, evidence),
        reach: reach(&changes, table, evidence.scopes),
        reason: terms.reason.unwrap_or_else(|| evidence.verdict.map_or_else(String::new, reason)),
        verify: Verify::of_changes(&changes, Mono::START).planned(evidence.scopes),
        ttl_s: None,
        // A timer may only ever lead toward the safe end; elsewhere it reminds.
        on_expire: if timer_is_safe { OnExpire::Revert } else { OnExpire::Remind },
        request_id: terms.request_id,
        undo: false,
        glass: None,
        changes,
    };
    plan.ttl_s = ttl(&plan, terms.ttl_s)?;
    Ok(plan)
}

/// Plans one of the [`PLANS`].
///
/// # Errors
/// As [`plan`], and [`PlanError::UnknownPlan`].
pub fn named(
    name: &str,
    table: &FlagTable,
    evidence: &Evidence,
    terms: Terms,
) -> Result<Plan, PlanError> {
    let found = PLANS.iter().find(|plan| plan.name == name).ok_or_else(|| {
        let known = PLANS.iter().map(|plan| plan.name).collect::<Vec<_>>().join(", ");
        PlanError::UnknownPlan { name: name.to_owned(), known }
    })?;
    let changes = left_of(found, table)?;
    plan(name, table, &changes, evidence, terms)
}

/// What a named plan would still change. Where a flag is safer already than the plan wants it, the plan
/// has nothing to say.
///
/// # Errors
/// [`FlagError`] when the plan names a flag or a value that does not exist.
pub fn left_of(plan: &NamedPlan, table: &FlagTable) -> Result<Vec<Change>, FlagError> {
    let mut left = Vec::new();
    for (key, value) in plan.changes {
        let def = flag(key)?;
        let to = def.parse(value)?;
        let is_done = table.get(key).is_some_and(|state| {
            let stored = state.stored();
            *stored == to || def.direction(&state.base, stored, &to) == Direction::Riskier
        });
        if !is_done {
            left.push(Change { key: (*key).to_owned(), to: Some(to) });
        }
    }
    Ok(left)
}

/// Plans every flag to its safe end. Works without any evidence. While the gate itself is the
/// confirmed refuser, the admission flags stay as they are, and the plan's reach says so.
///
/// # Errors
/// [`PlanError::NothingToChange`] when everything is safe already.
pub fn all_safe(table: &FlagTable, evidence: &Evidence, terms: Terms) -> Result<Plan, PlanError> {
    let gate_refuses = ill_gate(evidence).is_some();
    let mut changes = Vec::new();
    let mut left_alone = Vec::new();
    for state in &table.flags {
        match flag(&state.key) {
            Err(_) => left_alone.push(format!("{} (unknown to this weir)", state.key)),
            Ok(_) if gate_refuses && state.key.starts_with("admission.") => {
                left_alone.push(format!("{} (the gate itself refuses)", state.key));
            }
            Ok(def) => {
                let to = Some(def.safe_value(&state.base));
                changes.push(Change { key: state.key.clone(), to });
            }
        }
    }
    let terms = Terms { reason: terms.reason.or_else(|| Some(all_safe_reason(evidence))), ..terms };
    let mut plan = plan("safe", table, &changes, evidence, terms)?;
    if !left_alone.is_empty() {
        plan.reach = format!("{}; left alone: {}", plan.reach, left_alone.join(", "));
    }
    Ok(plan)
}

/// Plans the way back from one event, whoever made it. Its guards warn.
///
/// # Errors
/// As [`plan`], and [`PlanError::ChangedSince`] when a flag has moved on: an undo must not take
/// somebody else's later change along.
pub fn undo(
    event: &FlagEvent,
    table: &FlagTable,
    evidence: &Evidence,
    terms: Terms,
) -> Result<Plan, PlanError> {
    for change in &event.changes {
        let state = table
            .get(&change.key)
            .ok_or_else(|| PlanError::NotInTable { key: change.key.clone() })?;
        if state.overridden != change.to {
            return Err(PlanError::ChangedSince {
                seq: event.seq,
                key: change.key.clone(),
                by: state.by.clone().unwrap_or_else(|| "somebody".to_owned()),
                now: state.stored().to_string(),
            });
        }
    }
    let changes: Vec<Change> = event
        .changes
        .iter()
        .map(|change| Change { key: change.key.clone(), to: change.from.clone() })
        .collect();
    // The history has no other mark of an undo than its reason.
    let reason = terms.reason.filter(|reason| !reason.trim().is_empty()).map_or_else(
        || format!("{UNDO_OF} event {} by {}: {}", event.seq, event.actor, event.reason),
        |reason| format!("{UNDO_OF} event {}: {reason}", event.seq),
    );
    let terms = Terms { reason: Some(reason), ..terms };
    let plan = plan(&format!("undo {}", event.seq), table, &changes, evidence, terms)?;
    Ok(Plan { undo: true, ..plan })
}

fn planned(
    def: &FlagDef,
    state: &FlagState,
    change: &Change,
) -> Result<Option<PlannedChange>, FlagError> {
    let from = state.stored().clone();
    let to = match &change.to {
        Some(value) => def.check(value.clone())?,
        None => state.base.clone(),
    };
    let in_place = match change.to {
        Some(_) => from == to,
        None => state.overridden.is_none(),
    };
    let direction = def.direction(&state.base, &from, &to);
    let drops_override = change.to.is_none();
    let way_back = if drops_override {
        // Without an override there is nothing that a timer could lead back.
        WayBack::Nowhere
    } else {
        WayBack::of(def, &state.base, state.overridden.as_ref(), &to)
    };
    Ok((!in_place).then(|| PlannedChange {
        key: change.key.clone(),
        from,
        to,
        drops_override,
        direction,
        way_back,
        last: state.by.clone().zip(state.at),
    }))
}

fn ttl(plan: &Plan, asked: Option<u64>) -> Result<Option<u64>, PlanError> {
    // Without an override there is nothing that a timer could drop or remind of.
    if plan.changes.iter().all(|change| change.drops_override) {
        return Ok(None);
    }
    let ttl_s = asked.unwrap_or(if plan.is_risky() { TTL_RISKY_S } else { TTL_SAFE_S });
    if (1..=TTL_S_MAX).contains(&ttl_s) { Ok(Some(ttl_s)) } else { Err(PlanError::Ttl { ttl_s }) }
}

fn reason(verdict: &Verdict) -> String {
    let amplification = verdict
        .evidence
        .iter()
        .find(|evidence| evidence.signal == "amplification")
        .and_then(|evidence| evidence.value)
        .map_or_else(String::new, |value| format!(", amplification {value:.1}"));
    let scope = match verdict.scope.as_str() {
        "" => String::new(),
        scope => format!(" in {scope}"),
    };
    format!("{} {}{scope}{amplification}", verdict.cause, verdict.standing)
}

fn all_safe_reason(evidence: &Evidence) -> String {
    match evidence.verdict {
        Some(verdict) => format!("all safe: {}", reason(verdict)),
        None => "all safe, cause not known yet".to_owned(),
    }
}

/// Whom it reaches: instances, scopes, and which part of the traffic.
fn reach(changes: &[PlannedChange], table: &FlagTable, scopes: &[Arc<Snapshot>]) -> String {
    let instances: BTreeSet<&str> = changes
        .iter()
        .filter_map(|change| table.get(&change.key))
        .flat_map(|state| state.effective.keys().map(String::as_str))
        .collect();
    let instances = match instances.len() {
        0 => "an unknown number of instances".to_owned(),
        1 => format!("1 instance ({})", instances.into_iter().collect::<String>()),
        many => format!("{many} instances"),
    };
    let scopes = match scopes {
        [] => "scopes not known".to_owned(),
        [one] if one.scope.is_empty() => "one scope".to_owned(),
        [one] => one.scope.clone(),
        many => format!("{} scopes", many.len()),
    };
    let only_batch = changes.iter().all(|change| change.key.starts_with("lane.batch."));
    let share = match changes {
        [PlannedChange { key, from: FlagValue::Number(from), to: FlagValue::Number(to), .. }]
            if key == "admission.enforced_ratio" =>
        {
            format!("{:.0}% of originals", (to - from).abs() * 100.0)
        }
        _ if only_batch => "batch requests only".to_owned(),
        _ => "all traffic".to_owned(),
    };
    format!("{instances}, {scopes}, {share}")
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{table, value};
    use super::super::store::{Capabilities, EventChange, EventKind, Marks};
    use super::super::types::Revision;
    use super::*;
    use crate::diagnosis::Standing;

    const NOTHING: Evidence<'static> = Evidence { scopes: &[], verdict: None, now: None };

    fn storm() -> FlagTable {
        table(&[("admission.mode", "off"), ("retry.owner", "client"), ("retry.max_attempts", "3")])
    }

    fn plan_of(words: &[&str], table: &FlagTable) -> Result<Plan, PlanError> {
        plan("t", table, &wanted(words)?, &NOTHING, Terms::default())
    }

    fn verdict(cause: &str, standing: Standing) -> Verdict {
        Verdict {
            cause: cause.to_owned(),
            standing,
            scope: "openai/acct-1/embed".to_owned(),
            ..Verdict::empty()
        }
    }

    fn changes(plan: &Plan) -> Vec<String> {
        let line =
            |change: &PlannedChange| format!("{} {} -> {}", change.key, change.from, change.to);
        plan.changes.iter().map(line).collect()
    }

    #[test]
    fn contain_is_safe_and_says_why_and_whom() {
        let verdict = verdict("nested-retries", Standing::Confirmed);
        let evidence = Evidence { scopes: &[], verdict: Some(&verdict), now: None };
        let plan = named("contain", &storm(), &evidence, Terms::default()).expect("a plan");
        assert_eq!(
            changes(&plan),
            [
                "admission.mode off -> enforce",
                "retry.owner client -> gateway",
                "retry.max_attempts 3 -> 2",
            ]
        );
        assert!(!plan.is_risky());
        assert_eq!(plan.refused(), None, "an unknown quota warns and does not refuse");
        assert_eq!(confirmation(&plan), Confirmation::Enter);
        assert_eq!(plan.reason, "nested-retries confirmed in openai/acct-1/embed");
        assert_eq!(plan.reach, "2 instances, scopes not known, all traffic");
        assert_eq!(plan.verify, "effective everywhere, amplification < 1.1 for 10 s within 120 s");
    }

    #[test]
    fn what_is_in_place_already_is_left_out() {
        let half = table(&[("admission.mode", "off")]);
        let plan = named("contain", &half, &NOTHING, Terms::default()).expect("a plan");
        assert_eq!(changes(&plan), ["admission.mode off -> enforce"]);
        let done = named("contain", &table(&[]), &NOTHING, Terms::default());
        assert_eq!(done, Err(PlanError::NothingToChange { name: "contain".to_owned() }));
    }

    #[test]
    fn a_timer_only_ever_leads_toward_safe() {
        let check = |words: &[&str], overrides: &[(&str, &str)], expected: OnExpire, ttl_s: u64| {
            let plan = plan_of(words, &table(overrides)).expect("a plan");
            assert_eq!((plan.on_expire, plan.ttl_s), (expected, Some(ttl_s)), "{words:?}");
        };
        // Riskier than the base: going back is safe.
        check(&["retry.max_attempts=3"], &[], OnExpire::Revert, TTL_RISKY_S);
        // Safer than the base: going back would not be.
        check(&["retry.max_attempts=1"], &[], OnExpire::Remind, TTL_SAFE_S);
        // The base itself, held by an override: going back gains nothing.
        let above: &[(&str, &str)] = &[("retry.max_attempts", "3")];
        check(&["retry.max_attempts=2"], above, OnExpire::Remind, TTL_SAFE_S);
        // Both in one plan: dropping all of it would take the safer one along.
        let both = ["retry.max_attempts=3", "queue.max_age_s=5"];
        check(&both, &[], OnExpire::Remind, TTL_RISKY_S);
        let dropped = plan_of(&["admission.mode=base"], &storm()).expect("a plan");
        assert_eq!(dropped.ttl_s, None, "no override, no timer");
    }

    #[test]
    fn a_timer_sets_the_override_before_again_where_the_base_is_no_safer() {
        let mut off = table(&[("admission.mode", "enforce")]);
        let mode = off.flags.iter_mut().find(|flag| flag.key == "admission.mode").expect("a flag");
        mode.base = value("admission.mode", "off");
        let plan = plan_of(&["admission.mode=shadow"], &off).expect("a plan");
        let enforce = value("admission.mode", "enforce");
        assert_eq!((plan.on_expire, plan.ttl_s), (OnExpire::Revert, Some(TTL_RISKY_S)));
        assert_eq!(plan.restores().collect::<Vec<_>>(), [("admission.mode", &enforce)]);
        // Where a timer can only drop, it reminds.
        let able = |restores| Capabilities { restores, ..Capabilities::FULL };
        assert_eq!(able(true).fitted(plan.clone()), plan);
        assert_eq!(able(false).fitted(plan).on_expire, OnExpire::Remind);
    }

    #[test]
    fn a_timer_is_bounded_on_both_sides() {
        let check = |ttl_s: u64, fits: bool| {
            let terms = Terms { ttl_s: Some(ttl_s), ..Terms::default() };
            let changes = wanted(&["retry.max_attempts=1"]).expect("valid");
            let plan = plan("t", &table(&[]), &changes, &NOTHING, terms);
            assert_eq!(plan.is_ok(), fits, "{ttl_s}");
        };
        check(0, false);
        check(1, true);
        check(TTL_S_MAX, true);
        check(TTL_S_MAX + 1, false);
    }

    #[test]
    fn riskier_means_typing_the_flags_name() {
        let plan = plan_of(&["queue.max_age_s=5", "cache.enabled=true"], &table(&[]));
        let confirmation = confirmation(&plan.expect("a plan"));
        assert_eq!(confirmation, Confirmation::Type("cache.enabled".to_owned()));
    }

    #[test]
    fn bad_wishes_are_named() {
        let check = |words: &[&str], part: &str| {
            let error = plan_of(words, &table(&[])).expect_err(part).to_string();
            assert!(error.contains(part), "{words:?}: {error}");
        };
        check(&["retry.max_attempts"], "KEY=VALUE");
        check(&["retry.max=2"], "no flag `retry.max`");
        check(&["retry.max_attempts=9"], "a whole number from 1 to 4");
        check(&["retry.owner=client", "retry.owner=gateway"], "named twice");
        check(&["retry.owner=base"], "nothing to change");
        let error = named("calm", &table(&[]), &NOTHING, Terms::default()).expect_err("no plan");
        assert_eq!(error.to_string(), "no plan `calm`; plans are: contain");
    }

    #[test]
    fn all_safe_needs_no_evidence_and_nothing_refuses_it() {
        let plan = all_safe(&storm(), &NOTHING, Terms::default()).expect("a plan");
        assert!(!plan.is_risky());
        assert_eq!(plan.refused(), None);
        assert!(!plan.reason.is_empty());
        for change in &plan.changes {
            let safe = &storm().get(&change.key).expect("in the table").safe.clone();
            assert_eq!(&change.to, safe, "{}", change.key);
        }
    }

    #[test]
    fn all_safe_leaves_a_gate_alone_that_refuses_wrongly() {
        for (standing, left_alone) in [(Standing::Confirmed, true), (Standing::Likely, false)] {
            let verdict = verdict("gate-refuses-wrongly", standing);
            let evidence = Evidence { scopes: &[], verdict: Some(&verdict), now: None };
            let plan = all_safe(&storm(), &evidence, Terms::default()).expect("a plan");
            let touches = plan.changes.iter().any(|change| change.key.starts_with("admission."));
            assert_eq!(touches, !left_alone, "{standing}");
            assert_eq!(plan.reach.contains("the gate itself refuses"), left_alone, "{standing}");
        }
    }

    fn event(from: Option<&str>, to: Option<&str>) -> FlagEvent {
        let key = "retry.max_attempts";
        FlagEvent {
            seq: 7,
            at: chrono::DateTime::UNIX_EPOCH,
            actor: "bob".to_owned(),
            reason: "trying".to_owned(),
            incident: None,
            request_id: None,
            anchor: None,
            marks: Marks::default(),
            revision: Revision(41),
            kind: EventKind::Change,
            changes: vec![EventChange {
                key: key.to_owned(),
                base: value(key, "2"),
                from: from.map(|text| value(key, text)),
                to: to.map(|text| value(key, text)),
            }],
        }
    }

    #[test]
    fn undo_restores_the_override_or_its_absence() {
        let now = table(&[("retry.max_attempts", "3")]);
        let back = undo(&event(None, Some("3")), &now, &NOTHING, Terms::default()).expect("a plan");
        assert!(back.changes[0].drops_override);
        assert_eq!(changes(&back), ["retry.max_attempts 3 -> 2"]);
        assert_eq!(back.reason, "undo of event 7 by bob: trying");
        let back = undo(&event(Some("1"), Some("3")), &now, &NOTHING, Terms::default());
        assert_eq!(changes(&back.expect("a plan")), ["retry.max_attempts 3 -> 1"]);
    }

    #[test]
    fn undo_never_takes_a_later_change_along() {
        let now = table(&[("retry.max_attempts", "4")]);
        let error = undo(&event(None, Some("3")), &now, &NOTHING, Terms::default());
        let text = error.expect_err("changed since").to_string();
        assert!(text.contains("bob has changed `retry.max_attempts` to 4"), "{text}");
    }
}

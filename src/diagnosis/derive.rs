//! Completes a snapshot: clamps impossible values, and derives a signal from others when no source
//! gives it directly. A part that is missing leaves the result unknown, never 0 or 1.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::signal::{Quality, Reading, Snapshot, Unit, Value, definition};

use super::balance;

/// A snapshot with what follows from it, and what had to be corrected.
#[derive(Clone, Debug, Default)]
pub struct Completed {
    /// The given signals, clamped, and the derived ones.
    pub snapshot: Snapshot,
    /// What was clamped or dropped, in words.
    pub notes: Vec<String>,
}

/// How a derived signal follows from its parts.
enum Formula {
    /// First part over the second; unknown when the second is zero.
    Quotient,
    /// First part over the second as a share of events; nothing over nothing is 0.
    Share,
    /// Sum of the parts that are known; less than the truth unless the first two are.
    Sum,
    /// The largest of the parts that are known.
    Most,
    /// First times second times 60 over the third: demand per minute over a limit per minute.
    PerMinute,
}

struct Rule {
    name: &'static str,
    formula: Formula,
    parts: &'static [&'static str],
}

const fn rule(name: &'static str, formula: Formula, parts: &'static [&'static str]) -> Rule {
    Rule { name, formula, parts }
}

/// Sum of the gate's refusals by status: a step on the way, not a signal of the catalogue.
const GATE_ANSWERS: &str = "gate_answers_rps";

/// In an order in which every part stands above its use.
#[rustfmt::skip]
const RULES: &[Rule] = &[
    rule("amplification", Formula::Quotient, &["attempts_rps", "originals_rps"]),
    rule("client_multiplication", Formula::Quotient, &["offered_rps", "originals_rps"]),
    rule("served_share", Formula::Quotient, &["delivered_rps", "originals_rps"]),
    rule("served_share", Formula::Quotient, &["success_rps", "originals_rps"]),
    rule("rpm_headroom", Formula::Quotient, &["rpm_remaining", "rpm_limit"]),
    rule("tpm_headroom", Formula::Quotient, &["tpm_remaining", "tpm_limit"]),
    rule("itpm_headroom", Formula::Quotient, &["itpm_remaining", "itpm_limit"]),
    rule("otpm_headroom", Formula::Quotient, &["otpm_remaining", "otpm_limit"]),
    rule("day_headroom", Formula::Quotient, &["day_remaining", "day_limit"]),
    rule("provider_refused_rps", Formula::Sum, &["provider_429_rps", "provider_503_rps"]),
    rule(GATE_ANSWERS, Formula::Sum, &["gate_429_rps", "gate_503_rps", "gate_403_rps", "gate_500_rps"]),
    rule("gate_refused_rps", Formula::Most, &["shed_rps", GATE_ANSWERS]),
    rule("provider_refused_share", Formula::Share, &["provider_refused_rps", "attempts_rps"]),
    rule("provider_429_share", Formula::Share, &["provider_429_rps", "attempts_rps"]),
    rule("provider_503_share", Formula::Share, &["provider_503_rps", "attempts_rps"]),
    rule("provider_5xx_share", Formula::Share, &["provider_5xx_other_rps", "attempts_rps"]),
    rule("provider_4xx_share", Formula::Share, &["provider_4xx_other_rps", "attempts_rps"]),
    rule("timeout_share", Formula::Share, &["timeout_rps", "attempts_rps"]),
    rule("aux_share", Formula::Share, &["aux_rps", "attempts_rps"]),
    rule("gate_refused_share", Formula::Share, &["gate_refused_rps", "offered_rps"]),
    rule("tpm_demand_ratio", Formula::PerMinute, &["originals_rps", "tokens_per_request", "tpm_limit"]),
    rule("rpm_demand_ratio", Formula::PerMinute, &["originals_rps", "quota_units_per_request", "rpm_limit"]),
    rule("tpm_use_ratio", Formula::PerMinute, &["success_rps", "tokens_per_request", "tpm_limit"]),
    rule("rpm_use_ratio", Formula::PerMinute, &["success_rps", "quota_units_per_request", "rpm_limit"]),
    rule("estimate_error", Formula::Quotient, &["actual_tokens_per_request", "est_tokens_per_request"]),
];

/// A part that stands in when it is absent, because the catalogue names it as the neutral value.
const NEUTRAL: &[(&str, f64)] = &[("quota_units_per_request", 1.0)];

/// Clamps and derives.
#[must_use]
pub fn complete(snapshot: &Snapshot) -> Completed {
    let mut done = Completed { snapshot: snapshot.clone(), notes: Vec::new() };
    clamp(&mut done);
    balance::distrust(&mut done.snapshot, &mut done.notes);
    for rule in RULES {
        if done.snapshot.get(rule.name).is_none() {
            derive(&mut done.snapshot, rule);
        }
    }
    from_records(&mut done.snapshot);
    done.snapshot.signals.remove(GATE_ANSWERS);
    done.snapshot.absent.remove(GATE_ANSWERS);
    clamp(&mut done);
    done
}

/// What can be known where the signals in `given` are: they, and what follows from them.
///
/// Headroom of deployments is left out: whether a list of them tells it is not known by its name.
#[must_use]
pub fn derivable(given: &BTreeSet<String>) -> BTreeSet<String> {
    let mut known = given.clone();
    for rule in RULES {
        let mut parts = rule.parts.iter().map(|part| {
            known.contains(*part) || NEUTRAL.iter().any(|(neutral, _)| neutral == part)
        });
        let follows = match rule.formula {
            Formula::Sum | Formula::Most => parts.any(|is_known| is_known),
            Formula::Quotient | Formula::Share | Formula::PerMinute => {
                parts.all(|is_known| is_known)
            }
        };
        if follows {
            known.insert(rule.name.to_owned());
        }
    }
    for (name, record) in FROM_RECORDS {
        if known.contains(*record) {
            known.insert((*name).to_owned());
        }
    }
    known
}

/// The signals that a derived one is computed from, all of which it needs.
pub(super) fn parts_of(name: &str) -> Option<&'static [&'static str]> {
    let needs_all = |rule: &&Rule| !matches!(rule.formula, Formula::Sum | Formula::Most);
    RULES.iter().find(|rule| rule.name == name).filter(needs_all).map(|rule| rule.parts)
}

/// How a signal follows from others where no source gives it, in words.
#[must_use]
pub fn derivation(name: &str) -> Option<String> {
    let rules: Vec<String> =
        RULES.iter().filter(|rule| rule.name == name).map(Rule::words).collect();
    let record = FROM_RECORDS.iter().find(|(derived, _)| *derived == name);
    match (rules.is_empty(), record) {
        (false, _) => Some(rules.join(", else ")),
        (true, Some((_, record))) => Some(format!("it from the parts of {record}")),
        (true, None) => None,
    }
}

impl Rule {
    fn words(&self) -> String {
        let parts = || self.parts.iter().filter(|part| **part != GATE_ANSWERS).copied();
        let joined = |with: &str| parts().collect::<Vec<_>>().join(with);
        match (&self.formula, self.parts) {
            (Formula::PerMinute, [rate, size, limit]) => format!("{rate} * {size} * 60 / {limit}"),
            (Formula::Sum, _) => joined(" + "),
            (Formula::Most, _) => {
                let answers = RULES.iter().find(|rule| rule.name == GATE_ANSWERS);
                let answers = answers.map_or_else(String::new, Self::words);
                format!("the larger of {} and {answers}", joined(" and "))
            }
            (Formula::Quotient | Formula::Share | Formula::PerMinute, _) => joined(" / "),
        }
    }
}

/// Signals that follow from a record whenever it is there.
const FROM_RECORDS: &[(&str, &str)] = &[
    ("top_tenant", "tenants"),
    ("top_tenant_share", "tenants"),
    ("others_refused_share", "tenants"),
    ("failing_tenant", "tenants"),
    ("failing_tenant_share", "tenants"),
    ("cooldown_share", "cooldown"),
    ("retried_originals_share", "attempts_histogram"),
];

/// A share above 1 by less than this is clamped without a word.
const CLAMP_TOLD_FROM: f64 = 0.02;

/// Whether the signal of this name lies between 0 and 1.
#[must_use]
pub fn is_share(name: &str) -> bool {
    name.ends_with("_share") || name.ends_with("headroom")
}

/// Whether the signal of this name can be below zero.
#[must_use]
pub fn is_signed(name: &str) -> bool {
    definition(name).is_some_and(|def| matches!(def.unit, Unit::Percent | Unit::Usd))
        || name == "reset_time_drift_s"
}

fn clamp(done: &mut Completed) {
    let Completed { snapshot, notes } = done;
    let mut bad = Vec::new();
    snapshot.signals.retain(|name, reading| {
        let Value::Number(number) = reading.value else {
            // A number that came as a word is not known; what is derived from it must not count it as
            // nothing.
            let is_number =
                definition(name).is_some_and(|def| !matches!(def.unit, Unit::Text | Unit::Record));
            let is_bad = is_number && matches!(reading.value, Value::Text(_));
            if is_bad {
                notes.push(format!("{name} is not a number: taken as unknown"));
                bad.push(name.clone());
            }
            return !is_bad;
        };
        if !number.is_finite() {
            notes.push(format!("{name} was {number}: taken as unknown"));
            return false;
        }
        let highest = if is_share(name) { 1.0 } else { f64::MAX };
        let lowest = if is_signed(name) { f64::MIN } else { 0.0 };
        let clamped = number.clamp(lowest, highest);
        if (clamped - number).abs() > 1e-9 {
            // Two counters of one scrape are a moment apart; that much is no news.
            if (clamped - number).abs() > CLAMP_TOLD_FROM {
                notes.push(format!("{name} was {number:.3}: clamped to {clamped}"));
            }
            reading.value = Value::Number(clamped);
            reading.note = Some(Arc::from(format!("clamped from {number}")));
        }
        true
    });
    for name in bad {
        snapshot.absent.insert(name, "not a number".to_owned());
    }
}

fn derive(snapshot: &mut Snapshot, rule: &Rule) {
    let part = |name: &str| {
        snapshot.number(name).or_else(|| {
            NEUTRAL.iter().find(|(neutral, _)| *neutral == name).map(|(_, value)| *value)
        })
    };
    let known: Vec<f64> = rule.parts.iter().filter_map(|name| part(name)).collect();
    let value = match (&rule.formula, known.as_slice()) {
        (Formula::Sum, [_, ..]) => Some(known.iter().sum()),
        (Formula::Most, [_, ..]) => known.iter().copied().reduce(f64::max),
        (Formula::Quotient, [over, under]) if *under > 0.0 => Some(over / under),
        (Formula::Share, [events, _]) if *events <= 0.0 => Some(0.0),
        (Formula::Share, [events, all]) if *all > 0.0 => Some(events / all),
        (Formula::PerMinute, [rate, size, limit]) if *limit > 0.0 && *size > 0.0 => {
            Some(rate * size * 60.0 / limit)
        }
        _ => None,
    };
    let Some(value) = value.filter(|value: &f64| value.is_finite()) else {
        let missing: Vec<&str> =
            rule.parts.iter().copied().filter(|name| part(name).is_none()).collect();
        if !missing.is_empty() {
            let why = format!("needs {}", missing.join(", "));
            snapshot.absent.entry(rule.name.to_owned()).or_insert(why);
        }
        return;
    };
    insert(snapshot, rule.name, Value::Number(value), quality(snapshot, rule), rule.parts);
}

/// A sum without one of its main parts, and what is derived from a lower bound, are lower bounds.
fn quality(snapshot: &Snapshot, rule: &Rule) -> Quality {
    let lower = |name: &&str| {
        snapshot.get(name).is_some_and(|reading| reading.quality == Quality::LowerBound)
    };
    let known = |name: &&str| snapshot.get(name).is_some();
    let bounded = match rule.formula {
        Formula::Sum => !rule.parts[..rule.parts.len().min(2)].iter().all(known),
        Formula::Most => !rule.parts.iter().filter(|name| known(name)).any(|name| !lower(name)),
        Formula::Quotient | Formula::Share | Formula::PerMinute => {
            rule.parts.first().is_some_and(lower)
        }
    };
    if bounded { Quality::LowerBound } else { Quality::Inferred }
}

fn insert(snapshot: &mut Snapshot, name: &str, value: Value, quality: Quality, parts: &[&str]) {
    let readings: Vec<&Reading> = parts.iter().filter_map(|part| snapshot.get(part)).collect();
    let source = readings.first().map_or_else(|| Arc::from("derived"), |r| Arc::clone(&r.source));
    let age_s = readings.iter().map(|reading| reading.age_s).fold(0.0, f64::max);
    let note = Some(Arc::from(format!("from {}", parts.join(", "))));
    let reading = Reading { value, quality, source, age_s, note };
    snapshot.absent.remove(name);
    snapshot.signals.insert(name.to_owned(), reading);
}

/// Numbers that sum a list or map up: the largest tenant, the emptiest deployment, the slowest stage.
fn from_records(snapshot: &mut Snapshot) {
    let mut names: Vec<(&str, String)> = Vec::new();
    let mut found: Vec<(&str, f64, &str)> = Vec::new();
    if let Some(Value::List(tenants)) = snapshot.value("tenants") {
        let top = tenants.iter().max_by(|a, b| tenant_share(a).total_cmp(&tenant_share(b)));
        if let Some(top) = top {
            found.push(("top_tenant_share", tenant_share(top), "tenants"));
            names.extend(text(top, "id").map(|id| ("top_tenant", id.to_owned())));
            let refused = |tenant: &Value| field(tenant, "refused_share");
            let others =
                tenants.iter().filter(|tenant| !std::ptr::eq(*tenant, top)).filter_map(refused);
            if let Some(most) = others.reduce(f64::max) {
                found.push(("others_refused_share", most, "tenants"));
            }
        }
        // Nobody is named where nothing failed.
        let failed = |tenant: &Value| field(tenant, "share_failed").filter(|share| *share > 0.0);
        let failing = tenants.iter().filter_map(|tenant| Some((tenant, failed(tenant)?)));
        if let Some((tenant, share)) = failing.max_by(|a, b| a.1.total_cmp(&b.1)) {
            found.push(("failing_tenant_share", share, "tenants"));
            names.extend(text(tenant, "id").map(|id| ("failing_tenant", id.to_owned())));
        }
    }
    if let Some(Value::List(deployments)) = snapshot.value("deployments") {
        let rooms: Vec<f64> =
            deployments.iter().filter_map(|entry| field(entry, "headroom")).collect();
        if let (Some(least), Some(most)) =
            (rooms.iter().copied().reduce(f64::min), rooms.iter().copied().reduce(f64::max))
        {
            found.push(("deployment_headroom_min", least, "deployments"));
            found.push(("deployment_headroom_max", most, "deployments"));
        }
    }
    let cooldown = |part: &str| snapshot.number(&format!("cooldown.{part}"));
    if let (Some(cooling), Some(total)) = (cooldown("in_cooldown"), cooldown("total"))
        && total > 0.0
    {
        found.push(("cooldown_share", cooling / total, "cooldown"));
    }
    if let (Some(Value::Map(now)), Some(Value::Map(usual))) =
        (snapshot.value("stages_p95_s"), snapshot.value("stages_p95_baseline_s"))
    {
        found.push(("stage_slowdown", stage_slowdown(now, usual), "stages_p95_s"));
    }
    if let Some(Value::Map(counts)) = snapshot.value("attempts_histogram")
        && let Some(share) = retried_share(counts)
    {
        found.push(("retried_originals_share", share, "attempts_histogram"));
    }
    for (name, id) in names {
        if snapshot.get(name).is_none() {
            insert(snapshot, name, Value::Text(id), Quality::Inferred, &["tenants"]);
        }
    }
    for (name, value, part) in found {
        if snapshot.get(name).is_none() && value.is_finite() {
            insert(snapshot, name, Value::Number(value), Quality::Inferred, &[part]);
        }
    }
}

/// Originals with two attempts or more, of those with one at least. Keys begin with a number of
/// attempts (`1`, `2`, `3+`); one that does not, or a bar that is no number, leaves it unknown.
fn retried_share(counts: &BTreeMap<String, Value>) -> Option<f64> {
    let (mut retried, mut all) = (0.0, 0.0);
    for (key, count) in counts {
        let digits = key.find(|c: char| !c.is_ascii_digit()).unwrap_or(key.len());
        let attempts: u32 = key[..digits].parse().ok()?;
        let count = count.as_number()?;
        all += if attempts > 0 { count } else { 0.0 };
        retried += if attempts > 1 { count } else { 0.0 };
    }
    (all > 0.0).then(|| retried / all)
}

fn field(entry: &Value, name: &str) -> Option<f64> {
    let Value::Map(parts) = entry else { return None };
    parts.get(name)?.as_number()
}

fn text<'a>(entry: &'a Value, name: &str) -> Option<&'a str> {
    let Value::Map(parts) = entry else { return None };
    match parts.get(name)? {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn tenant_share(tenant: &Value) -> f64 {
    field(tenant, "share_tokens").or_else(|| field(tenant, "share_requests")).unwrap_or(0.0)
}

/// The model itself is the provider's latency, not a stage of the fan-out.
const MODEL_STAGE: &str = "llm";
/// A stage that grew by less than this does not make a tail.
const LEAST_GROWTH_S: f64 = 0.5;

fn stage_slowdown(now: &BTreeMap<String, Value>, usual: &BTreeMap<String, Value>) -> f64 {
    let ratio = |(stage, value): (&String, &Value)| {
        let (now, usual) = (value.as_number()?, usual.get(stage)?.as_number()?);
        let grew = stage != MODEL_STAGE && usual > 0.0 && now - usual > LEAST_GROWTH_S;
        grew.then(|| now / usual)
    };
    now.iter().filter_map(ratio).fold(1.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(numbers: &[(&str, f64)]) -> Snapshot {
        let mut snapshot = Snapshot::new("scope", 60.0);
        for (name, number) in numbers {
            snapshot.set(name, Value::Number(*number), &Arc::from("test"));
        }
        snapshot
    }

    #[test]
    fn ratios_follow_from_their_parts() {
        let check = |numbers: &[(&str, f64)], name: &str, expected: Option<f64>| {
            let done = complete(&snapshot(numbers)).snapshot;
            assert_eq!(done.number(name), expected, "{name} from {numbers:?}");
        };
        let parts = [("attempts_rps", 18.0), ("originals_rps", 2.0)];
        check(&parts, "amplification", Some(9.0));
        check(&parts[..1], "amplification", None);
        check(&[("attempts_rps", 18.0), ("originals_rps", 0.0)], "amplification", None);
        check(&[("tpm_remaining", 5.0)], "tpm_headroom", None);
        check(&[("tpm_remaining", 5.0), ("tpm_limit", 0.0)], "tpm_headroom", None);
        check(&[("tpm_remaining", 0.0), ("tpm_limit", 10.0)], "tpm_headroom", Some(0.0));
        check(&[("provider_429_rps", 0.0), ("attempts_rps", 0.0)], "provider_429_share", Some(0.0));
        check(&[("gate_429_rps", 1.0), ("gate_503_rps", 2.0)], "gate_refused_rps", Some(3.0));
        check(&[("amplification", 2.0), ("attempts_rps", 9.0)], "amplification", Some(2.0));
    }

    #[test]
    fn a_sum_without_a_main_part_is_a_lower_bound() {
        let check = |numbers: &[(&str, f64)], name: &str, expected: Quality| {
            let done = complete(&snapshot(numbers)).snapshot;
            let quality = done.get(name).map(|reading| reading.quality);
            assert_eq!(quality, Some(expected), "{name} from {numbers:?}");
        };
        let provider =
            [("provider_503_rps", 0.0), ("attempts_rps", 1.0), ("provider_429_rps", 1.0)];
        check(&provider, "provider_refused_share", Quality::Inferred);
        check(&provider[..2], "provider_refused_share", Quality::LowerBound);
        check(&[("gate_503_rps", 1.0)], "gate_refused_rps", Quality::LowerBound);
        check(&[("gate_503_rps", 1.0), ("shed_rps", 2.0)], "gate_refused_rps", Quality::Inferred);
    }

    #[test]
    fn a_histogram_of_attempts_says_how_many_were_retried() {
        let check = |bars: &[(&str, f64)], expected: Option<f64>| {
            let bars = bars.iter().map(|(key, count)| ((*key).to_owned(), Value::Number(*count)));
            let mut given = snapshot(&[]);
            given.set("attempts_histogram", Value::Map(bars.collect()), &Arc::from("test"));
            let done = complete(&given).snapshot;
            assert_eq!(done.number("retried_originals_share"), expected, "{given:?}");
        };
        check(&[("1", 60.0), ("2", 30.0), ("3+", 10.0)], Some(0.4));
        check(&[("0", 50.0), ("1", 10.0)], Some(0.0));
        check(&[("0", 50.0)], None);
        check(&[("many", 50.0), ("1", 10.0)], None);
        assert_eq!(complete(&snapshot(&[])).snapshot.number("retried_originals_share"), None);
    }

    #[test]
    fn the_tenant_that_gets_the_errors_is_named_where_there_are_errors() {
        let tenant = |id: &str, failed: Option<f64>| {
            let failed = failed.map(|share| ("share_failed".to_owned(), Value::Number(share)));
            let id = ("id".to_owned(), Value::Text(id.to_owned()));
            Value::Map(failed.into_iter().chain([id]).collect())
        };
        let check = |tenants: Vec<Value>, expected: Option<(&str, f64)>| {
            let mut given = snapshot(&[]);
            given.set("tenants", Value::List(tenants), &Arc::from("test"));
            let done = complete(&given).snapshot;
            let name = done.value("failing_tenant").cloned();
            assert_eq!(name, expected.map(|(id, _)| Value::Text(id.to_owned())));
            assert_eq!(done.number("failing_tenant_share"), expected.map(|(_, share)| share));
        };
        check(vec![tenant("a", Some(0.1)), tenant("b", Some(0.9))], Some(("b", 0.9)));
        check(vec![tenant("a", Some(0.0)), tenant("b", Some(0.0))], None);
        check(vec![tenant("a", None), tenant("b", None)], None);
        check(vec![], None);
    }

    #[test]
    fn the_impossible_is_clamped_and_noted() {
        let done = complete(&snapshot(&[
            ("tpm_remaining", 20.0),
            ("tpm_limit", 10.0),
            ("attempts_rps", -3.0),
            ("served_share", f64::NAN),
        ]));
        assert_eq!(done.snapshot.number("tpm_headroom"), Some(1.0));
        assert_eq!(done.snapshot.number("attempts_rps"), Some(0.0));
        assert_eq!(done.snapshot.number("served_share"), None);
        assert_eq!(done.notes.len(), 3, "{:?}", done.notes);
    }

    #[test]
    fn a_missing_part_says_what_it_needs() {
        let done = complete(&snapshot(&[("attempts_rps", 1.0)]));
        let why = done.snapshot.absent.get("amplification").map(String::as_str);
        assert_eq!(why, Some("needs originals_rps"));
    }
}

//! The table's own rules: revisions, repeats, timers, interlocks, undo, break-glass.

use std::sync::Arc;

use super::*;
use crate::admission::{Mode, RetryOwner};
use crate::diagnosis::{Standing, Verdict};
use crate::flag::UNDO_OF;
use crate::flag::wire::{ChangeRow, OverrideBy, OverrideRow};
use crate::signal::{Snapshot, Value};

/// What the service knows in a test.
#[derive(Default)]
struct Seen {
    numbers: BTreeMap<&'static str, f64>,
    verdict: Option<Verdict>,
    glass: bool,
}

impl Seen {
    /// Everything is calm: no interlock that asks signals refuses.
    fn calm() -> Self {
        let numbers = BTreeMap::from([
            ("amplification", 1.0),
            ("client_multiplication", 1.0),
            ("calm_s", 600.0),
            ("tpm_headroom", 0.5),
            ("rpm_headroom", 0.5),
            ("tpm_demand_ratio", 0.5),
            ("rpm_demand_ratio", 0.5),
            ("queue_oldest_age_s", 0.0),
        ]);
        Self { numbers, ..Self::default() }
    }

    fn but(mut self, signal: &'static str, number: Option<f64>) -> Self {
        match number {
            Some(number) => self.numbers.insert(signal, number),
            None => self.numbers.remove(signal),
        };
        self
    }

    fn apply(
        &self,
        table: &mut Overrides,
        change: &ApplyBody,
        now: DateTime<Utc>,
    ) -> Result<(), Box<ErrorBody>> {
        self.apply_at(table, change, table.revision(), now)
    }

    fn apply_at(
        &self,
        table: &mut Overrides,
        change: &ApplyBody,
        seen: Revision,
        now: DateTime<Utc>,
    ) -> Result<(), Box<ErrorBody>> {
        let mut snapshot = Snapshot::new("openai/acct-1/embed", 10.0);
        for (name, number) in &self.numbers {
            snapshot.set(name, Value::Number(*number), &Arc::from("gateway"));
        }
        let effective = table.settings();
        let known = Known {
            effective: &effective,
            scopes: &[Arc::new(snapshot)],
            verdict: self.verdict.as_ref(),
            glass: self.glass,
            token: None,
        };
        table.apply(change, seen, &known, now)
    }
}

/// The moment of every test that needs no other.
const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

fn apply(table: &mut Overrides, change: &ApplyBody) -> Result<(), Box<ErrorBody>> {
    Seen::calm().apply(table, change, NOW)
}

fn body(changes: &[(&str, Option<&str>)], id: &str) -> ApplyBody {
    let changes = changes
        .iter()
        .map(|(key, value)| ChangeRow {
            key: (*key).to_owned(),
            value: value.map(|text| {
                let value = flag(key).and_then(|def| def.parse(text)).expect("a valid value");
                WireValue::from(&value)
            }),
        })
        .collect();
    ApplyBody {
        changes,
        ttl_s: None,
        on_expire: WireOnExpire::Remind,
        reason: "test".to_owned(),
        actor: "alice".to_owned(),
        incident: None,
        request_id: id.to_owned(),
        anchor: None,
        overriding: None,
    }
}

fn off() -> Overrides {
    let base = Settings { mode: Mode::Off, ..Settings::default() };
    Overrides::new("gw-1", base)
}

#[test]
fn several_changes_are_stored_under_one_revision_and_a_repeat_is_harmless() {
    let mut table = off();
    let change =
        body(&[("admission.mode", Some("enforce")), ("retry.max_attempts", Some("1"))], "r1");
    apply(&mut table, &change).expect("valid");
    apply(&mut table, &change).expect("a repeat");
    assert_eq!(table.revision(), Revision(1));
    assert_eq!(table.settings().mode, Mode::Enforce);
    assert_eq!(table.events(0).len(), 1);
}

#[test]
fn one_bad_change_stores_nothing() {
    let mut table = off();
    let mut change = body(&[("retry.max_attempts", Some("1"))], "r1");
    change.changes.push(ChangeRow { key: "no.such".to_owned(), value: None });
    let error = apply(&mut table, &change).expect_err("unknown flag");
    assert_eq!(error.error.code, ErrorCode::UnknownFlag);
    assert_eq!(table.settings().retry_max_attempts, 2);
}

#[test]
fn a_revision_that_has_passed_is_refused_with_the_table_of_now() {
    let mut table = off();
    apply(&mut table, &body(&[("retry.max_attempts", Some("1"))], "r1")).expect("valid");
    let late = body(&[("queue.max_depth", Some("9"))], "r2");
    let error = Seen::calm().apply_at(&mut table, &late, Revision(0), NOW).expect_err("outdated");
    assert_eq!(error.error.code, ErrorCode::Revision);
    assert_eq!(error.error.current.as_ref().expect("the table").revision, 1);
    assert!(error.error.message.contains("alice"), "{}", error.error.message);
}

#[test]
fn a_timer_reverts_toward_the_safe_end_only() {
    let mut table = Overrides::new("gw-1", Settings::default());
    let now = NOW;
    let timed = |mut change: ApplyBody| {
        change.ttl_s = Some(60);
        change.on_expire = WireOnExpire::Revert;
        change
    };
    let risky = timed(body(&[("retry.max_attempts", Some("3"))], "r1"));
    apply(&mut table, &risky).expect("valid");
    let safe = timed(body(&[("queue.max_depth", Some("300"))], "r2"));
    apply(&mut table, &safe).expect("valid");
    assert_eq!(table.expire(now + TimeDelta::seconds(59)), Expiry::Nothing);
    assert_eq!(table.expire(now + TimeDelta::seconds(60)), Expiry::Dropped);
    assert_eq!(table.settings().retry_max_attempts, 2, "the risky one is gone");
    assert_eq!(table.settings().queue_max_depth, 300, "the safe one only reminds");
    let kinds: Vec<_> = table.events(2).iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Remind, EventKind::Expire]);
    assert_eq!(table.expire(now + TimeDelta::seconds(90)), Expiry::Nothing, "once");
}

#[test]
fn a_note_stands_among_the_events_once_and_changes_nothing() {
    let mut table = off();
    let note = |text: &str, id: &str| NoteBody {
        text: text.to_owned(),
        actor: "bob".to_owned(),
        incident: None,
        request_id: id.to_owned(),
    };
    table.note(&note("provider called", "n1"), None, NOW).expect("a note");
    table.note(&note("provider called", "n1"), None, NOW).expect("a repeat is harmless");
    let too_long = "x".repeat(NOTE_BYTES_MAX + 1);
    for bad in [" ", too_long.as_str()] {
        let refused = table.note(&note(bad, "n2"), None, NOW).expect_err("refused");
        assert!(refused.error.message.contains("`text`"), "{}", refused.error.message);
    }
    assert_eq!(table.revision(), Revision(0));
    let events = table.events(0);
    let [only] = events.as_slice() else { panic!("one event: {events:?}") };
    assert_eq!((only.kind, only.reason.as_str()), (EventKind::Note, "provider called"));
    assert!(only.changes.is_empty());
}

#[test]
fn a_timer_sets_the_override_before_again_where_the_base_is_no_safer() {
    let base = Settings { retry_max_attempts: 5, ..Settings::default() };
    let mut table = Overrides::new("gw-1", base);
    let set = |table: &mut Overrides, tries: &str, ttl_s: Option<u64>| {
        let mut change = body(&[("retry.max_attempts", Some(tries))], tries);
        change.ttl_s = ttl_s;
        change.on_expire = WireOnExpire::Revert;
        apply(table, &change).expect("valid");
    };
    set(&mut table, "2", None);
    set(&mut table, "3", Some(60));
    // A second flip in between cuts the timer short, and its own leads as far back.
    set(&mut table, "4", Some(60));
    assert_eq!(table.settings().retry_max_attempts, 4);
    let kept = table.to_json().expect("JSON");
    table.restore(&kept).expect("its own text");
    assert_eq!(table.expire(NOW + TimeDelta::seconds(60)), Expiry::Dropped);
    assert_eq!(table.settings().retry_max_attempts, 2);
    let last = table.events(0).pop().expect("an event");
    let change = &last.changes[0];
    let tries = |tries: i64| Some(WireValue::Whole(tries));
    assert_eq!((last.kind, &change.from, &change.to), (EventKind::Expire, &tries(4), &tries(2)));
    let later = NOW + TimeDelta::seconds(600);
    assert_eq!(table.expire(later), Expiry::Nothing, "it has no timer of its own");
}

type Wanted<'a> = &'a [(&'a str, Option<&'a str>)];

/// The refusal, or nothing.
fn refusal(seen: &Seen, base: &Settings, changes: Wanted) -> Option<String> {
    let mut table = Overrides::new("gw-1", base.clone());
    let error = seen.apply(&mut table, &body(changes, "r1"), NOW).err()?;
    assert_eq!(error.error.code, ErrorCode::Interlock, "{changes:?}: {error:?}");
    assert_eq!(table.revision(), Revision(0), "nothing is stored");
    Some(error.error.message)
}

#[test]
fn interlocks_hold_whoever_asks() {
    let last_step = Settings { enforced_ratio: 0.25, adaptive: false, ..Settings::default() };
    let off: Wanted = &[("admission.mode", Some("off"))];
    let cases: [(Wanted, &str); 5] = [
        (&[("retry.max_attempts", Some("4"))], "at most 1 a flip: +2; this does not hold"),
        (&[("admission.mode", Some("shadow")), ("retry.max_attempts", Some("3"))], "at most 2"),
        (&[("cache.enabled", Some("true"))], "no cache"),
        (&[("retry.max_attempts", Some("3"))], ""),
        (off, ""),
    ];
    for (changes, words) in cases {
        let refused = refusal(&Seen::calm(), &last_step, changes);
        assert_eq!(refused.is_some(), !words.is_empty(), "{changes:?}: {refused:?}");
        assert!(refused.as_ref().is_none_or(|text| text.contains(words)), "{refused:?}");
    }
    let passed = Settings { mode: Mode::Off, ..Settings::default() };
    for changes in
        [[("retry.max_attempts", Some("3"))], [("retry.owner", Some("client"))]] as [[_; 1]; 2]
    {
        let text = refusal(&Seen::calm(), &passed, &changes).expect("nobody would hold it");
        assert!(text.starts_with("admission.mode is enforce, stored and effective: off"), "{text}");
    }
    for (base, words) in [
        (Settings { retry_max_attempts: 3, ..last_step.clone() }, "retry.max_attempts is at most"),
        (Settings { retry_owner: RetryOwner::Client, ..last_step.clone() }, "the gateway owns"),
        (Settings::default(), "admission.enforced_ratio is at most 0.25"),
    ] {
        let text = refusal(&Seen::calm(), &base, off).expect(words);
        assert!(text.starts_with(words), "{text}");
    }
}

#[test]
fn every_signal_that_an_interlock_asks_for_can_refuse() {
    let last_step = Settings { enforced_ratio: 0.25, adaptive: false, ..Settings::default() };
    let changes: [Wanted; 3] = [
        &[("admission.mode", Some("off"))],
        &[("admission.mode", Some("shadow"))],
        &[("admission.enforced_ratio", Some("0.125"))],
    ];
    for (signal, number, words) in [
        ("amplification", Some(1.1), "amplification < 1.1: 1.10; this does not hold"),
        ("amplification", None, "attempts_rps, originals_rps; this cannot be told"),
        ("client_multiplication", Some(1.3), "client_multiplication < 1.3"),
        ("calm_s", Some(299.0), "calm_s >= 300"),
        ("calm_s", None, "calm_s >= 300: unknown"),
        ("tpm_headroom", Some(0.15), "tpm_headroom > 0.15"),
        ("rpm_headroom", None, "rpm_headroom > 0.15: unknown"),
        ("tpm_demand_ratio", Some(1.0), "tpm_demand_ratio < 1"),
        ("rpm_demand_ratio", Some(1.2), "rpm_demand_ratio < 1"),
        ("queue_oldest_age_s", Some(5.1), "queue_oldest_age_s <= 5"),
    ] {
        for changes in changes {
            let seen = Seen::calm().but(signal, number);
            let text = refusal(&seen, &last_step, changes).unwrap_or_default();
            assert!(text.contains(words), "{changes:?} with {signal} {number:?}: {text}");
        }
        let back = Settings { mode: Mode::Off, ..Settings::default() };
        let seen = Seen::calm().but(signal, number);
        assert_eq!(refusal(&seen, &back, &[("admission.mode", Some("enforce"))]), None, "safe");
    }
}

#[test]
fn steps_down_are_half_and_each_has_its_time() {
    let frozen = Settings { adaptive: false, ..Settings::default() };
    let mut table = Overrides::new("gw-1", frozen);
    let mut step = |ratio: &str, minutes: i64| {
        let change =
            body(&[("admission.enforced_ratio", Some(ratio))], &format!("{ratio} {minutes}"));
        let answer = Seen::calm().apply(&mut table, &change, NOW + TimeDelta::minutes(minutes));
        answer.err().map(|error| error.error.message)
    };
    assert!(step("0.25", 0).expect("a leap").contains("goes down by half a step"));
    assert_eq!(step("0.5", 0), None);
    assert!(step("0.25", 4).expect("too early").contains("the last step is 300 s old or more"));
    assert_eq!(step("0.25", 5), None);
    assert_eq!(step("0", 10), None);
}

#[test]
fn an_ill_gate_may_count_while_callers_repeat_once_it_is_confirmed() {
    let storm = |cause: &str, standing| Seen {
        verdict: Some(Verdict { cause: cause.to_owned(), standing, ..Verdict::empty() }),
        ..Seen::calm().but("amplification", Some(3.0)).but("calm_s", Some(0.0))
    };
    let shadow: Wanted = &[("admission.mode", Some("shadow"))];
    let ask = |seen: &Seen, changes: Wanted| refusal(seen, &Settings::default(), changes);
    let confirmed = storm("leaked-permits", Standing::Confirmed);
    assert_eq!(ask(&confirmed, shadow), None);
    assert!(ask(&confirmed, &[("admission.mode", Some("off"))]).is_some(), "it has to count");
    let likely = ask(&storm("leaked-permits", Standing::Likely), shadow).expect("not proven");
    assert!(likely.contains("wait until it is confirmed"), "{likely}");
    assert!(ask(&storm("nested-retries", Standing::Confirmed), shadow).is_some(), "a sound gate");
    let over = confirmed.but("tpm_demand_ratio", Some(1.1));
    assert!(ask(&over, shadow).is_some(), "the provider would refuse");
}

/// Nothing is known, so every interlock that asks signals refuses.
fn blind() -> Seen {
    Seen::default()
}

#[test]
fn what_held_before_the_newest_change_may_be_taken_up_again() {
    let mut table = off();
    let contain =
        body(&[("admission.mode", Some("enforce")), ("retry.max_attempts", Some("1"))], "r1");
    apply(&mut table, &contain).expect("valid");
    let back: Wanted = &[("admission.mode", None), ("retry.max_attempts", None)];
    // Half of it, or something else, is no undo.
    for other in [&back[..1], &[back[0], ("retry.max_attempts", Some("2"))]] {
        let error = blind().apply(&mut table, &body(other, "r2"), NOW).expect_err("not it");
        assert_eq!(error.error.code, ErrorCode::Interlock, "{other:?}");
    }
    blind().apply(&mut table, &body(back, "r3"), NOW).expect("as it was");
    assert_eq!(table.events(1)[0].marks, Marks { undoes: Some(1), ..Marks::default() });
    // An undo is not taken back by another.
    let again = body(&[("admission.mode", Some("enforce"))], "r4");
    apply(&mut table, &again).expect("valid");
    let mut kept = off();
    kept.restore(&table.to_json().expect("has a JSON form")).expect("readable");
    let off_again = body(&[("admission.mode", None)], "r5");
    blind().apply(&mut kept, &off_again, NOW).expect("known after a restart too");
    assert_eq!(kept.events(3)[0].marks.undoes, Some(3));
}

#[test]
fn a_client_cannot_say_that_it_takes_something_back() {
    let says = |mut change: ApplyBody| {
        change.reason = format!("{UNDO_OF} event 1 by alice: storm");
        change
    };
    let off_now = || says(body(&[("admission.mode", Some("off"))], "r9"));
    // No history, another's later change, and a state that never held.
    let mut table = Overrides::new("gw-1", Settings::default());
    blind().apply(&mut table, &off_now(), NOW).expect_err("there is nothing to undo");
    let mut table = off();
    apply(&mut table, &body(&[("admission.mode", Some("enforce"))], "r1")).expect("valid");
    let shadow = body(&[("admission.mode", Some("shadow"))], "r2");
    let glass = Seen { glass: true, ..Seen::calm() };
    glass.apply(&mut table, &breaking(shadow), NOW).expect("forced");
    blind().apply(&mut table, &off_now(), NOW).expect_err("that was two changes ago");
    let based = Settings { mode: Mode::Enforce, ..Settings::default() };
    let mut moved = Overrides::new("gw-1", based);
    apply(&mut moved, &body(&[("admission.mode", Some("enforce"))], "r1")).expect("valid");
    let kept = moved.to_json().expect("has a JSON form");
    let mut other_base = off();
    other_base.restore(&kept).expect("readable");
    let dropped = says(body(&[("admission.mode", None)], "r2"));
    blind().apply(&mut other_base, &dropped, NOW).expect_err("off never held here");
}

fn breaking(mut change: ApplyBody) -> ApplyBody {
    let reason = "the provider told us to".to_owned();
    change.overriding = Some(OverrideRow { by: OverrideBy::BreakGlass, reason });
    change
}

#[test]
fn break_glass_passes_interlocks_and_is_written_down() {
    let change = || breaking(body(&[("admission.mode", Some("off"))], "r1"));
    let mut table = Overrides::new("gw-1", Settings::default());
    blind().apply(&mut table, &change(), NOW).expect_err("a wish without the second token");
    let glass = Seen { glass: true, ..blind() };
    let plain = body(&[("admission.mode", Some("off"))], "r1");
    glass.apply(&mut table, &plain, NOW).expect_err("the second token without a wish");
    let mut silent = change();
    silent.overriding.as_mut().expect("it is there").reason = "  ".to_owned();
    let error = glass.apply(&mut table, &silent, NOW).expect_err("no reason");
    assert_eq!(error.error.code, ErrorCode::Value);
    let cache = breaking(body(&[("cache.enabled", Some("true"))], "r1"));
    glass.apply(&mut table, &cache, NOW).expect_err("there is no cache, for nobody");
    glass.apply(&mut table, &change(), NOW).expect("with both");
    let event = &table.events(0)[0];
    assert_eq!(event.marks.override_reason.as_deref(), Some("the provider told us to"));
    let passed = &event.marks.overridden;
    assert!(passed.iter().any(|text| text.starts_with("amplification < 1.1")), "{passed:?}");
    let row = table.table(&table.settings());
    let row = row.flags.iter().find(|row| row.key == "admission.mode").expect("a flag");
    assert_eq!(row.by.as_deref(), Some("alice (break-glass)"));
    // Where no interlock refuses, nothing was passed.
    let mut calm = Overrides::new("gw-1", Settings::default());
    let raised = breaking(body(&[("retry.max_attempts", Some("3"))], "r1"));
    glass.apply(&mut calm, &raised, NOW).expect("allowed");
    assert_eq!(calm.events(0)[0].marks, Marks::default());
}

#[test]
fn overrides_survive_a_restart() {
    let mut table = off();
    apply(&mut table, &body(&[("admission.mode", Some("enforce"))], "r1")).expect("valid");
    let mut next = off();
    let dropped = next.restore(&table.to_json().expect("has a JSON form")).expect("readable");
    assert!(dropped.is_empty());
    assert_eq!(next.settings().mode, Mode::Enforce);
    assert_eq!(next.revision(), Revision(1));
}

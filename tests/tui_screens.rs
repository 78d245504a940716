//! Every screen as it is drawn, text and style. The style layer is run-length: what is not plain, where.

#[path = "tui_stores/mod.rs"]
mod stores;
#[path = "tui_support/mod.rs"]
mod support;

use std::sync::Arc;

use crossterm::event::KeyCode;
use support::shot::{COLOUR, KEPT, PLAIN, SIZES, draw, keep, press, shot};
use support::{after, at, look_at, table, wall, watch, watched};
use weir::diagnosis::{Change, Level, What};
use weir::flag::Outcome;
use weir::ingest::{Alert, AlertState, Alerts, Observation, Severity, Silence};
use weir::signal::{Quality, Value};
use weir::tui::app::{Effect, Model, Msg, update};
use weir::tui::{Arming, Backfill, Update};

fn plan_open(model: &mut Model) {
    let effects = press(model, KeyCode::Char('c'));
    let Some(Effect::MakePlan(wish)) = effects.into_iter().next() else { panic!("no wish") };
    let now = model.now;
    update(model, Msg::Planned(Ok(wish.plan(&table(), "id-1".to_owned()).expect("a plan"))), now);
}

/// The drill after a minute, and some keys.
fn after_keys(keys: &str) -> Model {
    let mut model = watched(60, None);
    for letter in keys.chars() {
        let code = if letter == '\n' { KeyCode::Enter } else { KeyCode::Char(letter) };
        press(&mut model, code);
    }
    model
}

fn contained() -> Model {
    let mut model = watched(60, None);
    plan_open(&mut model);
    look_at(&mut model, 80, 24);
    press(&mut model, KeyCode::Tab);
    let effects = press(&mut model, KeyCode::Enter);
    let Some(Effect::Apply(plan)) = effects.into_iter().next() else { panic!("not sent") };
    let table = after(&table(), &plan, "oncall", wall(61));
    let now = model.now;
    let outcome = Outcome::applied(table.revision);
    update(&mut model, Msg::Applied { request_id: "id-1".to_owned(), outcome }, now);
    update(&mut model, Msg::Flags(Ok(table)), now);
    watch(&mut model, 62, 80, Some(62));
    model
}

/// The provider has been down for twenty seconds.
fn provider_down() -> Model {
    let mut model = watched(60, None);
    for second in 61..=80 {
        let round = support::round(second, None);
        let mut observation = Observation { ..(*round.observation).clone() };
        fail(&mut observation, 1);
        let mut snapshot = (*observation.scopes[0]).clone();
        for name in ["tpm_headroom", "rpm_headroom", "tpm_limit", "rpm_limit"] {
            // As the assembler leaves a source out that has been quiet for too long.
            snapshot.signals.remove(name).expect("the fixture has it");
            let why = format!("stale: provider last answered {} s ago", second - 60);
            snapshot.absent.insert(name.to_owned(), why);
        }
        observation.scopes[0] = Arc::new(snapshot);
        let round = Update { observation: Arc::new(observation), ..round };
        update(&mut model, Msg::Updated(Arc::new(round)), at(second));
        update(&mut model, Msg::Tick(wall(second)), at(second));
    }
    model
}

/// A source answered last at second 60.
fn fail(observation: &mut Observation, index: usize) {
    let source = &mut observation.sources[index];
    source.last_good = Some(at(60));
    source.error = Some(format!(
        "{}: nothing answers at {} (Connection refused (os error 111)): is it running?",
        source.name, source.url
    ));
}

/// The gateway has been down for twenty seconds, and everything else too.
fn all_down() -> Model {
    let mut model = watched(60, None);
    let round = support::round(80, None);
    let mut observation = Observation { ..(*round.observation).clone() };
    for name in ["clients-b", "clients-c"] {
        observation.sources.push(support::source(name, 80));
    }
    for index in 0..observation.sources.len() {
        fail(&mut observation, index);
    }
    observation.sources[4].last_good = None;
    let mut snapshot = weir::signal::Snapshot::new(support::SCOPE, 10.0);
    snapshot.absent.insert("offered_rps".to_owned(), "gateway is silent".to_owned());
    observation.scopes[0] = Arc::new(snapshot);
    let round = Update { observation: Arc::new(observation), ..round };
    update(&mut model, Msg::Updated(Arc::new(round)), at(80));
    update(&mut model, Msg::Tick(wall(80)), at(80));
    model
}

#[test]
fn every_screen_is_kept_at_every_size_with_its_styles() {
    for name in KEPT {
        for word in ["colour", "mono"] {
            let root = env!("CARGO_MANIFEST_DIR");
            let file = format!("{root}/tests/snapshots/{name}-{word}.snap");
            let kept = std::fs::read_to_string(&file).unwrap_or_else(|why| panic!("{file}: {why}"));
            for (width, height) in SIZES {
                assert!(kept.contains(&format!("=== {width}x{height}\n")), "{file}");
            }
            assert_eq!(kept.matches("--- styles\n").count(), SIZES.len(), "{file}");
        }
    }
}

#[test]
fn overview() {
    keep(|| watched(60, None));
}

#[test]
fn timeline() {
    keep(|| {
        let mut model = contained();
        press(&mut model, KeyCode::Char('t'));
        model
    });
}

#[test]
fn help() {
    keep(|| after_keys("?"));
}

#[test]
fn causes() {
    keep(|| after_keys("dx"));
}

#[test]
fn why() {
    keep(|| after_keys("dw"));
}

#[test]
fn note() {
    keep(|| after_keys("npaged bob"));
}

#[test]
fn edit() {
    keep(|| after_keys("f\n"));
}

#[test]
fn arm() {
    keep(|| {
        let mut model = watched(60, None);
        "production".clone_into(&mut model.environment);
        model.arming = Arming::Locked;
        press(&mut model, KeyCode::Char('A'));
        model
    });
}

#[test]
fn planning() {
    keep(|| after_keys("c"));
}

#[test]
fn leaving() {
    keep(|| {
        let mut model = contained();
        press(&mut model, KeyCode::Char('q'));
        model
    });
}

#[test]
fn overview_contained() {
    insta::assert_snapshot!("contained-80x24", shot(&contained(), &COLOUR, 80, 24));
}

#[test]
fn overview_without_a_source() {
    insta::assert_snapshot!("provider-down-80x24", shot(&provider_down(), &COLOUR, 80, 24));
    insta::assert_snapshot!("all-down-80x24", shot(&all_down(), &COLOUR, 80, 24));
}

#[test]
fn tall_and_narrow() {
    let mut model = watched(60, None);
    insta::assert_snapshot!("overview-30x40", shot(&model, &COLOUR, 30, 40));
    press(&mut model, KeyCode::Char('d'));
    let screen = shot(&model, &COLOUR, 30, 60);
    assert!(screen.contains("9.30 > 3.3"), "{screen}");
}

#[test]
fn diagnose() {
    keep(|| after_keys("d"));
}

#[test]
fn diagnose_once_the_plan_is_in_force() {
    let mut model = contained();
    watch(&mut model, 81, 82, None);
    press(&mut model, KeyCode::Char('d'));
    let screen = shot(&model, &COLOUR, 80, 24);
    assert!(screen.contains("contain applied, watching:"), "{screen}");
    assert!(!screen.contains("plan it"), "{screen}");
}

#[test]
fn plan() {
    let planned = || {
        let mut model = watched(60, None);
        plan_open(&mut model);
        model
    };
    keep(planned);
    let mut model = planned();
    look_at(&mut model, 44, 16);
    insta::assert_snapshot!("plan-44x16-plain", shot(&model, &PLAIN, 44, 16));
}

#[test]
fn plan_of_every_safe_value() {
    let mut model = watched(60, None);
    press(&mut model, KeyCode::Char('f'));
    let effects = press(&mut model, KeyCode::Char('S'));
    let Some(Effect::MakePlan(wish)) = effects.into_iter().next() else { panic!("no wish") };
    let now = model.now;
    let plan = wish.plan(&table(), "id-1".to_owned()).expect("a plan");
    update(&mut model, Msg::Planned(Ok(plan)), now);
    look_at(&mut model, 80, 24);
    insta::assert_snapshot!("plan-safe-80x24", shot(&model, &COLOUR, 80, 24));
}

#[test]
fn plan_that_leads_back() {
    let mut model = contained();
    let table = model.flags.table.clone().expect("a table");
    let effects = press(&mut model, KeyCode::Char('u'));
    let Some(Effect::MakePlan(wish)) = effects.into_iter().next() else { panic!("no wish") };
    let now = model.now;
    let plan = wish.plan(&table, "id-2".to_owned()).expect("a plan");
    update(&mut model, Msg::Planned(Ok(plan)), now);
    look_at(&mut model, 80, 24);
    insta::assert_snapshot!("plan-undo-80x24", shot(&model, &COLOUR, 80, 24));
}

#[test]
fn flags() {
    keep(|| {
        let mut model = contained();
        press(&mut model, KeyCode::Char('f'));
        model
    });
}

#[test]
fn before_the_first_answer() {
    let model = Model::new("watch", "production", support::berlin(), support::start());
    let screen = shot(&model, &COLOUR, 80, 24);
    assert!(screen.contains("UNKNOWN connecting..."), "{screen}");
    assert!(!screen.contains("0%"), "nothing known is nothing shown: {screen}");
}

#[test]
fn the_verdict_survives_the_smallest_windows() {
    let model = watched(60, None);
    let line = shot(&model, &COLOUR, 39, 9);
    assert!(line.contains("INCIDENT nested-retries"), "{line}");
    for (width, height) in [(1, 1), (1, 40), (250, 1), (2, 2), (40, 10), (39, 10)] {
        draw(&model, &PLAIN, width, height);
    }
}

#[test]
fn without_colour_no_cell_has_one_and_the_selection_is_seen() {
    let mut model = watched(60, None);
    press(&mut model, KeyCode::Char('f'));
    let screen = shot(&model, &PLAIN, 80, 24);
    for colour in ["red", "green", "yellow", "cyan", "magenta"] {
        assert!(!screen.contains(colour), "{colour}");
    }
    assert!(screen.contains("reversed"), "{screen}");
    assert!(screen.is_ascii());
}

#[test]
fn help_lists_every_action() {
    let mut model = watched(60, None);
    press(&mut model, KeyCode::Char('?'));
    let screen = shot(&model, &COLOUR, 120, 120);
    for entry in weir::tui::app::action::REGISTRY {
        assert!(screen.contains(entry.description), "{}", entry.name);
    }
}

fn alert(name: &str, severity: Severity, state: AlertState) -> Alert {
    let labels = [("job".to_owned(), "gateway".to_owned())];
    Alert {
        id: name.to_owned(),
        name: name.to_owned(),
        severity,
        state,
        labels: labels.into(),
        summary: Some("more than 5% of requests fail".to_owned()),
        since: Some(wall(0)),
        silenced_by: vec!["s1".to_owned()],
    }
}

fn alerts(second: u64) -> Alerts {
    let all = vec![
        alert("HighErrorRate", Severity::Critical, AlertState::Firing),
        alert("SlowAnswers", Severity::Warning, AlertState::Firing),
        alert("QuotaLow", Severity::Warning, AlertState::Silenced),
    ];
    let silence = Silence {
        id: "s1".to_owned(),
        matchers: vec!["alertname=\"QuotaLow\"".to_owned()],
        by: "ada".to_owned(),
        comment: "known since nine".to_owned(),
        until: Some(wall(3_600)),
    };
    Alerts::new(&Arc::from("alertmanager"), all, vec![silence], 0, at(second))
}

/// The drill at second 61 with what else can be known, as `more` sets it.
fn knowing(more: impl FnOnce(&mut Update, &mut Observation)) -> Model {
    let mut model = watched(60, None);
    let mut round = support::round(61, None);
    let mut observation = Observation { ..(*round.observation).clone() };
    more(&mut round, &mut observation);
    round.observation = Arc::new(observation);
    update(&mut model, Msg::Updated(Arc::new(round)), at(61));
    update(&mut model, Msg::Tick(wall(61)), at(61));
    model
}

#[test]
fn alerts_stand_on_every_screen_and_in_a_list() {
    let mut model = knowing(|round, _| round.alerts = Some(Arc::new(alerts(61))));
    let line = "alerts: 2 firing (1 silenced): HighErrorRate critical for 1m01s; a lists them";
    for (width, height) in [(80, 24), (120, 40), (200, 50)] {
        let screen = shot(&model, &COLOUR, width, height);
        assert!(screen.contains(line) && screen.contains("alertmanager 0s"), "{screen}");
    }
    assert!(
        model.timeline.newest_first().any(|event| event.text == "alert HighErrorRate critical")
    );
    keep(|| {
        let mut model = knowing(|round, _| round.alerts = Some(Arc::new(alerts(61))));
        press(&mut model, KeyCode::Char('a'));
        model
    });
    let over = Alerts::new(&Arc::from("alertmanager"), Vec::new(), Vec::new(), 0, at(62));
    let round = Update { alerts: Some(Arc::new(over)), ..support::round(62, None) };
    update(&mut model, Msg::Updated(Arc::new(round)), at(62));
    assert!(model.timeline.newest_first().any(|event| event.text == "alert HighErrorRate over"));
}

#[test]
fn an_alertmanager_that_is_down_is_named_and_nothing_else_suffers() {
    let down = alerts(31).failed("alertmanager: at http://x: nothing answers".to_owned());
    let model = knowing(|round, _| round.alerts = Some(Arc::new(down)));
    let screen = shot(&model, &COLOUR, 120, 40);
    assert!(screen.contains("alertmanager down, alerts are 30s old: at http://x"), "{screen}");
    assert!(screen.contains("INCIDENT nested-retries"), "{screen}");
    let never = Alerts { source: Arc::from("alertmanager"), ..Alerts::default() };
    let never = never.failed("alertmanager: nothing answers".to_owned());
    let model = knowing(|round, _| round.alerts = Some(Arc::new(never)));
    let screen = shot(&model, &COLOUR, 120, 40);
    assert!(screen.contains("alertmanager never answered: nothing answers"), "{screen}");
    assert!(screen.contains("alertmanager DOWN"), "{screen}");
}

#[test]
fn without_an_alertmanager_its_key_does_nothing() {
    let mut model = watched(60, None);
    press(&mut model, KeyCode::Char('a'));
    assert_eq!(model.modes.len(), 1);
}

#[test]
fn what_a_source_keeps_back_is_named() {
    let mut model = knowing(|_, observation| {
        let source = &mut observation.sources[1];
        source.warnings = vec!["store 2 is gone: partial answer".to_owned(), "more".to_owned()];
        source.via = Some("prom:9090".to_owned());
        let source = &mut observation.sources[2];
        source.degraded = vec![(17, "no value".to_owned()), (19, "no name".to_owned())];
        source.instances = (3, 3);
    });
    let screen = shot(&model, &COLOUR, 120, 40);
    for words in [
        "provider warns (1 more): store 2 is gone: partial answer",
        "clients: Prometheus would reject this target: line 17 and 1 more: no value",
        "provider via prom:9090 0s",
        "clients 3/3 0s",
    ] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
    let mut round = support::round(62, None);
    let mut observation = Observation { ..(*round.observation).clone() };
    observation.sources[2].instances = (2, 3);
    round.observation = Arc::new(observation);
    update(&mut model, Msg::Updated(Arc::new(round)), at(62));
    assert!(shot(&model, &COLOUR, 80, 24).contains("clients 2/3 0s"));
    let newest = model.timeline.newest_first().next().map(|event| event.text.clone());
    assert_eq!(newest.as_deref(), Some("clients: 2 of 3 instances"));
}

#[test]
fn a_change_is_an_event_and_a_voided_baseline_says_why() {
    let change = Arc::new(Change {
        scope: support::SCOPE.to_owned(),
        what: What::Limit("tpm_limit"),
        from: Some(Level::Number(1_200_000.0)),
        to: Level::Number(600_000.0),
        at: at(59),
    });
    let mut model = knowing(|round, _| {
        round.changes = vec![Arc::clone(&change)];
        let mut verdict = (*round.verdicts[0]).clone();
        let evidence = verdict.evidence.iter_mut().find(|one| one.name == "fell");
        let evidence = evidence.expect("the fixture has it");
        evidence.state = weir::diagnosis::Truth::Unknown;
        evidence.reason = Some("no-baseline: tpm_limit changed 12 min ago".to_owned());
        round.verdicts = vec![Arc::new(verdict)];
    });
    for second in 62..64 {
        let round = Update { changes: vec![Arc::clone(&change)], ..support::round(second, None) };
        update(&mut model, Msg::Updated(Arc::new(round)), at(second));
    }
    let said = |event: &&weir::tui::app::events::Event| event.text.starts_with("tpm_limit");
    let events: Vec<_> = model.timeline.newest_first().filter(said).collect();
    assert_eq!(events.len(), 1, "every round carries it, it is said once");
    assert_eq!(events[0].text, "tpm_limit 1,200,000 -> 600,000");
    let mut model = knowing(|round, _| {
        let mut verdict = (*round.verdicts[0]).clone();
        verdict.evidence[4].reason = Some("no-baseline: tpm_limit changed 12 min ago".to_owned());
        round.verdicts = vec![Arc::new(verdict)];
    });
    press(&mut model, KeyCode::Char('d'));
    for (width, height) in [(80, 24), (120, 40)] {
        let screen = shot(&model, &COLOUR, width, height);
        assert!(screen.contains("no-baseline: tpm_limit changed 12 min ago"), "{screen}");
    }
}

#[test]
fn a_chart_shows_the_least_of_a_column_below_the_most() {
    // An hour in which one second of each minute was bad.
    let past = (0..3_600_u64).map(|second| {
        let mut snapshot = support::snapshot(0, None);
        let value = if second % 60 == 30 { 9.0 } else { 1.0 };
        snapshot.set("amplification", Value::Number(value), &Arc::from("prometheus"));
        (at(second), Arc::new(snapshot))
    });
    let backfill = Backfill { scopes: [(support::SCOPE.to_owned(), past.collect())].into() };
    let mut model = Model::new("watch", "production", support::berlin(), support::start());
    let carried = Some(Arc::new(backfill));
    for second in 3_600..3_603 {
        let round = Update { backfill: carried.clone(), ..support::round(second, Some(0)) };
        update(&mut model, Msg::Updated(Arc::new(round)), at(second));
    }
    assert_eq!(model.trends().map(weir::tui::app::history::History::len_s), Some(3_600));
    let screen = shot(&model, &COLOUR, 120, 40);
    assert!(screen.contains('▒'), "spikes stand above what was always reached: {screen}");
    assert!(shot(&model, &PLAIN, 120, 40).contains('%'));
}

#[test]
fn a_lower_bound_is_not_taken_for_the_truth() {
    let bounded = |amplification: f64| {
        let model = knowing(|_, observation| {
            for scope in &mut observation.scopes {
                let snapshot = Arc::make_mut(scope);
                snapshot.signals.remove("originals_rps");
                for (signal, value) in
                    [("amplification", Some(amplification)), ("offered_rps", None)]
                {
                    let reading = snapshot.signals.get_mut(signal).expect("known");
                    reading.quality = Quality::LowerBound;
                    if let Some(value) = value {
                        reading.value = Value::Number(value);
                    }
                }
            }
        });
        [(80, 24), (200, 50)].map(|(width, height)| shot(&model, &COLOUR, width, height))
    };
    for text in bounded(1.06).iter().chain(&bounded(1.6)) {
        assert!(text.contains("offered   ") && text.contains("≥1,"), "{text}");
        assert!(text.contains("of requests"), "nobody tells originals: {text}");
        assert!(!text.contains("one each"), "{text}");
    }
    let [narrow, wide] = bounded(1.06);
    assert!(narrow.contains("≥1.06x"), "{narrow}");
    assert!(wide.contains("this or more"), "{wide}");
    assert!(bounded(1.6)[1].contains("raised, or more"));
    let plain = knowing(|_, _| {});
    assert!(!shot(&plain, &COLOUR, 80, 24).contains('≥'));
}

#[test]
fn a_text_at_its_end_goes_up_at_once() {
    let mut model = watched(60, None);
    press(&mut model, KeyCode::Char('?'));
    let top = shot(&model, &COLOUR, 80, 24);
    press(&mut model, KeyCode::Char('G'));
    let end = shot(&model, &COLOUR, 80, 24);
    press(&mut model, KeyCode::Char('k'));
    let above = shot(&model, &COLOUR, 80, 24);
    assert!(top != end && end != above, "{above}");
    assert!(above.contains("1 more row "), "{above}");
}

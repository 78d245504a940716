//! From any number to where it comes from: the signals behind a screen, and the series behind a signal.

#[path = "tui_support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use support::shot::{COLOUR, draw, keep, press, shot};
use support::{at, wall};
use weir::ingest::{Account, HowRead, Observation, Origin, RawSeries, Verified};
use weir::signal::{CATALOGUE, Quality, Snapshot, Unit, Value};
use weir::tui::Update;
use weir::tui::app::page::Page;
use weir::tui::app::{Effect, Model, Msg, update};

fn map<const N: usize>(parts: [(&str, Value); N]) -> Value {
    Value::Map(parts.map(|(name, value)| (name.to_owned(), value)).into())
}

/// A value for a signal: another one for another `size`.
fn value(name: &str, unit: Unit, size: f64) -> Value {
    let number = |value: f64| Value::Number(value);
    let word = |text: &str| Value::Text(text.to_owned());
    let is_small = size < 2.0;
    let row = |parts: &[&str]| {
        let known = parts.iter().map(|part| ((*part).to_owned(), number(0.2 * size)));
        Value::Map(known.chain([("id".to_owned(), word("one"))]).collect())
    };
    match name {
        "breaker" => map([
            // One that opens is an event, and those are marked on every chart.
            ("state", word("closed")),
            ("open_since_s", number(3.0 * size)),
            ("reset_timeout_s", number(9.0 * size)),
            ("success_age_s", number(2.0 * size)),
        ]),
        "cooldown" => map([
            ("in_cooldown", number(size)),
            ("total", number(4.0)),
            ("cooldown_s", number(30.0 * size)),
            ("entered_within_s", number(5.0)),
        ]),
        "tenants" => Value::List(vec![row(&["share_tokens", "share_requests", "refused_share"])]),
        "lanes" => {
            let lane = map([("share_tokens", number(0.3 * size)), ("refused_share", number(0.1))]);
            map([("interactive", lane.clone()), ("batch", lane)])
        }
        "deployments" => Value::List(vec![row(&["share", "headroom"])]),
        "models" | "models_asked" => Value::List(vec![row(&["share", "refused_share"])]),
        "error_codes" => map([("rate_limit_exceeded", number(14.0 * size))]),
        "attempts_histogram" => map([("1", number(5.0 * size)), ("2", number(3.0))]),
        _ => match unit {
            Unit::Text => word(if is_small { "here" } else { "there" }),
            Unit::Record => map([("p95_s", number(0.2 * size)), ("hit_ratio", number(0.1 * size))]),
            Unit::Ratio => number(0.3 * size),
            _ => number(7.0 * size),
        },
    }
}

/// A model whose newest look has these signals, at these sizes.
fn seeing(sizes: &BTreeMap<&str, f64>) -> Model {
    let mut model = support::watched(3, None);
    let round = support::round(4, None);
    let mut snapshot = Snapshot::new(round.observation.scopes[0].scope.clone(), 10.0);
    let gateway = Arc::from("gateway");
    for definition in CATALOGUE {
        if let Some(size) = sizes.get(definition.name) {
            snapshot.set(definition.name, value(definition.name, definition.unit, *size), &gateway);
        }
    }
    let scopes = vec![Arc::new(snapshot)];
    let observation = Arc::new(Observation { scopes, ..(*round.observation).clone() });
    let seen = Update { observation, ..round };
    update(&mut model, Msg::Updated(Arc::new(seen)), at(4));
    update(&mut model, Msg::Tick(wall(4)), at(4));
    model
}

/// The screens that show the same signals whatever there is, by their keys.
const SCREENS: &str = "o123456";

/// Every one of those screens, with these signals.
fn pictures(sizes: &BTreeMap<&str, f64>) -> Vec<Buffer> {
    let mut model = seeing(sizes);
    let picture = |key| {
        press(&mut model, KeyCode::Char(key));
        draw(&model, &COLOUR, 200, 50)
    };
    SCREENS.chars().map(picture).collect()
}

/// For each of those screens the signals without or beside which it looks different.
fn shown() -> Vec<BTreeSet<&'static str>> {
    let all: BTreeMap<&str, f64> = CATALOGUE.iter().map(|one| (one.name, 1.0)).collect();
    // A gateway that says nothing of admission is drawn as one that is gone.
    let none = BTreeMap::from([("admitted_rps", 1.0), ("offered_rps", 1.0)]);
    let (whole, bare) = (pictures(&all), pictures(&none));
    let mut shown = vec![BTreeSet::new(); whole.len()];
    for definition in CATALOGUE {
        let name = definition.name;
        let mut without = all.clone();
        without.remove(name);
        let mut other = all.clone();
        other.insert(name, 2.5);
        let mut alone = none.clone();
        alone.insert(name, 1.0);
        for (changed, from) in [(without, &whole), (other, &whole), (alone, &bare)] {
            for (at, picture) in pictures(&changed).iter().enumerate() {
                if *picture != from[at] {
                    shown[at].insert(name);
                }
            }
        }
    }
    shown
}

#[test]
fn every_number_on_a_screen_is_among_its_signals() {
    for (key, shown) in SCREENS.chars().zip(shown()) {
        let mut model = seeing(&BTreeMap::new());
        press(&mut model, KeyCode::Char(key));
        let listed = model.signals_on_screen();
        let names: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
        assert_eq!(listed.len(), names.len(), "{key}: {listed:?}");
        assert_eq!(names, shown, "on {key}");
    }
}

fn press_all(model: &mut Model, keys: &[KeyCode]) -> Vec<Effect> {
    keys.iter().flat_map(|key| press(model, *key)).collect()
}

fn text(model: &Model, width: u16, height: u16) -> String {
    let whole = shot(model, &COLOUR, width, height);
    whole.split("--- styles").next().unwrap_or_default().to_owned()
}

/// What a gateway says of what was asked.
fn origin() -> Origin {
    let series = RawSeries {
        instance: String::new(),
        name: "weir_originals_total".to_owned(),
        labels: [("lane", "interactive"), ("scope", "sim/drill/embed")].into_iter().collect(),
        value: Some(2_694.0),
        gained: Some((1_775.0, 10.0)),
        recent: [1_000.0, 1_060.0, 1_240.0].map(Some).to_vec(),
    };
    let reading = HowRead {
        expressions: vec![(String::new(), "rate(weir_originals_total)".to_owned())],
        quality: Quality::Exact,
        note: None,
        outcome: Ok(Value::Number(177.5)),
        is_taken: true,
        signals: Vec::new(),
        series: vec![series],
        more: 3,
    };
    let account = Account {
        source: Arc::from("gateway"),
        adapter: "weir gateway".to_owned(),
        verified: Verified::Run,
        age_s: 1.0,
        silent: None,
        is_believed: true,
        readings: vec![reading],
    };
    let other = Account {
        source: Arc::from("clients"),
        silent: Some("last answered 57 s ago".to_owned()),
        is_believed: false,
        readings: Vec::new(),
        ..account.clone()
    };
    Origin {
        scope: support::SCOPE.to_owned(),
        signal: "originals_rps".to_owned(),
        accounts: vec![account, other],
    }
}

/// The model that has been told where the first number of the page of retries comes from.
fn told() -> Model {
    let mut model = support::watched(60, None);
    press_all(&mut model, &[KeyCode::Char('2'), KeyCode::Char('i'), KeyCode::Enter]);
    let (scope, signal) = (support::SCOPE.to_owned(), "originals_rps".to_owned());
    update(&mut model, Msg::Origin { scope, signal, answer: Ok(origin()) }, at(60));
    model
}

#[test]
fn origins() {
    keep(told);
}

#[test]
fn two_keys_and_enter_lead_from_a_screen_to_the_series_and_back() {
    let mut model = support::watched(60, None);
    press_all(&mut model, &[KeyCode::Char('2'), KeyCode::Char('i')]);
    let listed = text(&model, 80, 24);
    assert!(listed.contains("those of the screen before"), "{listed}");
    assert!(listed.contains("units of work users asked for"), "{listed}");
    let asked = press_all(&mut model, &[KeyCode::Enter]);
    let [Effect::Origin { scope, signal }] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((scope.as_str(), signal.as_str()), (support::SCOPE, "originals_rps"));
    assert!(text(&model, 80, 24).contains("asking..."));
    let told = Msg::Origin { scope: scope.clone(), signal: signal.clone(), answer: Ok(origin()) };
    update(&mut model, told, at(60));
    // It stays new while it is looked at, and is not asked for once it is closed.
    let again = update(&mut model, Msg::Updated(Arc::new(support::round(61, None))), at(61));
    assert!(again.iter().any(|effect| matches!(effect, Effect::Origin { .. })), "{again:?}");
    press_all(&mut model, &[KeyCode::Esc]);
    let closed = update(&mut model, Msg::Updated(Arc::new(support::round(62, None))), at(62));
    assert!(!closed.iter().any(|effect| matches!(effect, Effect::Origin { .. })), "{closed:?}");
    press_all(&mut model, &[KeyCode::Esc]);
    assert!(text(&model, 80, 24).contains(" retries of "));
}

#[test]
fn an_answer_to_another_question_is_not_shown() {
    let mut model = support::watched(60, None);
    press_all(&mut model, &[KeyCode::Char('9'), KeyCode::Down, KeyCode::Enter]);
    let sought = model.sought.clone().expect("asked");
    assert_ne!(sought.signal, "originals_rps");
    let late = Msg::Origin {
        scope: support::SCOPE.to_owned(),
        signal: "originals_rps".to_owned(),
        answer: Ok(origin()),
    };
    update(&mut model, late, at(60));
    assert_eq!(model.sought, Some(sought));
}

#[test]
fn every_signal_is_listed_known_ones_first() {
    let mut model = support::watched(60, None);
    press_all(&mut model, &[KeyCode::Char('9')]);
    let rows = model.rows(Page::Signals, &weir::tui::app::page::Listed::default());
    let snapshot = model.snapshot().expect("seen").clone();
    let known = snapshot.signals.len();
    assert!(rows[..known].iter().all(|name| snapshot.get(name).is_some()), "{rows:?}");
    assert!(rows[known..].iter().all(|name| snapshot.absent.contains_key(name)), "{rows:?}");
}

#[test]
fn series_of_now_are_not_told_beside_numbers_of_then() {
    for key in ['p', ','] {
        let mut model = support::watched(60, None);
        press_all(&mut model, &[KeyCode::Char('9'), KeyCode::Char(key)]);
        assert!(!text(&model, 80, 24).contains("the series behind it"));
        assert!(press_all(&mut model, &[KeyCode::Enter]).is_empty(), "{key}");
        assert_eq!(model.sought, None, "{key}");
        press_all(&mut model, &[KeyCode::Char('$'), KeyCode::Enter]);
        assert!(model.sought.is_some(), "{key}");
    }
}

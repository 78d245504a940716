//! The pages, the palette and the filter: what is drawn, what is chosen, and that unknown is no zero.

#[path = "tui_support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use crossterm::event::KeyCode;
use support::shot::{COLOUR, PLAIN, keep, press, shot};
use support::{at, wall};
use weir::diagnosis::Standing;
use weir::flag::{Link, Original};
use weir::ingest::Observation;
use weir::signal::{Quality, Snapshot, Value};
use weir::tui::Update;
use weir::tui::app::mode::Mode;
use weir::tui::app::page::Page;
use weir::tui::app::{Effect, Model, Msg, update};

/// A second scope, which is fine.
const OTHER: &str = "openai/acct-1/chat";

fn number(value: f64) -> Value {
    Value::Number(value)
}

fn map<const N: usize>(parts: [(&str, Value); N]) -> Value {
    Value::Map(parts.map(|(name, value)| (name.to_owned(), value)).into())
}

fn text(words: &str) -> Value {
    Value::Text(words.to_owned())
}

fn tenant(id: &str, tokens: f64, refused: f64) -> Value {
    map([
        ("id", text(id)),
        ("share_tokens", number(tokens)),
        ("share_requests", number(tokens * 0.9)),
        ("refused_share", number(refused)),
    ])
}

/// What a gateway knows beside the numbers of the storm: a breaker that opens, tenants, codes.
fn know_more(snapshot: &mut Snapshot, second: u64) {
    let gateway = Arc::from("gateway");
    let is_open = second >= 50;
    let mut breaker =
        BTreeMap::from([("state".to_owned(), text(if is_open { "open" } else { "closed" }))]);
    if is_open {
        breaker.insert("open_since_s".to_owned(), number(1.5));
        breaker.insert("reset_timeout_s".to_owned(), number(4.0));
    }
    let tenants = [("shop", 0.6, 0.7), ("search", 0.3, 0.2), ("batch-reports", 0.1, 0.0)];
    let tenants = tenants.map(|(id, tokens, refused)| tenant(id, tokens, refused));
    let lane = |tokens, refused| {
        map([("share_tokens", number(tokens)), ("refused_share", number(refused))])
    };
    let deployment = |id: &str, state: &str| {
        map([
            ("id", text(id)),
            ("share", number(0.5)),
            ("headroom", number(0.1)),
            ("state", text(state)),
        ])
    };
    let records = [
        ("breaker", Value::Map(breaker)),
        ("tenants", Value::List(tenants.to_vec())),
        ("lanes", map([("interactive", lane(0.9, 0.5)), ("batch", lane(0.1, 0.0))])),
        (
            "error_codes",
            map([("rate_limit_exceeded", number(14_000.0)), ("overloaded", number(3.0))]),
        ),
        (
            "deployments",
            Value::List(vec![deployment("west", "serves"), deployment("east", "refuses")]),
        ),
        ("models", Value::List(vec![map([("id", text("embed-3")), ("share", number(1.0))])])),
    ];
    for (name, value) in records {
        snapshot.set(name, value, &gateway);
    }
    let numbers =
        [("success_rps", 66.0), ("reset_s", 59.0), ("tpm_reset_s", 59.0), ("loop_lag_s", 0.003)];
    for (name, value) in numbers {
        snapshot.set(name, number(value), &gateway);
    }
    snapshot.signals.get_mut("loop_lag_s").expect("just set").quality = Quality::Inferred;
    let why = "gateway: needs history that two scrapes do not have";
    for name in ["originals_rps_15m_ago", "day_headroom", "retry_wait_p50_s"] {
        snapshot.absent.insert(name.to_owned(), why.to_owned());
    }
}

/// One second of two scopes.
fn round(second: u64) -> Update {
    let round = support::round(second, None);
    let mut snapshot = (*round.observation.scopes[0]).clone();
    know_more(&mut snapshot, second);
    let mut other = support::snapshot(0, None);
    OTHER.clone_into(&mut other.scope);
    let mut fine = support::verdict(0, None);
    OTHER.clone_into(&mut fine.scope);
    "No incident: nobody refuses, attempts succeed.".clone_into(&mut fine.say);
    let observation = Observation {
        scopes: vec![Arc::new(snapshot), Arc::new(other)],
        ..(*round.observation).clone()
    };
    let mut verdicts = round.verdicts.clone();
    verdicts.push(Arc::new(fine));
    Update { observation: Arc::new(observation), verdicts, ..round }
}

fn see(model: &mut Model, round: Update, second: u64) {
    update(model, Msg::Updated(Arc::new(round)), at(second));
    update(model, Msg::Tick(wall(second)), at(second));
}

/// A model that has watched both scopes for a minute.
fn two_scopes() -> Model {
    let mut model = Model::new("drill launch-0900", "drill", support::berlin(), support::start());
    update(&mut model, Msg::Flags(Ok(support::table())), at(0));
    for second in 0..=60 {
        see(&mut model, round(second), second);
    }
    model
}

fn key(page: Page) -> KeyCode {
    let at = Page::ALL.iter().position(|one| *one == page).expect("a page");
    KeyCode::Char(char::from(b'1' + u8::try_from(at).expect("a few pages")))
}

/// The text of a screen without its styles.
fn screen(model: &Model, width: u16, height: u16) -> String {
    let whole = shot(model, &COLOUR, width, height);
    whole.split("--- styles").next().unwrap_or_default().to_owned()
}

fn under_cursor(model: &Model) -> Option<String> {
    let Mode::Page(page, list) = model.screen() else { return None };
    model.row_under_cursor(*page, list)
}

fn type_in(model: &mut Model, letters: &str) {
    for letter in letters.chars() {
        press(model, KeyCode::Char(letter));
    }
}

fn page_shots(page: Page) {
    keep(|| {
        let mut model = two_scopes();
        press(&mut model, key(page));
        model
    });
}

#[test]
fn scopes() {
    page_shots(Page::Scopes);
}

#[test]
fn retries() {
    page_shots(Page::Retries);
}

#[test]
fn queue() {
    page_shots(Page::Queue);
}

#[test]
fn breakers() {
    page_shots(Page::Breakers);
}

#[test]
fn tenants() {
    page_shots(Page::Tenants);
}

#[test]
fn goodput() {
    page_shots(Page::Goodput);
}

#[test]
fn sources() {
    page_shots(Page::Sources);
}

#[test]
fn signals() {
    page_shots(Page::Signals);
}

fn link(ago_s: f64, what: &str) -> Link {
    Link { ago_s, what: what.to_owned(), ..Link::default() }
}

fn original() -> Original {
    let refused = Link {
        status: Some(429),
        code: Some("rate_limit_exceeded".to_owned()),
        hint_s: Some(0.511),
        ..link(2.9, "answer")
    };
    let served = Link { status: Some(200), tokens: Some(300.0), ..link(2.1, "answer") };
    let chain = vec![
        link(3.0, "request"),
        link(2.95, "attempt"),
        refused,
        Link { wait_s: 0.6, ..link(2.3, "backoff") },
        link(2.3, "attempt"),
        served,
    ];
    let (requests, attempts) = (1, 2);
    Original { id: 4711, scope: support::SCOPE.to_owned(), requests, attempts, served: true, chain }
}

/// The page of one original, which was asked for and has come.
fn traced() -> Model {
    let mut model = two_scopes();
    press(&mut model, key(Page::Trace));
    press(&mut model, KeyCode::Enter);
    type_in(&mut model, "4711");
    let effects = press(&mut model, KeyCode::Enter);
    assert!(matches!(effects[..], [Effect::Trace(4711)]), "{effects:?}");
    assert!(screen(&model, 80, 24).contains("asking for 4711..."));
    let now = model.now;
    update(&mut model, Msg::Traced { id: 4711, answer: Ok(original()) }, now);
    model
}

#[test]
fn trace() {
    keep(traced);
    let mut model = two_scopes();
    press(&mut model, key(Page::Trace));
    assert!(screen(&model, 80, 24).contains("no original was asked for"));
    press(&mut model, KeyCode::Enter);
    type_in(&mut model, "4711");
    press(&mut model, KeyCode::Enter);
    let now = model.now;
    update(&mut model, Msg::Traced { id: 4710, answer: Err("late".to_owned()) }, now);
    assert!(screen(&model, 80, 24).contains("asking for 4711..."), "another one's answer");
    let why = "weir admin http://x refused with 404: no such original".to_owned();
    update(&mut model, Msg::Traced { id: 4711, answer: Err(why) }, now);
    let seen = screen(&model, 80, 24);
    assert!(seen.contains("4711 was not told") && seen.contains("no such original"), "{seen}");
}

#[test]
fn what_is_no_number_is_not_asked_for() {
    let mut model = two_scopes();
    press(&mut model, key(Page::Trace));
    press(&mut model, KeyCode::Enter);
    type_in(&mut model, "req-1");
    assert!(press(&mut model, KeyCode::Enter).is_empty());
    assert!(model.trace.is_none());
    let said = model.toast.as_ref().map(|toast| toast.text.clone()).unwrap_or_default();
    assert!(said.contains("x-weir-request-id"), "{said}");
}

#[test]
fn what_is_not_known_is_no_zero_on_any_page() {
    let mut model = Model::new("watch", "production", support::berlin(), support::start());
    let mut round = support::round(61, None);
    let mut observation = (*round.observation).clone();
    observation.scopes = vec![Arc::new(Snapshot::new(support::SCOPE, 10.0))];
    observation.sources.clear();
    round.observation = Arc::new(observation);
    see(&mut model, round, 61);
    for page in Page::ALL {
        press(&mut model, key(page));
        let seen = screen(&model, 200, 200);
        let tells_other = matches!(page, Page::Sources | Page::Trace);
        assert!(seen.contains('?') || tells_other, "{seen}");
        for zero in ["0/s", " 0%", "0.00s", "$0", "+0.0"] {
            assert!(!seen.contains(zero), "{zero} on {}: {seen}", page.name());
        }
        assert!(!seen.contains('✓') || tells_other, "nothing is fine: {seen}");
    }
}

#[test]
fn what_is_too_old_is_no_number_on_any_page() {
    let mut model = two_scopes();
    let mut late = round(61);
    let mut observation = (*late.observation).clone();
    for scope in &mut observation.scopes {
        for reading in Arc::make_mut(scope).signals.values_mut() {
            reading.age_s = 900.0;
        }
    }
    late.observation = Arc::new(observation);
    see(&mut model, late, 61);
    for page in Page::ALL {
        press(&mut model, key(page));
        let seen = screen(&model, 120, 60);
        assert!(!seen.contains("1,674"), "offered was 1,674/s on {}: {seen}", page.name());
        let tells_other = matches!(page, Page::Sources | Page::Trace);
        assert!(tells_other || seen.contains("15m"), "{seen}");
    }
}

#[test]
fn the_cursor_stays_on_its_scope_and_enter_shows_it_everywhere() {
    let mut model = two_scopes();
    press(&mut model, key(Page::Scopes));
    assert_eq!(under_cursor(&model).as_deref(), Some(support::SCOPE), "the one on the screen");
    press(&mut model, KeyCode::Down);
    assert_eq!(under_cursor(&model).as_deref(), Some(OTHER));
    // The other scope becomes the worst and moves to the top; the cursor goes with it.
    let mut swapped = round(61);
    let mut worse = (*swapped.verdicts[0]).clone();
    worse.scope = OTHER.to_owned();
    let mut better = (*swapped.verdicts[1]).clone();
    better.scope = support::SCOPE.to_owned();
    better.standing = Standing::Confirmed;
    swapped.verdicts = vec![Arc::new(better), Arc::new(worse)];
    see(&mut model, swapped, 61);
    assert_eq!(model.scopes(), [OTHER, support::SCOPE]);
    assert_eq!(under_cursor(&model).as_deref(), Some(OTHER));
    see(&mut model, round(62), 62);
    assert_eq!(model.scopes(), [support::SCOPE, OTHER]);
    let effects = press(&mut model, KeyCode::Enter);
    assert!(effects.is_empty(), "it looks only: {effects:?}");
    assert_eq!(model.scope(), Some(OTHER));
    press(&mut model, key(Page::Queue));
    assert!(screen(&model, 80, 24).contains(&format!("queue of {OTHER}")));
}

#[test]
fn a_meter_that_falls_says_when_it_is_empty() {
    let mut model = two_scopes();
    press(&mut model, key(Page::Scopes));
    press(&mut model, KeyCode::Down);
    for second in 61..=73_u32 {
        let mut falling = round(second.into());
        let mut observation = (*falling.observation).clone();
        let other = Arc::make_mut(&mut observation.scopes[1]);
        let gateway = Arc::from("gateway");
        let numbers = [
            ("tpm_headroom", 0.6 - 0.02 * f64::from(second - 61)),
            ("rpd_headroom", 0.8),
            ("rpd_limit", 10_000.0),
            ("provider_concurrency_limit", 100.0),
        ];
        for (name, value) in numbers {
            other.set(name, number(value), &gateway);
        }
        falling.observation = Arc::new(observation);
        see(&mut model, falling, second.into());
    }
    let seen = screen(&model, 120, 40);
    // 36% are left and two points go a second.
    let row = seen.lines().find(|line| line.contains("/chat ")).expect("its row");
    assert!(row.contains("36%") && row.contains("~18s"), "{seen}");
    assert!(row.contains("80%"), "the day's meter: {seen}");
    assert!(row.contains("69%"), "31 of 100 are open: {seen}");
    assert!(seen.contains("req/day    80%") && seen.contains("10,000/day"), "{seen}");
    assert!(seen.contains("31 open of 100"), "{seen}");
    assert!(seen.contains("? not told: in TPM, out TPM, tok/day"), "{seen}");
}

#[test]
fn a_row_that_goes_and_comes_back_has_the_cursor_again() {
    let mut model = two_scopes();
    press(&mut model, key(Page::Tenants));
    press(&mut model, KeyCode::Down);
    assert_eq!(under_cursor(&model).as_deref(), Some("search"));
    let mut without = round(61);
    let mut observation = (*without.observation).clone();
    Arc::make_mut(&mut observation.scopes[0]).signals.remove("tenants");
    without.observation = Arc::new(observation);
    see(&mut model, without, 61);
    assert_eq!(under_cursor(&model), None);
    assert!(screen(&model, 80, 24).contains("? no source gives it"));
    see(&mut model, round(62), 62);
    assert_eq!(under_cursor(&model).as_deref(), Some("search"));
}

#[test]
fn a_filter_is_said_kept_and_taken_back() {
    let mut model = two_scopes();
    press(&mut model, key(Page::Sources));
    press(&mut model, KeyCode::Char('/'));
    type_in(&mut model, "RPS_15m");
    let seen = screen(&model, 80, 24);
    assert!(seen.contains("/ RPS_15m") && seen.contains("originals_rps_15m_ago"), "{seen}");
    assert!(!seen.contains("retry_wait_p50_s"), "{seen}");
    press(&mut model, KeyCode::Enter);
    let seen = screen(&model, 80, 24);
    assert!(seen.contains("only rows with \"RPS_15m\""), "{seen}");
    assert!(seen.contains("missing: gateway: needs history"), "the row is explained: {seen}");
    press(&mut model, KeyCode::Char('/'));
    type_in(&mut model, "zzz");
    assert!(under_cursor(&model).is_none());
    press(&mut model, KeyCode::Esc);
    assert_eq!(under_cursor(&model).as_deref(), Some("no originals_rps_15m_ago"));
    press(&mut model, KeyCode::Char('t'));
    press(&mut model, KeyCode::Char('/'));
    type_in(&mut model, "TPM empty");
    let seen = screen(&model, 80, 24);
    assert!(seen.contains("TPM empty") && !seen.contains("clients repeat"), "{seen}");
}

#[test]
fn only_lists_can_be_filtered() {
    let mut model = two_scopes();
    for page in Page::ALL {
        press(&mut model, key(page));
        press(&mut model, KeyCode::Char('/'));
        let is_typing = matches!(model.mode(), Mode::Filter(..));
        assert_eq!(is_typing, page.has_rows(), "{}", page.name());
        press(&mut model, KeyCode::Esc);
    }
}

#[test]
fn palette() {
    keep(|| {
        let mut model = two_scopes();
        press(&mut model, KeyCode::Char(':'));
        model
    });
}

#[test]
fn filter() {
    keep(|| {
        let mut model = two_scopes();
        press(&mut model, key(Page::Sources));
        press(&mut model, KeyCode::Char('/'));
        type_in(&mut model, "RPS_15m");
        model
    });
}

#[test]
fn the_palette_finds_by_some_letters_and_goes_there() {
    let mut model = two_scopes();
    press(&mut model, KeyCode::Char(':'));
    type_in(&mut model, "brkrs");
    insta::assert_snapshot!("palette-typed-80x24-plain", shot(&model, &PLAIN, 80, 24));
    press(&mut model, KeyCode::Enter);
    assert!(matches!(model.mode(), Mode::Page(Page::Breakers, _)), "{:?}", model.mode());
    press(&mut model, KeyCode::Char(':'));
    type_in(&mut model, "qqqq");
    press(&mut model, KeyCode::Enter);
    assert!(matches!(model.mode(), Mode::Palette(_)), "nothing fits and nothing happens");
    press(&mut model, KeyCode::Esc);
    assert!(matches!(model.mode(), Mode::Page(Page::Breakers, _)));
}

#[test]
fn the_palette_does_what_a_key_could_do_there_and_no_more() {
    let mut model = two_scopes();
    press(&mut model, KeyCode::Char(':'));
    type_in(&mut model, "all-safe");
    assert!(press(&mut model, KeyCode::Enter).is_empty());
    let said = model.toast.as_ref().map(|toast| toast.text.clone());
    assert_eq!(said.as_deref(), Some("all-safe works on the flags"));
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Char(':'));
    type_in(&mut model, "contain");
    let effects = press(&mut model, KeyCode::Enter);
    assert!(matches!(effects[..], [Effect::MakePlan(_)]), "it opens a plan: {effects:?}");
    let mut model = two_scopes();
    model.read_only = true;
    press(&mut model, KeyCode::Char(':'));
    type_in(&mut model, "contain");
    assert!(press(&mut model, KeyCode::Enter).is_empty());
    assert!(!model.modes.iter().any(|mode| matches!(mode, Mode::Planning)));
}

#[test]
fn a_page_that_is_higher_than_the_screen_scrolls_and_says_so() {
    let mut model = two_scopes();
    press(&mut model, key(Page::Retries));
    let seen = screen(&model, 80, 24);
    assert!(seen.contains("more rows"), "{seen}");
    assert!(!seen.contains("give up"), "{seen}");
    for _ in 0..4 {
        press(&mut model, KeyCode::PageDown);
    }
    let seen = screen(&model, 80, 24);
    assert!(!seen.contains("more rows"), "{seen}");
    assert!(seen.contains("429 by model"), "{seen}");
    // The end is the end, and the next key up moves.
    press(&mut model, KeyCode::Char('G'));
    assert_eq!(screen(&model, 80, 24), seen);
    press(&mut model, KeyCode::Up);
    assert!(screen(&model, 80, 24).contains("j 1 more row "));
    press(&mut model, KeyCode::Home);
    assert!(screen(&model, 80, 24).contains("from originals to the provider"));
}
